import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

@testable import BlobStorageMount

@Suite("Keys as a tree")
struct KeyTreeTests {
  private static func tree(_ keys: [String]) -> KeyTree<SortedKeys> {
    KeyTree(SortedKeys(keys), nameSeconds: 1)
  }

  @Test("keys are files in folders, and keys that cannot be paths have names that say why")
  func examples() throws {
    let long = String(repeating: "l", count: 300)
    let keys = [
      "a", "a/b", "a-b", "a0", "c/d/e", "c/d/f", "/", "//x", "x/", ".", "..", "../y", "./.", "ä", "a\u{308}",
      "%dot", "%folder-a/z", "p/q/r", "p/q", long, "\(long)/s",
    ]
    let files = try walk(Self.tree(keys))
    #expect(files.count == Set(keys.map { Array($0.utf8) }).count)
    for (path, key) in [
      ("a", "a"), ("%folder-a/b", "a/b"), ("a-b", "a-b"), ("c/d/e", "c/d/e"), ("%empty/%empty", "/"),
      ("%empty/%folder-%empty/x", "//x"), ("x/%empty", "x/"), ("%dot", "."), ("%dotdot", ".."),
      ("%folder-%dot/%dot", "./."), ("%folder-%dotdot/y", "../y"), ("%%dot", "%dot"),
      ("%%folder-a/z", "%folder-a/z"), ("p/%folder-q/r", "p/q/r"), ("p/q", "p/q"),
    ] {
      #expect(files[Array(path.utf8)]?.key == key, "\(path)")
    }
  }

  @Test("every key of any text is one file, whose name leads back to it")
  func any() throws {
    var random = SplitMix64.announced()
    let parts = [
      "/", "/", "/", "a", "b", ".", "%", "%folder-", "%empty", "é", "e\u{301}", "\u{10FFFF}", "-", "0",
    ]
    for _ in 0..<60 {
      var keys: [String] = []
      for _ in 0..<Int.random(in: 1...120, using: &random) {
        let count = Int.random(in: 1...7, using: &random)
        keys.append((0..<count).map { _ in parts.randomElement(using: &random) ?? "" }.joined())
      }
      if Bool.random(using: &random) {
        for count in [248, 255, 256, 400] {
          let long = String(repeating: "l", count: count)
          keys.append(contentsOf: [long, long + "m", long + "/x", "a/" + long + "/" + long])
        }
      }
      let distinct = Set(keys.map { Array($0.utf8) })
      let files = try walk(Self.tree(keys))
      #expect(Set(files.values.map { Array($0.key.utf8) }) == distinct)
      #expect(files.count == distinct.count)
    }
  }

  @Test("a name that no key has is not there")
  func missing() throws {
    let tree = Self.tree(["a", "b/c", "%empty/x"])
    for name in [
      "", "c", "%", "%empty", "%dot", "%folder-a", "%folder-b", "%folder-", "%long-",
      "%long-0123456789abcdef-a",
      "%folder-%long-", "%%empty%", String(repeating: "a", count: 5_000),
    ] {
      #expect(try tree.item(named: Array(name.utf8), in: []) == nil, "\(name)")
    }
    #expect(try tree.item(named: [0xff], in: []) == nil)
    #expect(try tree.item(named: Array("%%empty".utf8), in: []) == .folder(Array("%empty/".utf8)))
  }

  @Test("a folder is listed without looking at what is in its folders")
  func seeks() throws {
    let seeks = SortedKeys.SeekCount()
    var keys = (0..<20).flatMap { folder in (0..<2_000).map { "\(folder)/\($0)/x" } }
    keys += (0..<600).map { "f\($0)" }
    let tree = KeyTree(SortedKeys(keys, seeks), nameSeconds: 1)
    var count = 0
    var pageCount = 0
    var place: [UInt8]?
    repeat {
      let page = try tree.page(of: [], after: place)
      count += page.children.count
      pageCount += 1
      place = page.end
    } while place != nil
    #expect(count == 620)
    #expect(pageCount > 1)
    #expect(seeks.keyCount < 2_500 && seeks.count < 60)
  }

