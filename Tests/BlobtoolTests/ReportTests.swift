import Foundation
import Testing

/// The page that `report` writes.
@Suite(.serialized) struct ReportTests {
  static let hostileKeys = [
    "<script>document.title='gone'</script>", "\"><img src=x onerror=alert(1)>", "a&amp;b'c",
    "\u{202e}gnp.exe", "new\nline\u{7}", String(repeating: "long/", count: 800),
  ]

  /// A store with something for every part of the page.
  private func makeStore() async throws -> Workshop {
    let workshop = try await Workshop(options: ["--chunk-size", "8192"])
    let text = Data(String(repeating: "words that are said again and again, ", count: 4_000).utf8)
    for (index, key) in Self.hostileKeys.enumerated() {
      try await workshop.expect(0, ["put", key], input: noise(40_000 + index * 9_000, seed: UInt64(index)))
    }
    for version in 0..<3 {
      try await workshop.expect(
        0, ["put", "text", "--archive"], input: text + noise(30_000, seed: UInt64(90 + version)))
    }
    for index in 0..<8 { try workshop.write(noise(20_000, seed: 50), to: "tree/f\(index)") }
    try await workshop.expect(0, ["import", "tree", "--prefix", "copies/"])
    try await workshop.expect(0, ["put", "gone"], input: noise(150_000, seed: 70))
    try await workshop.expect(0, ["delete", "gone"])
    return workshop
  }

