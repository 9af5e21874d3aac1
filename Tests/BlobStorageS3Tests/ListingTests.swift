import BlobStorage
import BlobStorageS3
import BlobStorageSharing
import Testing

@Suite("A listing")
struct ListingTests {
  static func text(_ keys: [String], truncated: String = "false", more: String = "", size: String = "7")
    -> String
  {
    "<ListBucketResult>\(more)<IsTruncated>\(truncated)</IsTruncated>"
      + keys.map { "<Contents><Key>\($0)</Key><Size>\(size)</Size></Contents>" }.joined()
      + "</ListBucketResult>"
  }

  static func page(_ text: String, keyPrefix: String = "p/", prefix: String = "", after: String? = nil)
    -> ObjectPage?
  {
    ObjectListing(Array(text.utf8), keyPrefix: keyPrefix, prefix: prefix, after: after)?.page
  }

  @Test("tells names without the store's prefix, and whether there are more")
  func names() {
    #expect(Self.page(Self.text(["p/a", "p/b/c"]))?.entries.map(\.name) == ["a", "b/c"])
    #expect(Self.page(Self.text(["p/a"]))?.entries.map(\.byteCount) == [7])
    #expect(Self.page(Self.text(["p/a"], truncated: "true"))?.isTruncated == true)
    #expect(Self.page(Self.text([]))?.isTruncated == false)
    #expect(Self.page(Self.text(["a"]), keyPrefix: "")?.entries.map(\.name) == ["a"])
    let marked = Self.page(Self.text(["p/d/\u{301}"]), prefix: "d/")?.entries.map { Array($0.name.utf8) }
    #expect(marked == [Array("d/\u{301}".utf8)])
    let bare = Self.page(Self.text(["p/\u{301}"]))?.entries.map { Array($0.name.utf8) }
    #expect(bare == [Array("\u{301}".utf8)])
  }

  @Test("decodes names that the object store has encoded, and only those")
  func encoded() {
    let encoded = Self.text(["%C3%A4+x/a"], more: "<EncodingType>url</EncodingType>")
    #expect(Self.page(encoded, keyPrefix: "ä x/")?.entries.map(\.name) == ["a"])
    #expect(Self.page(Self.text(["p/%41"]))?.entries.map(\.name) == ["%41"])
  }

  @Test(
    "is none when names could be lost by it",
    arguments: [
      text(["p/b", "p/a"]), text(["p/a", "p/a"]), text(["q/a"]), text([], truncated: "true"),
      text(["p/a"], truncated: "maybe"), text(["p/a"], size: "-1"), text(["p/a"], size: "x"),
      text(["p/%zz"], more: "<EncodingType>url</EncodingType>"),
      "<ListBucketResult></ListBucketResult>", "<Other><IsTruncated>false</IsTruncated></Other>", "<html>",
      "",
    ])
  func refused(text: String) { #expect(Self.page(text) == nil) }

  @Test("is none when it begins before the name it was to go on after, or outside what was asked for")
  func outside() {
    #expect(Self.page(Self.text(["p/b"]), after: "a") != nil)
    #expect(Self.page(Self.text(["p/b"]), after: "b") == nil)
    #expect(Self.page(Self.text(["p/b"]), prefix: "packs/") == nil)
  }

  @Test("is asked for a thousand at a time, after the last name of the page before, however long names are")
  func requests() throws {
    // As long as names are, and three times that as they are written.
    let long = String(repeating: "ä", count: 400)
    let keys = (0..<500).map { PercentEncoding.encode("p/packs/\(1_000 + $0)\(long)") }
    let pages = [
      Self.text(keys, truncated: "true", more: "<EncodingType>url</EncodingType>"), Self.text(["p/packs/z"]),
    ]
    #expect(pages[0].utf8.count > 1 << 20)
    let server = try ScriptedServer { number, _ in .reply(200, [], pages[min(number, 1)]) }
    let scripted = try Scripted(server)
    let entries = try scripted.store.listAll("packs/")
    #expect(entries.count == 501)
    #expect(entries.first?.name == "packs/1000\(long)")
    #expect(entries.last?.name == "packs/z")
    let query = "/bucket?encoding-type=url&list-type=2&max-keys=1000&prefix=p%2Fpacks%2F"
    let last = PercentEncoding.encode("p/packs/1499\(long)")
    #expect(server.requests.map(\.uri) == [query, query + "&start-after=" + last])
  }

  @Test("is not read when it is longer than any page")
  func tooLong() throws {
    let server = try ScriptedServer { _, _ in .bytes(200, [], [UInt8](repeating: 0x20, count: 8 << 20 | 1)) }
    let failure = FaultTests.failure { _ = try Scripted(server).store.list("packs/", after: nil) }
    #expect(failure?.message.contains("more bytes") == true)
    #expect(server.requests.count == 1)
  }

  @Test("tells what part of an object an answer holds")
  func contentRange() {
    #expect(ContentRange("bytes 0-9/443") == ContentRange("bytes 0-9/443"))
    #expect(ContentRange("bytes 3-9/443")?.range == 3..<10)
    #expect(ContentRange("bytes 3-9/443")?.byteCount == 443)
    for text in [
      "", "bytes */443", "bytes 9-3/443", "bytes 0-9/*", "bytes 0-9/9", "items 0-9/443", "bytes 0-9",
    ] {
      #expect(ContentRange(text) == nil, "\(text)")
    }
  }
}
