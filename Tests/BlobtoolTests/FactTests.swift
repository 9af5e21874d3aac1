import Foundation
import Testing

/// What commands say of the same thing is the same, and true.
@Suite struct FactTests {
  private struct InformationLine: Decodable {
    var key: String
    var version: String
    var digest: String
    var byteCount: Int64
    var codecs: [String: Int]
    var created: String
  }

  private func information(_ workshop: Workshop, _ arguments: [String]) async throws -> InformationLine {
    let outcome = try await workshop.expect(0, ["info", "--json"] + arguments)
    return try #require(try outcome.json(InformationLine.self).first)
  }

  private func put(_ workshop: Workshop, _ arguments: [String], _ bytes: Data) async throws -> PutLine {
    let outcome = try await workshop.expect(0, ["put", "--json"] + arguments, input: bytes)
    return try #require(try outcome.json(PutLine.self).first)
  }

  @Test("put, list, versions and info tell the same of a version, with its time in UTC")
  func versions() async throws {
    let workshop = try await Workshop()
    let older = try await put(workshop, ["k"], noise(5_000, seed: 1))
    let newer = try await put(workshop, ["k", "--archive"], noise(70_000, seed: 2))
    #expect(older.version != newer.version && older.digest != newer.digest)
    #expect(newer.key == "k" && newer.byteCount == 70_000 && newer.newByteCount == 70_000)
    #expect(newer.storedByteCount >= 70_000)

    let list = try await workshop.expect(0, ["list", "--json"])
    let entry = try #require(try list.json(ListLine.self).first)
    let expected = ListLine(
      key: "k", byteCount: 70_000, digest: newer.digest, version: newer.version, versionCount: 2,
      created: entry.created)
    #expect(entry == expected)
    // The time is now, in whichever zone: a quarter of an hour is the least by which zones differ.
    let elsewhere = try await workshop.run(["list", "--json"], environment: ["TZ": "Asia/Kathmandu"])
    #expect(elsewhere.text == list.text)
    let formatter = ISO8601DateFormatter()
    formatter.formatOptions = [.withInternetDateTime, .withFractionalSeconds]
    let created = try #require(formatter.date(from: entry.created))
    #expect(abs(created.timeIntervalSinceNow) < 900)

    let versions = try await workshop.expect(0, ["versions", "k", "--json"]).json(VersionLine.self)
    #expect(versions.map(\.version) == [newer.version, older.version])
    #expect(versions.map(\.digest) == [newer.digest, older.digest])
    #expect(versions.map(\.byteCount) == [70_000, 5_000])
    #expect(versions.map(\.key) == ["k", "k"])
    #expect(versions.first?.created == entry.created)

    let current = try await information(workshop, ["k"])
    #expect((current.key, current.version, current.digest) == ("k", newer.version, newer.digest))
    #expect(current.byteCount == 70_000 && current.created == entry.created)
    let archived = try await information(workshop, ["k", "--version", older.version])
    #expect((archived.key, archived.version, archived.digest) == ("k", older.version, older.digest))
    #expect(archived.byteCount == 5_000 && archived.created == versions.last?.created)
    for version in ["x", "00000000000000000000000000000001"] {
      #expect(
        try await workshop.expect(3, ["info", "k", "--version", version]).errors.contains("no version"))
    }
  }

  @Test("get tells in JSON what it has written to a file, and adds nothing to bytes on standard output")
  func written() async throws {
    struct Line: Decodable {
      var key: String?
      var digest: String
      var offset: Int64
      var byteCount: Int64
      var path: String
    }
    let workshop = try await Workshop()
    let bytes = noise(1_000, seed: 3)
    let digest = try await put(workshop, ["k"], bytes).digest
    #expect(try await workshop.expect(0, ["get", "k", "--json"]).bytes == bytes)
    #expect(try await workshop.expect(0, ["get", "k", "--json", "-o", "-"]).bytes == bytes)
    let range = ["--offset", "10", "--length", "20"]
    let outcome = try await workshop.expect(0, ["get", "k", "-o", "out", "--json"] + range)
    #expect(try outcome.fields() == ["key", "digest", "offset", "byteCount", "path"])
    let line = try #require(try outcome.json(Line.self).first)
    #expect((line.key ?? "", line.digest, line.path) == ("k", digest, "out"))
    #expect(line.offset == 10 && line.byteCount == 20)
    #expect(workshop.contents("out") == bytes[10..<30])
    let named = try await workshop.expect(0, ["get", "--digest", digest, "-o", "out", "--json"])
    #expect(try named.fields() == ["digest", "offset", "byteCount", "path"])
    #expect(workshop.contents("out") == bytes)
  }

  @Test("what -o replaces keeps its permissions, whatever the umask; the longest name is taken")
  func outputFile() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: Data("new".utf8))
    let outcome = try await workshop.shell(
      """
      umask 022; mkdir out
      for mode in 600 640 664 755 777; do
        printf old > out/$mode; chmod $mode out/$mode; $TOOL get k -o out/$mode && stat -c %a out/$mode
      done
      printf old > out/page; chmod 664 out/page; ln -s page out/link
      $TOOL report -o out/link && stat -c %a out/page && head -c 9 out/page && echo
      $TOOL get k --output out/plain && stat -c %a out/plain
      long=$(printf 'n%.0s' {1..255}); $TOOL get k -o out/$long && cat out/$long && echo
      ls -A out | wc -l
      """)
    #expect(
      outcome.lines.map { $0.trimmingCharacters(in: .whitespaces) } == [
        "600", "640", "664", "755", "777", "664", "<!doctype", "644", "new", "9",
      ])
    #expect(outcome.errors.isEmpty)
    #expect(workshop.contents("out/600") == Data("new".utf8))
  }

  @Test("digits alone are of the store's algorithm")
  func digits() async throws {
    let workshop = try await Workshop(options: ["--digest", "sha256"])
    let bytes = noise(3_000, seed: 4)
    try workshop.write(bytes, to: "plain")
    let digest = try await put(workshop, ["k", "plain"], Data()).digest
    let sum = try await workshop.shell("sha256sum plain").text.prefix(64)
    #expect(digest == "sha256:\(sum)")
    #expect(try await workshop.expect(0, ["get", "--digest", digest]).bytes == bytes)
    #expect(try await workshop.expect(0, ["get", "--digest", String(sum)]).bytes == bytes)
    #expect(try await workshop.expect(0, ["why", String(sum)]).text.contains("held by"))
    try await workshop.expect(3, ["get", "--digest", "blake3:\(sum)"])
  }

  @Test("put follows a link that it is given, and reads a pipe that has a path")
  func sources() async throws {
    let workshop = try await Workshop()
    let bytes = noise(700_000, seed: 5)
    try workshop.write(bytes, to: "plain")
    let outcome = try await workshop.shell(
      """
      ln -s plain link; mkdir folder; ln -s ../plain folder/link
      $TOOL put a link && $TOOL put b folder/link && $TOOL put c <(cat plain)
      """)
    #expect(outcome.status == 0, "\(outcome.errors)")
    for key in ["a", "b", "c"] { #expect(try await workshop.expect(0, ["get", key]).bytes == bytes) }
  }

  @Test("import takes another codec, and with --force reads what seems unchanged")
  func importOptions() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data(repeating: 66, count: 20_000), to: "tree/a")
    try await workshop.expect(0, ["import", "tree", "--codec", "zlib"])
    #expect(try await information(workshop, ["a"]).codecs.keys.sorted() == ["zlib"])
    for (options, newCount) in [([], 0), (["--force"], 1)] as [([String], Int)] {
      let outcome = try await workshop.expect(0, ["import", "tree", "--json"] + options)
      let line = try #require(try outcome.json(ImportLine.self).first)
      #expect((line.files, line.newFiles, line.unchangedFiles) == (1, newCount, 1 - newCount))
      #expect(line.byteCount == 20_000 && line.newByteCount == 0)
      #expect(line.duplicateByteCount == 20_000)
    }
  }

  @Test("keep --prefix leaves the versions of other keys alone")
  func keepOfPrefix() async throws {
    let workshop = try await Workshop()
    for key in ["a", "b/1", "b/2", "c"] {
      for text in ["1", "2", "3"] {
        try await workshop.expect(0, ["put", key, "--archive"], input: Data(text.utf8))
      }
    }
    let kept = try await workshop.expect(0, ["keep", "--up-to", "1", "--prefix", "b/", "--json"])
    #expect(kept.text == #"{"keys":2,"versionsDropped":2}"# + "\n")
    let left = try await workshop.expect(0, ["list", "--json"]).json(ListLine.self)
    #expect(left.map(\.key) == ["a", "b/1", "b/2", "c"])
    #expect(left.map(\.versionCount) == [3, 2, 2, 3])
  }

  @Test("delete --dry-run says what the command would, and drops nothing")
  func dryDeletion() async throws {
    let workshop = try await Workshop()
    for key in ["a", "b/1", "b/2", "c"] { try await workshop.expect(0, ["put", key], input: Data(key.utf8)) }
    let cases: [(arguments: [String], count: Int, status: Int32)] = [
      (["a", "b/1", "--prefix", "b/"], 3, 0), (["--all"], 4, 0), (["nope", "a"], 1, 3),
      (["a", "--prefix", "nope/"], 1, 3), (["--prefix", "nope/"], 0, 3), (["--prefix", "b/"], 2, 0),
    ]
    for (arguments, count, status) in cases {
      let outcome = try await workshop.expect(status, ["delete", "--dry-run", "--json"] + arguments)
      #expect(outcome.text == #"{"dryRun":true,"keys":\#(count)}"# + "\n", "\(arguments)")
      #expect(outcome.errors.contains("nope") == (status == 3), "\(arguments)")
    }
    #expect(try await workshop.expect(0, ["list"]).lines.count == 4)
    // A prefix counts as found also when every key with it is named as well.
    let named = try await workshop.expect(0, ["delete", "b/1", "b/2", "--prefix", "b/", "--json"])
    #expect(named.text == #"{"keys":2}"# + "\n")
    #expect(
      try await workshop.expect(0, ["list", "--json"]).json(ListLine.self).map(\.key) == ["a", "c"])
    try await workshop.expect(0, ["delete", "--all"])
    #expect(try await workshop.expect(0, ["delete", "--all", "--json"]).text == #"{"keys":0}"# + "\n")
  }

  private struct Numbers: Decodable {
    var keys: Int
    var versions: Int
    var blobs: Int
    var chunks: Int
    var packs: Int
    var plainByteCount: Int
    var uniqueByteCount: Int
    var storedByteCount: Int
    var garbageByteCount: Int
    var diskByteCount: Int
    var usesSimilarity: Bool
    var baseByteCount: Int
    var deduplicationSavedByteCount: Int
    var codecSavedByteCount: Int
    var similaritySavedByteCount: Int
  }

  @Test("stats counts each thing as what it is, and says the same to a monitor")
  func statistics() async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    let one = noise(200_000, seed: 6)
    for (key, bytes) in [("a", one), ("b", one), ("b", Data(repeating: 65, count: 5_000))] {
      try await workshop.expect(0, ["put", key, "--archive"], input: bytes)
    }
    try await workshop.expect(0, ["put", "gone"], input: noise(50_000, seed: 7))
    try await workshop.expect(0, ["delete", "gone"])
    let numbers = try #require(
      try await workshop.expect(0, ["stats", "--json"]).json(Numbers.self).first)
    #expect((numbers.keys, numbers.versions, numbers.blobs) == (2, 3, 2))
    #expect(numbers.plainByteCount == 405_000)
    #expect(numbers.uniqueByteCount == 205_000)
    #expect(numbers.deduplicationSavedByteCount == 200_000)
    #expect(200_000..<204_000 ~= numbers.storedByteCount)
    #expect(50_000..<60_000 ~= numbers.garbageByteCount)
    #expect(4_000..<5_000 ~= numbers.codecSavedByteCount)
    #expect(numbers.diskByteCount > 250_000)
    #expect(!numbers.usesSimilarity && numbers.similaritySavedByteCount == 0)

    var samples: [String: Int] = [:]
    for line in try await workshop.expect(0, ["stats", "--prometheus"]).lines where !line.hasPrefix("#") {
      let match = try #require(
        line.wholeMatch(of: /blobstorage_([a-z_]+)\{store="[^"]*"(?:,by="([a-z]+)")?\} (\d+)/))
      samples["\(match.1)\(match.2.map { " \($0)" } ?? "")"] = Int(match.3)
    }
    // What the files take on the medium may differ from one moment to the next.
    let diskByteCount = samples.removeValue(forKey: "disk_bytes")
    #expect(diskByteCount ?? 0 > 250_000)
    let expected = [
      "keys": 2, "versions": 3, "blobs": 2, "chunks": numbers.chunks, "packs": numbers.packs,
      "plain_bytes": 405_000, "unique_bytes": 205_000, "stored_bytes": numbers.storedByteCount,
      "base_bytes": numbers.baseByteCount, "garbage_bytes": numbers.garbageByteCount,
      "saved_bytes deduplication": 200_000, "saved_bytes codecs": numbers.codecSavedByteCount,
      "saved_bytes similarity": 0,
    ]
    #expect(samples == expected)
  }

  @Test("verify --quick reads no chunk, and a repair of what no key needs is told once")
  func neededByNobody() async throws {
    struct Verification: Decodable { var depth: String; var byteCount: Int64 }
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "other"], input: Data("fine".utf8))
    try await workshop.expect(0, ["put", "k"], input: noise(300_000, seed: 11))
    try await workshop.expect(0, ["delete", "k"])
    let hurt = try await workshop.shell(
      """
      pack=$(ls -S store/packs/*.pack | head -1)
      printf '\\377\\000\\377\\000' | dd of=$pack bs=1 seek=100000 conv=notrunc status=none
      """)
    #expect(hurt.status == 0)
    let quick = try await workshop.expect(0, ["verify", "--quick", "--json"])
    let line = try #require(try quick.json(Verification.self).first)
    #expect(line.depth == "structure" && line.byteCount == 0)
    let whole = try await workshop.expect(4, ["verify", "--blobs", "--json"])
    #expect(try whole.json(Verification.self).first?.depth == "blobs")
    let told = try await workshop.expect(4, ["repair"])
    #expect(told.errors.contains("every version can be read"))
    try await workshop.expect(0, ["repair"])
    try await workshop.expect(0, ["verify"])
    #expect(try await workshop.expect(0, ["get", "other"]).text == "fine")
  }
}