  @Test("is one file without scripts and addresses, in which keys are text")
  func page() async throws {
    let workshop = try await makeStore()
    try await workshop.expect(0, ["report", "-o", "page.html"])
    let html = String(decoding: try #require(workshop.contents("page.html")), as: UTF8.self)
    for word in ["<script", "<img", "http:", "https:", "//cdn", "href=", "url(", "@import"] {
      let isThere = html.contains(word)
      #expect(!isThere, "\(word)")
    }
    let loads = html.contains(/<(img|iframe|link|object|embed|video|audio|base)\b/)
    #expect(!loads)
    for text in [
      "&lt;script&gt;document.title=&#39;gone&#39;", "&quot;&gt;&lt;img src=x onerror=alert(1)&gt;",
      "\\u{202e}gnp.exe", "prefers-color-scheme: dark",
    ] {
      let isThere = html.contains(text)
      #expect(isThere, "\(text)")
    }
    for heading in [
      "What saved space", "What is on disk", "Codecs", "Keys that take most", "When versions were put",
      "Keys with most versions", "Packs",
    ] {
      let isThere = html.contains("<h2>\(heading)</h2>")
      #expect(isThere, "\(heading)")
    }
    #expect(try await workshop.expect(0, ["report"]).text.hasPrefix("<!doctype html>"))
  }

  @Test("has its numbers as JSON, the same as stats and why")
  func json() async throws {
    struct Line: Decodable {
      struct Key: Decodable { var key: String; var versions: Int; var exclusiveByteCount: Int64 }
      var statistics: StatisticsLine
      var largestKeys: [Key]
      var busiestKeys: [Key]
    }
    let workshop = try await makeStore()
    let outcome = try await workshop.expect(0, ["report", "--json", "--limit", "4"])
    #expect(
      try outcome.fields() == [
        "statistics", "codecs", "largestKeys", "busiestKeys", "history", "packs", "unreadable", "seconds",
      ])
    let line = try #require(try outcome.json(Line.self).first)
    let statistics = try #require(
      try await workshop.expect(0, ["stats", "--json"]).json(StatisticsLine.self).first)
    #expect(line.statistics.storedByteCount == statistics.storedByteCount)
    #expect(outcome.lines.count == 1)
    let few = try await workshop.expect(0, ["report", "--json", "--limit", "1", "-o", "page.html"])
    #expect(try few.json(Line.self).first?.largestKeys.count == 1)
    #expect(workshop.contents("page.html")?.starts(with: Data("<!doctype html>".utf8)) == true)
    #expect(line.largestKeys.count == 4)
    #expect(line.busiestKeys.map(\.key) == ["text"])
    #expect(line.busiestKeys.first?.versions == 3)
    for key in line.largestKeys {
      let why = try await workshop.expect(0, ["why", key.key, "--json"]).json(MaintenanceTests.WhyLine.self)
      #expect(why.first?.exclusiveByteCount == key.exclusiveByteCount, "\(key.key.prefix(40))")
    }
  }

  @Test("has in its JSON how codecs, times and packs share what there is")
  func shares() async throws {
    struct Codec: Decodable {
      var name: String; var chunks: Int; var plainByteCount: Int64; var storedByteCount: Int64
    }
    struct Span: Decodable { var start: String; var end: String; var versions: Int; var byteCount: Int64 }
    struct Pack: Decodable {
      var name: String; var created: String; var sealed: Bool; var byteCount: Int64; var liveByteCount: Int64
    }
    struct Key: Decodable { var key: String; var versions: Int; var byteCount: Int64 }
    struct Line: Decodable {
      var statistics: StatisticsLine
      var codecs: [Codec]
      var history: [Span]
      var packs: [Pack]
      var largestKeys: [Key]
    }
    let workshop = try await Workshop(options: ["--similarity", "off"])
    try await workshop.expect(0, ["put", "plain"], input: noise(150_000, seed: 1))
    try await workshop.expect(0, ["put", "tight"], input: Data(repeating: 65, count: 50_000))
    try await workshop.expect(0, ["put", "tight", "--archive"], input: Data(repeating: 66, count: 40_000))
    try await workshop.expect(0, ["put", "gone"], input: noise(60_000, seed: 2))
    try await workshop.expect(0, ["delete", "gone"])
    let line = try #require(try await workshop.expect(0, ["report", "--json"]).json(Line.self).first)
    let codecs = Dictionary(uniqueKeysWithValues: line.codecs.map { ($0.name, $0) })
    #expect(codecs.keys.sorted() == ["none", "zstd"])
    #expect(codecs["none"]?.plainByteCount == 150_000 && codecs["none"]?.storedByteCount == 150_000)
    #expect(codecs["zstd"]?.plainByteCount == 90_000 && codecs["zstd"]?.storedByteCount ?? .max < 5_000)
    #expect(line.codecs.reduce(0) { $0 + $1.chunks } == line.statistics.chunks)
    #expect(line.history.reduce(0) { $0 + $1.versions } == 3)
    #expect(line.history.reduce(0) { $0 + $1.byteCount } == 240_000)
    #expect(line.history.allSatisfy { $0.start <= $0.end })
    #expect(line.packs.count == line.statistics.packs)
    #expect(line.packs.map(\.created) == line.packs.map(\.created).sorted())
    #expect(line.packs.allSatisfy { $0.sealed && $0.liveByteCount <= $0.byteCount })
    let whole = line.packs.reduce(0) { $0 + $1.byteCount }
    #expect(whole > 210_000 && whole <= line.statistics.diskByteCount)
    #expect(150_000..<200_000 ~= line.packs.reduce(0) { $0 + $1.liveByteCount })
    let tight = try #require(line.largestKeys.first { $0.key == "tight" })
    #expect((tight.versions, tight.byteCount) == (2, 90_000))
  }

  @Test("of an empty store is a page too")
  func empty() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["report", "-o", "page.html"])
    let html = String(decoding: try #require(workshop.contents("page.html")), as: UTF8.self)
    let isRight = html.contains("What is on disk") && !html.contains("nan") && !html.contains("inf")
    #expect(isRight)
    try await workshop.expect(1, ["report", "-o", "nowhere/page.html"])
  }

  @Test(
    "looks right in a browser",
    .enabled(if: Browser.path != nil, "no browser is installed: tools/prepare browser"),
    arguments: [
      Browser.Screen(width: 1_200, isDark: false), Browser.Screen(width: 1_200, isDark: true),
      Browser.Screen(width: 500, isDark: false),
    ])
  func browser(_ screen: Browser.Screen) async throws {
    let workshop = try await makeStore()
    try await workshop.expect(0, ["report", "-o", "page.html"])
    let browser = Browser(workshop: workshop, screen: screen)
    let measures = try await browser.measure("page.html")
    #expect(measures.overflow <= 0)
    #expect(measures.clipped == [])
    #expect(measures.headings.count == 7)
    #expect(measures.shapes > 30)
    #expect(measures.scripts == 1, "only the one that measures")
    #expect(measures.keys.contains { $0.hasPrefix("?script?document.title") })
    #expect(measures.background == (screen.isDark ? "rgb(20, 23, 27)" : "rgb(255, 255, 255)"))
    let (picture, complaints) = try await browser.screenshot("page.html")
    #expect(complaints == [])
    let colors = picture.colors()
    // The page, and the colors that are in the charts above the fold.
    let expected: [UInt32] =
      screen.isDark
      ? [0x14171b, 0x3f9fe0, 0x1fb58c, 0x62b9ec, 0xf0b030]
      : [0xffffff, 0x0072b2, 0x009e73, 0x4aa8df, 0xe69f00]
    for color in expected {
      #expect(colors[color, default: 0] > 200, "\(String(color, radix: 16)) is not to be seen")
    }
    let folder = ProcessInfo.processInfo.environment["BLOB_STORAGE_SCREENSHOTS"]
    if let folder, let shot = workshop.contents("shot.png") {
      try shot.write(to: URL(fileURLWithPath: folder).appending(path: "\(screen.testDescription).png"))
    }
  }
}