  @Test("a folder is not listed anew for children that a program had no room for")
  func again() throws {
    let pageCount = Mutex(0)
    let folder = OpenFolder(.root, nameSeconds: 1) { place in
      let first = place?[0] ?? 0
      pageCount.withLock { $0 += 1 }
      let children = (first..<first + 10).map { (name: [$0], node: MountedNode.root) }
      let end: [UInt8]? = first < 90 ? [first + 10] : nil
      return (children, end)
    }
    for index in 0..<100 {
      for asked in [index, max(0, index - 9)] {
        #expect(try folder.child(at: asked)?.name == [UInt8(asked)])
      }
    }
    #expect(try folder.child(at: 100)?.name == nil)
    #expect(pageCount.withLock { $0 } == 10)
    // A program that begins again sees the folder as it is.
    #expect(try folder.child(at: 0)?.name == [0])
    #expect(pageCount.withLock { $0 } == 11)
  }

  @Test("keys that are no UTF-8 end a listing with an error")
  func forged() throws {
    struct Forged: OrderedKeys {
      func version(of key: String) -> BlobVersion? { nil }
      func entries(prefix: [UInt8], after place: [UInt8]?, limit: Int) -> [OrderedKey] {
        Array(SortedKeys(["\u{FFFD}"]).entries(prefix: [], after: nil, limit: 1).cycled(limit))
      }
    }
    #expect(throws: BlobStorageError.self) {
      _ = try KeyTree(Forged(), nameSeconds: 1).page(of: [], after: nil)
    }
  }

  @Test("a store's keys and versions are trees that say the same as the store")
  func store() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    let keys = [
      "a", "a/b", "a/b/c", "é", "e\u{301}", "x//y",
      "20261126T142637.123Z-" + String(repeating: "0", count: 32),
    ]
    for (index, key) in keys.enumerated() {
      for round in 0...index % 3 {
        _ = try engine.put(
          key, Array("\(key) \(round)".utf8), PutOptions(durability: .relaxed, replacement: .archiveCurrent))
      }
    }
    let current = try walk(KeyTree(CurrentKeys(engine), nameSeconds: 1))
    #expect(current.count == keys.count)
    for version in current.values {
      #expect(try engine.version(version.key, nil)?.id == version.id)
    }
    let versions = try walk(VersionsTree(engine))
    let expected = try keys.flatMap { try engine.versions($0) }
    #expect(Set(versions.values.map(\.id)) == Set(expected.map(\.id)) && versions.count == expected.count)
    #expect(versions.filter { $0.key.starts(with: "a/b/c/2".utf8) }.count == 3)
    for key in keys.dropLast() {
      let names = try engine.versions(key).reversed().map {
        String(decoding: VersionsTree.name(of: $0), as: UTF8.self)
      }
      #expect(names == names.sorted())
    }
  }

  @Test("times that no calendar has are names, too", arguments: [-1e18, 0, 1_795_703_197.123, 1e18])
  func times(_ seconds: Double) throws {
    let version = BlobVersion(
      key: "k", id: BlobVersion.ID(Stamp(time: 1, writer: 1)), digest: BlobDigest.of([]), byteCount: 0,
      created: Date(timeIntervalSince1970: seconds))
    let name = String(decoding: VersionsTree.name(of: version), as: UTF8.self)
    #expect(name.wholeMatch(of: /[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{32}/) != nil, "\(name)")
    if seconds > 1e9, seconds < 1e12 { #expect(name.hasPrefix("20261126T142637.123Z")) }
    _ = MountedAttributes.attributes(of: version)
  }
}

extension Array {
  /// Its elements again and again, so many in all.
  fileprivate func cycled(_ count: Int) -> [Element] { (0..<count).map { self[$0 % self.count] } }
}
