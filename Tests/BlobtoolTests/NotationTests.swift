import Foundation
import Testing

/// Sizes, spans of time, times and IDs, as they are typed and as they are shown.
@Suite struct NotationTests {
  @Test("sizes have units wherever there are sizes")
  func sizes() async throws {
    let workshop = try await Workshop()
    let bytes = noise(5_000, seed: 1)
    try await workshop.expect(0, ["put", "k"], input: bytes)
    for (offset, length) in [("1K", "2k"), ("1KiB", "2kib"), ("1024", "2K")] {
      let part = try await workshop.expect(0, ["get", "k", "--offset", offset, "--length", length]).bytes
      #expect(part == bytes[1_024..<3_072])
    }
    #expect(try await workshop.expect(1, ["get", "k", "--offset", "1M"]).errors.contains("1048576"))
    for wrong in ["1B", "K", "1.5K", "9223372036854775807K", "1KB"] {
      try await workshop.expect(64, ["get", "k", "--offset", wrong])
    }
    try await workshop.expect(0, ["init", "short", "--chunk-size", "4K"])
    struct Created: Decodable { var chunkSize: Int }
    #expect(
      try await workshop.expect(0, ["init", "other", "--chunk-size", "4KiB", "--json"]).json(Created.self)
        .first?
        .chunkSize == 4_096)
    // The option is understood: what is wrong is that a folder has no such cache.
    #expect(
      try await workshop.expect(64, ["list", "--pack-cache", "64M"]).errors.contains(
        "for a store in a bucket"))
  }

  @Test("a lifetime is a span of time with a unit, or seconds")
  func durations() async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    struct Cache: Decodable {
      struct Limits: Decodable { var lifetimeSeconds: Double? }
      var limits: Limits
    }
    for (typed, seconds) in [
      ("90s", 90), ("30m", 1_800), ("2h", 7_200), ("1d", 86_400), ("45", 45), ("0.5m", 30),
    ] {
      let set = try await workshop.expect(0, ["cache", "set-limit", "16M", "--lifetime", typed, "--json"])
      #expect(try set.json(Cache.self).first?.limits.lifetimeSeconds == Double(seconds), "\(set.text)")
    }
    try await workshop.expect(64, ["watch", "--interval", "2d"])
    try await workshop.expect(64, ["watch", "--interval", "0.01s"])
  }

  @Test("times are local for a reader, UTC with --utc and in JSON")
  func times() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: Data("x".utf8))
    let zone = ["TZ": "XXX-5:30"]
    let line = try #require(try await workshop.expect(0, ["list", "--json"]).json(ListLine.self).first)
    #expect(line.created.hasSuffix("Z"))
    #expect(
      try await workshop.run(["list", "--json"], environment: zone).json(ListLine.self).first?.created
        == line.created)
    let format = DateFormatter()
    format.locale = Locale(identifier: "en_US_POSIX")
    format.timeZone = TimeZone(secondsFromGMT: 19_800)
    format.dateFormat = "yyyy-MM-dd HH:mm:ss.SSS"
    let parser = ISO8601DateFormatter()
    parser.formatOptions = [.withInternetDateTime, .withFractionalSeconds]
    let local = format.string(from: try #require(parser.date(from: line.created))) + " +05:30"
    for command in [["list"], ["versions", "k"], ["info", "k"], ["why", "k"]] {
      #expect(try await workshop.run(command, environment: zone).text.contains(local), "\(command): \(local)")
      let utc = try await workshop.run(command + ["--utc"], environment: zone).text
      #expect(utc.contains(line.created) && !utc.contains("+05:30"), "\(command)")
    }
    #expect(try await workshop.run(["list"], environment: ["TZ": "XXX+3"]).text.contains(" -03:00 "))
  }

  @Test("a time with milliseconds is not the end of its second")
  func milliseconds() async throws {
    let workshop = try await Workshop()
    // Several of them are put within a second.
    for number in 0..<8 {
      try await workshop.expect(0, ["put", "k", "--archive"], input: Data("\(number)".utf8))
    }
    struct Line: Decodable { var digest: String, created: String }
    let versions = try await workshop.expect(0, ["versions", "k", "--json"]).json(Line.self)
    #expect(versions.count == 8 && Set(versions.map(\.created)).count == 8)
    for version in versions {
      try await workshop.expect(0, ["restore", "k", "--at", version.created])
      let current = try await workshop.expect(0, ["versions", "k", "--json"]).json(Line.self).first
      #expect(current?.digest == version.digest)
    }
  }

  @Test("a version is named by its first digits, if they are enough")
  func shortIDs() async throws {
    let workshop = try await Workshop()
    for text in ["one", "two"] {
      try await workshop.expect(0, ["put", "k", "--archive"], input: Data(text.utf8))
    }
    struct Line: Decodable { var version: String }
    let ids = try await workshop.expect(0, ["versions", "k", "--json"]).json(Line.self).map(\.version)
    #expect(ids.count == 2)
    let commonCount = zip(ids[0], ids[1]).prefix { $0 == $1 }.count
    let short = ids.map { String($0.prefix(max(6, commonCount + 1))) }
    #expect(try await workshop.expect(0, ["get", "k", "--version", short[1]]).text == "one")
    #expect(try await workshop.expect(0, ["get", "k", "--version", short[0].uppercased()]).text == "two")
    #expect(try await workshop.expect(0, ["info", "k", "--version", short[1]]).text.contains(ids[1]))
    if commonCount >= 6 {
      let both = String(ids[0].prefix(commonCount))
      for command in [["get", "k", "--version", both], ["delete", "k", "--if-version", both]] {
        let outcome = try await workshop.expect(64, command)
        #expect(ids.allSatisfy(outcome.errors.contains) && outcome.errors.contains("more digits"))
      }
    }
    for missing in ["ffffff", "12345", "nonsense"] {
      let outcome = try await workshop.expect(3, ["get", "k", "--version", missing])
      #expect(outcome.errors.contains("has no version \(missing)"))
    }
    try await workshop.expect(5, ["put", "k", "--if-version", "ffffff"], input: Data("x".utf8))
    try await workshop.expect(5, ["put", "k", "--if-version", short[1]], input: Data("x".utf8))
    try await workshop.expect(64, ["put", "k", "--if-version", "fffff"], input: Data("x".utf8))
    try await workshop.expect(0, ["put", "k", "--if-version", short[0]], input: Data("three".utf8))
    #expect(try await workshop.expect(0, ["get", "k"]).text == "three")
  }
}
