import Foundation
import Testing

/// `cache` and what `gc` does to one.
@Suite struct CacheCommandTests {
  private struct CacheLine: Decodable {
    var prefix: String
    var byteCountMax: Int64
    var countMax: Int?
    var lifetimeSeconds: Double?
    var keys: Int
    var packs: Int
    var garbageByteCount: Int64
    var diskByteCount: Int64
  }

  private struct TrimLine: Decodable {
    var keysExpired: Int
    var keysEvicted: Int
    var freedByteCount: Int64
    var byteCountMax: Int64
    var diskByteCount: Int64
    var seconds: Double
  }

  @Test("a limit makes a store a cache, which set-limit, trim and gc hold")
  func limits() async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    let none = try await workshop.expect(1, ["cache", "stats"])
    #expect(none.errors.contains("set-limit"))
    for index in 6..<20 {
      try await workshop.expect(0, ["put", "k\(index)"], input: noise(600_000, seed: UInt64(index)))
    }
    let set = try await workshop.expect(0, ["cache", "set-limit", "9M", "--evict", "--json"])
    let line = try #require(try set.json(CacheLine.self).first)
    #expect(line.byteCountMax == 9 << 20)
    #expect(line.diskByteCount <= 9 << 20)
    #expect(line.keys < 14 && line.keys > 8)
    #expect(line.countMax == nil)
    // The first puts went first.
    try await workshop.expect(3, ["get", "k6", "-o", "out"])
    try await workshop.expect(0, ["get", "k19", "-o", "out"])
    for index in 20..<24 {
      try await workshop.expect(0, ["put", "k\(index)"], input: noise(600_000, seed: UInt64(index)))
      let line = try #require(
        try await workshop.expect(0, ["cache", "stats", "--json"]).json(CacheLine.self).first)
      #expect(line.diskByteCount <= 9 << 20)
    }
    try await workshop.expect(0, ["gc"])
    let statistics = try #require(
      try await workshop.expect(0, ["cache", "stats", "--json"]).json(CacheLine.self).first)
    #expect(statistics.diskByteCount <= 9 << 20)
    for index in 0..<20 {
      _ = try workshop.write(noise(600_000, seed: UInt64(100 + index)), to: "many/\(index)")
    }
    try await workshop.expect(0, ["import", workshop.path("many")])
    let imported = try #require(
      try await workshop.expect(0, ["cache", "stats", "--json"]).json(CacheLine.self).first)
    #expect(imported.diskByteCount <= 9 << 20)
    #expect(imported.keys > 8)
    let trimmed = try #require(
      try await workshop.expect(0, ["cache", "trim", "--json"]).json(TrimLine.self).first)
    #expect(trimmed.byteCountMax == 9 << 20)
    #expect(
      try await workshop.expect(0, ["verify", "--json"]).json(VerificationLine.self).first?.damaged.count == 0
    )
  }

  @Test("trim says how many keys were too old and how many too many")
  func trimming() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(1, ["cache", "trim"])
    try await workshop.expect(0, ["cache", "set-limit", "9M", "--count", "3"])
    for index in 0..<5 { try await workshop.expect(0, ["put", "k\(index)"], input: Data("\(index)".utf8)) }
    #expect(
      try await workshop.expect(0, ["list", "--json"]).json(ListLine.self).map(\.key) == ["k2", "k3", "k4"])
    func trimmed() async throws -> TrimLine {
      try #require(try await workshop.expect(0, ["cache", "trim", "--json"]).json(TrimLine.self).first)
    }
    var line = try await trimmed()
    #expect(line.keysExpired == 0)
    #expect(line.keysEvicted == 0)
    try await workshop.expect(64, ["cache", "set-limit", "9M", "--count", "1"])
    #expect(try await workshop.expect(0, ["list"]).lines.count == 3)
    // The shortest lifetime there is: over when the next process looks.
    try await workshop.expect(0, ["cache", "set-limit", "9M", "--lifetime", "0.001", "--evict"])
    #expect(try await workshop.expect(0, ["list"]).bytes.isEmpty)
    try await workshop.expect(0, ["put", "k"], input: Data("value".utf8))
    line = try await trimmed()
    #expect(line.keysExpired == 1)
    #expect(line.keysEvicted == 0)
    try await workshop.expect(3, ["get", "k"])
  }

  @Test("put into a cache is bound by its conditions, and --archive keeps the version before")
  func conditions() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["cache", "set-limit", "9M"])
    let first = try #require(
      try await workshop.expect(0, ["put", "k", "--if-absent", "--json"], input: Data("one".utf8))
        .json(PutLine.self).first)
    #expect(first.key == "k" && first.byteCount == 3)
    try await workshop.expect(5, ["put", "k", "--if-absent"], input: Data("two".utf8))
    #expect(try await workshop.expect(0, ["get", "k"]).text == "one")
    try await workshop.expect(
      0, ["put", "k", "--archive", "--if-version", first.version], input: Data("two".utf8))
    try await workshop.expect(5, ["put", "k", "--if-version", first.version], input: Data("three".utf8))
    #expect(try await workshop.expect(0, ["get", "k"]).text == "two")
    #expect(try await workshop.expect(0, ["get", "k", "--version", first.version]).text == "one")
  }

  @Test("limits are numbers of bytes with a unit or without")
  func units() async throws {
    let workshop = try await Workshop()
    let limits: [(text: String, byteCount: Int64)] = [
      ("9437185", 9_437_185), ("9217K", 9_217 << 10), ("11m", 11 << 20), ("9MiB", 9 << 20),
      ("9218kib", 9_218 << 10), ("3GiB", 3 << 30), ("2TiB", 2 << 40), ("2T", 2 << 40),
    ]
    for (text, byteCount) in limits {
      let set = try await workshop.expect(0, ["cache", "set-limit", text, "--json"])
      #expect(try set.json(CacheLine.self).first?.byteCountMax == byteCount, "\(text)")
    }
    for text in [
      "", "M", "MiB", "9X", "9iB", "9XiB", "9MB", "9 MiB", "-9M", "-9MiB", "9999999999T", "9999999999TiB",
    ] {
      try await workshop.expect(64, ["cache", "set-limit", "--", text])
    }
    let stats = try await workshop.expect(0, ["cache", "stats", "--json"])
    let line = try #require(try stats.json(CacheLine.self).first)
    #expect(line.byteCountMax == 2 << 40)
  }

  @Test("refuses limits that make no sense, and keeps to its prefix")
  func refusals() async throws {
    let workshop = try await Workshop()
    for arguments in [["1000"], ["x"], ["9M", "--count", "0"], ["9M", "--lifetime", "-1"], []] {
      try await workshop.expect(64, ["cache", "set-limit"] + arguments)
    }
    try await workshop.expect(64, ["cache"])
    try await workshop.expect(0, ["put", "other"], input: noise(100, seed: 1))
    try await workshop.expect(0, ["put", "c/1"], input: noise(100, seed: 2))
    let set = try await workshop.expect(
      0,
      [
        "cache", "set-limit", "9M", "--prefix", "c/", "--count", "5", "--lifetime", "2.5", "--evict",
        "--json",
      ])
    let line = try #require(try set.json(CacheLine.self).first)
    #expect(line.prefix == "c/")
    #expect(line.countMax == 5)
    #expect(line.lifetimeSeconds == 2.5)
    #expect(line.keys == 1)
    try await workshop.expect(1, ["cache", "set-limit", "9M", "--prefix", "d/"])
    #expect(try await workshop.expect(0, ["cache", "stats"]).errors.isEmpty)
  }
}
