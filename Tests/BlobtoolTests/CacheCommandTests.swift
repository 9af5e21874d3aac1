import Foundation
import Testing

/// `cache` and what `gc` does to one.
@Suite struct CacheCommandTests {
  private struct CacheLine: Decodable {
    var prefix: String
    struct Limits: Decodable {
      var byteLimit: Int64
      var keyLimit: Int?
      var lifetimeSeconds: Double?
    }

    var limits: Limits
    var keys: Int
    var packs: Int
    var garbageByteCount: Int64
    var diskByteCount: Int64
  }

  private struct TrimLine: Decodable {
    var keysExpired: Int
    var keysEvicted: Int
    var freedByteCount: Int64
    var byteLimit: Int64
    var diskByteCount: Int64
    var seconds: Double
  }

  @Test("what is imported into a cache can be exported, also a file with long extended attributes")
  func longAttributes() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["cache", "set-limit", "16M"])
    try workshop.write(Data("v".utf8), to: "tree/f")
    let done = try await workshop.shell(
      """
      setfattr -n user.long -v $(head -c 3000 /dev/zero | tr '\\0' q) tree/f || exit 9
      $TOOL import tree && $TOOL export out
      """)
    #expect(done.status == 0, "\(done.errors)")
    #expect(workshop.contents("out/f") == Data("v".utf8))
  }

  @Test("a limit makes a store a cache, which set-limit, trim and gc hold")
  func limits() async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    let none = try await workshop.expect(1, ["cache", "stats"])
    #expect(none.errors.contains("set-limit"))
    for index in 4..<20 {
      try await workshop.expect(0, ["put", "k\(index)"], input: noise(600_000, seed: UInt64(index)))
    }
    let set = try await workshop.expect(0, ["cache", "set-limit", "9M", "--evict", "--json"])
    let line = try #require(try set.json(CacheLine.self).first)
    #expect(line.limits.byteLimit == 9 << 20)
    #expect(line.diskByteCount <= 9 << 20)
    #expect(line.keys < 16 && line.keys > 8)
    #expect(line.limits.keyLimit == nil)
    // The first puts went first.
    try await workshop.expect(3, ["get", "k4", "-o", "out"])
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
    #expect(trimmed.byteLimit == 9 << 20)
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
      #expect(try set.json(CacheLine.self).first?.limits.byteLimit == byteCount, "\(text)")
    }
    for text in [
      "", "M", "MiB", "9X", "9iB", "9XiB", "9MB", "9 MiB", "-9M", "-9MiB", "9999999999T", "9999999999TiB",
    ] {
      try await workshop.expect(64, ["cache", "set-limit", "--", text])
    }
    let stats = try await workshop.expect(0, ["cache", "stats", "--json"])
    let line = try #require(try stats.json(CacheLine.self).first)
    #expect(line.limits.byteLimit == 2 << 40)
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
        "cache", "set-limit", "9M", "--prefix", "c/", "--count", "5", "--lifetime", "2500.5", "--evict",
        "--json",
      ])
    let line = try #require(try set.json(CacheLine.self).first)
    #expect(line.prefix == "c/")
    #expect(line.limits.keyLimit == 5)
    #expect(line.limits.lifetimeSeconds == 2_500.5)
    #expect(line.keys == 1)
    try await workshop.expect(1, ["cache", "set-limit", "9M", "--prefix", "d/"])
    #expect(try await workshop.expect(0, ["cache", "stats"]).errors.isEmpty)
  }

  @Test("set-limit replaces a damaged file of limits, once it is told which keys may go")
  func damagedFile() async throws {
    let workshop = try await Workshop()
    for key in ["c/1", "d/1"] { try await workshop.expect(0, ["put", key], input: noise(100, seed: 1)) }
    for options in [["--prefix", "d/"], ["--prefix", "c/"], ["--evict"]] {
      try await workshop.expect(0, ["cache", "set-limit", "10M", "--prefix", "c/", "--evict"])
      try workshop.write(Data("garbage".utf8), to: "store/cache")
      let damaged = try await workshop.expect(4, ["cache", "stats"])
      #expect(damaged.errors.contains("set the cache's limits again"))
      let refused = try await workshop.expect(64, ["cache", "set-limit", "9M"])
      #expect(refused.errors.contains("--prefix") && refused.errors.contains("--evict"))
      try await workshop.expect(0, ["cache", "set-limit", "9M"] + options)
      let line = try await statistics(workshop, workshop.storePath)
      #expect(line.prefix == (options.count == 2 ? options[1] : ""))
      #expect(line.limits.byteLimit == 9 << 20 && line.keys == (options.count == 2 ? 1 : 2))
      try await workshop.expect(0, ["put", "\(line.prefix)2"], input: noise(100, seed: 2))
      try await workshop.expect(0, ["delete", "\(line.prefix)2"])
      try await workshop.expect(0, ["cache", "remove-limit"])
    }
    #expect(try await keys(workshop, workshop.storePath) == ["c/1", "d/1"])
  }

  private func statistics(_ workshop: Workshop, _ store: String) async throws -> CacheLine {
    let outcome = try await workshop.expect(0, ["cache", "stats", "--json", "--store", store])
    return try #require(try outcome.json(CacheLine.self).first)
  }

  private func keys(_ workshop: Workshop, _ store: String) async throws -> [String] {
    try await workshop.expect(0, ["list", "--json", "--store", store]).json(ListLine.self).map(\.key)
  }

  @Test("a copy into a cache holds its limit, and one that is only looked at brings nothing")
  func copied() async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    for index in 10..<25 { try workshop.write(noise(1_000_000, seed: UInt64(index)), to: "tree/\(index)") }
    try await workshop.expect(0, ["import", "tree"])
    let target = workshop.path("target")
    try await workshop.expect(0, ["init", "--similarity", "off", "--store", target])
    try await workshop.expect(0, ["cache", "set-limit", "8704K", "--store", target])
    try await workshop.expect(0, ["copy", workshop.storePath, target, "--dry-run"])
    #expect(try await statistics(workshop, target).keys == 0)
    try await workshop.expect(0, ["copy", workshop.storePath, target])
    let line = try await statistics(workshop, target)
    #expect(line.diskByteCount <= 8_704 << 10)
    #expect(line.keys > 3 && line.keys < 15)
    #expect(try await keys(workshop, target).count == line.keys)
    #expect(try await keys(workshop, workshop.storePath).count == 15)
    try await workshop.expect(0, ["verify", "--store", target])
  }

  @Test("the limit of a prefix is for the whole folder, and lets only keys of the prefix go")
  func prefixes() async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    let first = try await workshop.expect(
      0, ["cache", "set-limit", "9M", "--prefix", "c/", "--count", "5", "--lifetime", "3600"])
    for phrase in [/prefix +c\//, /limit +9\.0 MiB/, /keys at most +5/, /lifetime +1 h 0 min/, /keys +0/] {
      #expect(first.text.contains(phrase), "\(first.text)")
    }
    // A prefix that is not said again stays; the other limits are those that are said.
    try await workshop.expect(0, ["cache", "set-limit", "10M"])
    let changed = try await statistics(workshop, workshop.storePath)
    #expect((changed.prefix, changed.limits.byteLimit) == ("c/", 10 << 20))
    #expect(changed.limits.keyLimit == nil && changed.limits.lifetimeSeconds == nil)
    try await workshop.expect(0, ["put", "another"], input: Data("stays".utf8))
    for index in 10..<24 {
      try await workshop.expect(0, ["put", "c/\(index)"], input: noise(600_000, seed: UInt64(index)))
    }
    try await workshop.expect(0, ["put", "big"], input: noise(3_000_000, seed: 99))
    let line = try await statistics(workshop, workshop.storePath)
    #expect(line.diskByteCount <= 10 << 20)
    let left = try await keys(workshop, workshop.storePath)
    #expect(left.count { $0.hasPrefix("c/") } == line.keys)
    #expect(line.keys >= 5 && line.keys < 14)
    #expect(!left.contains("c/10") && left.contains("c/23"))
    #expect(left.starts(with: ["another", "big"]))
    #expect(try await workshop.expect(0, ["get", "big"]).bytes == noise(3_000_000, seed: 99))
  }

  @Test("what has expired is missing for every command that reads it")
  func expired() async throws {
    let workshop = try await Workshop()
    let target = workshop.path("target")
    try await workshop.expect(0, ["put", "other"], input: Data("stays".utf8))
    try await workshop.expect(0, ["cache", "set-limit", "9M", "--prefix", "c/", "--lifetime", "0.001"])
    let put = try #require(
      try await workshop.expect(0, ["put", "c/k", "--json"], input: Data("old".utf8)).json(PutLine.self).first
    )
    let readings = [
      ["get", "c/k"], ["get", "c/k", "--version", put.version], ["info", "c/k"], ["versions", "c/k"],
    ]
    for arguments in readings {
      let outcome = try await workshop.expect(3, arguments)
      #expect(outcome.bytes.isEmpty, "\(arguments)")
    }
    #expect(try await keys(workshop, workshop.storePath) == ["other"])
    try await workshop.expect(0, ["export", "out"])
    #expect(workshop.contents("out/other") == Data("stays".utf8))
    #expect(workshop.contents("out/c/k") == nil)
    try await workshop.expect(0, ["init", "--store", target])
    try await workshop.expect(0, ["copy", workshop.storePath, target])
    #expect(try await keys(workshop, target) == ["other"])
    // It is there until the cache is trimmed, and does no harm.
    #expect(try await statistics(workshop, workshop.storePath).keys == 1)
    try await workshop.expect(0, ["verify"])
    try await workshop.expect(0, ["cache", "set-limit", "9M", "--lifetime", "1h"])
    try await workshop.expect(0, ["put", "c/k"], input: Data("new".utf8))
    #expect(try await workshop.expect(0, ["get", "c/k"]).text == "new")
    #expect(try await keys(workshop, workshop.storePath) == ["c/k", "other"])
  }

  @Test("what commands read counts as used, and stays when others are evicted", arguments: ["get", "export"])
  func used(command: String) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["cache", "set-limit", "9M", "--count", "3"])
    for key in ["k0", "k1", "k2"] { try await workshop.expect(0, ["put", key], input: Data(key.utf8)) }
    try await workshop.expect(0, command == "get" ? ["get", "k0"] : ["export", "k0", "out"])
    try await workshop.expect(0, ["put", "k3"], input: Data("k3".utf8))
    #expect(try await keys(workshop, workshop.storePath) == ["k0", "k2", "k3"])
    // A list is no use.
    try await workshop.expect(0, ["put", "k4"], input: Data("k4".utf8))
    #expect(try await keys(workshop, workshop.storePath) == ["k0", "k3", "k4"])
  }

  @Test("what is too old goes with each import, copy, trim and gc, and with none that is only looked at")
  func tooOld() async throws {
    let workshop = try await Workshop()
    let source = workshop.path("source")
    let store = workshop.storePath
    try workshop.write(Data("f".utf8), to: "tree/f")
    try await workshop.expect(0, ["init", "--store", source])
    try await workshop.expect(0, ["put", "s", "--store", source], input: Data("s".utf8))
    try await workshop.expect(0, ["cache", "set-limit", "9M", "--prefix", "c/", "--lifetime", "0.001"])
    let commands = [["import", "tree"], ["copy", source, store], ["cache", "trim"], ["gc"]]
    for command in commands {
      try await workshop.expect(0, ["put", "c/old"], input: Data("old".utf8))
      if command[0] != "cache" {
        try await workshop.expect(0, command + ["--dry-run"])
        #expect(try await statistics(workshop, store).keys == 1, "\(command)")
      }
      let outcome = try await workshop.expect(0, command)
      #expect(try await statistics(workshop, store).keys == 0, "\(command)")
      if command[0] == "cache" { #expect(outcome.text.contains(/keys expired +1\n/), "\(outcome.text)") }
      if command[0] == "gc" { #expect(outcome.text.contains(/keys evicted +1\n/), "\(outcome.text)") }
    }
    try await workshop.expect(0, ["put", "c/old"], input: Data("old".utf8))
    struct Evicted: Decodable { var keysEvicted: Int }
    for count in [1, 0] {
      let outcome = try await workshop.expect(0, ["gc", "--json"])
      #expect(try outcome.json(Evicted.self).first?.keysEvicted == count)
    }
    // What was stored beside the cache's keys is there still.
    #expect(try await keys(workshop, store) == ["f", "s"])
    #expect(
      try await workshop.expect(0, ["cache", "remove-limit", "--json"]).text == "{\"isCache\":false}\n")
  }
}
