import BlobStorageTestSupport
import Foundation
import Testing

struct ImportLine: Decodable {
  struct SkippedFile: Decodable {
    var path: String
    var reason: String
  }
  var files: Int
  var byteCount: Int64
  var newFiles: Int
  var unchangedFiles: Int
  var newByteCount: Int64
  var duplicateByteCount: Int64
  var storedByteCount: Int64
  var skipped: [SkippedFile]
  var seconds: Double
}

struct CollectionLine: Decodable {
  var packsRecompressed: Int?
  var recompressionSavedByteCount: Int64?
  var dryRun: Bool
  var chunksDeleted: Int
  var packsDeleted: Int
  var packsCompacted: Int
  var freedByteCount: Int64
  var garbageByteCount: Int64
  var seconds: Double
}

struct StatisticsLine: Decodable, Equatable {
  var keys: Int
  var versions: Int
  var blobs: Int
  var chunks: Int
  var packs: Int
  var plainByteCount: Int64
  var uniqueByteCount: Int64
  var storedByteCount: Int64
  var garbageByteCount: Int64
  var diskByteCount: Int64
}

struct VerificationLine: Decodable {
  struct Damage: Decodable {
    var digest: String?
    var pack: String
    var offset: Int64
    var keys: [String]
  }
  var blobs: Int
  var chunks: Int
  var byteCount: Int64
  var damaged: [Damage]
  var seconds: Double
}

/// `import`, `export`, `gc`, `verify`, `repair`, `stats`.
@Suite struct StoreCommandTests {
  /// A small tree with what an import may meet.
  private func makeTree(_ workshop: Workshop, fileCount: Int = 30, seed: UInt64 = 3) throws {
    for index in 0..<fileCount {
      try workshop.write(noise(index * 700, seed: seed + UInt64(index)), to: "tree/d\(index % 4)/f\(index)")
    }
    try workshop.write(Data(), to: "tree/empty")
    try workshop.write(noise(2_500_000, seed: seed), to: "tree/large")
  }

  @Test("a tree comes back as it was, times included")
  func tree() async throws {
    let workshop = try await Workshop()
    try makeTree(workshop)
    let outcome = try await workshop.expect(0, ["import", "tree", "--json"])
    #expect(
      try outcome.fields() == [
        "files", "byteCount", "newFiles", "unchangedFiles", "evictedFiles", "newByteCount",
        "duplicateByteCount",
        "storedByteCount",
        "skipped", "uncertain", "uselessPatterns", "droppedKeys", "seconds", "links", "folders", "state",
      ])
    let first = try #require(try outcome.json(ImportLine.self).first)
    #expect(first.files == 32)
    #expect(first.newFiles == 32)
    let again = try #require(
      try await workshop.expect(0, ["import", "tree", "--json"]).json(ImportLine.self).first)
    #expect(again.unchangedFiles == 32)
    #expect(again.newByteCount == 0)
    #expect(again.storedByteCount == 0)
    #expect(again.unchangedFiles == first.files)
    let forced = try #require(
      try await workshop.expect(0, ["import", "tree", "--force", "--json"]).json(ImportLine.self).first)
    #expect(forced.newByteCount == 0)
    let exported = try await workshop.expect(0, ["export", "out", "--json"])
    #expect(
      try exported.fields() == [
        "dryRun", "files", "byteCount", "unchangedFiles", "unchangedByteCount", "skipped", "damaged",
        "seconds", "links", "folders", "incompleteAttributes",
      ])
    #expect(try await workshop.shell("diff -r tree out").status == 0)
    #expect(try await workshop.shell("test $(stat -c %Y tree/large) = $(stat -c %Y out/large)").status == 0)
  }

  @Test("import takes prefixes, files, links and patterns, and leaves pipes out")
  func importing() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data("1".utf8), to: "tree/a.txt")
    try workshop.write(Data("2".utf8), to: "tree/b.log")
    try workshop.write(Data("3".utf8), to: "tree/sub/c.txt")
    _ = try await workshop.shell("ln -s a.txt tree/link; mkfifo tree/pipe")
    let planned = try #require(
      try await workshop.expect(0, ["import", "tree", "--dry-run", "--json"]).json(ImportLine.self).first)
    #expect(planned.newFiles == 3)
    #expect(try await workshop.expect(0, ["list"]).bytes.isEmpty)
    let line = try #require(
      try await workshop.expect(
        0, ["import", "tree", "tree/b.log", "--prefix", "p/", "--exclude", "*.log", "--json"]
      )
      .json(ImportLine.self).first)
    #expect(
      line.skipped.map { URL(fileURLWithPath: $0.path).lastPathComponent }.sorted() == ["pipe"])
    let keys = try await workshop.expect(0, ["list", "--json"]).json(ListLine.self).map(\.key)
    #expect(keys.filter { $0 != "p/b.log" } == ["p/a.txt", "p/link", "p/sub/c.txt"])
  }

  @Test("import --archive keeps history; a missing path is 1 after the others are done")
  func importFailure() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data("1".utf8), to: "tree/a")
    try await workshop.expect(0, ["import", "tree"])
    try workshop.write(Data("22".utf8), to: "tree/a")
    let outcome = try await workshop.expect(1, ["import", "nowhere", "tree", "--archive", "--json"])
    #expect(try outcome.json(ImportLine.self).first?.skipped.map(\.path) == ["nowhere"])
    #expect(try await workshop.expect(0, ["versions", "a"]).lines.count == 2)
  }

  @Test("export stays in its folder and overwrites nothing unless asked")
  func exporting() async throws {
    let workshop = try await Workshop()
    for key in ["../x", "ok", "p/q", "there", "/abs", "a//b"] {
      try await workshop.expect(0, ["put", key], input: Data("new".utf8))
    }
    try workshop.write(Data("old".utf8), to: "out/there")
    let outcome = try await workshop.expect(1, ["export", "out", "--json"])
    struct Line: Decodable { var files: Int; var skipped: [ImportLine.SkippedFile] }
    let line = try #require(try outcome.json(Line.self).first)
    #expect(line.files == 2)
    #expect(line.skipped.map(\.path).sorted() == ["../x", "/abs", "a//b", "there"])
    #expect(workshop.contents("x") == nil)
    #expect(workshop.contents("out/there") == Data("old".utf8))
    #expect(workshop.contents("out/ok") == Data("new".utf8))
    try await workshop.expect(0, ["export", "there", "out", "--overwrite"])
    #expect(workshop.contents("out/there") == Data("new".utf8))
    try await workshop.expect(0, ["export", "p/", "out2", "--strip", "p/"])
    #expect(workshop.contents("out2/q") == Data("new".utf8))
  }

  @Test("a store whose format version the medium has changed is damaged, and repair restores it")
  func changedVersion() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "key"], input: Data("bytes".utf8))
    let header = try #require(workshop.contents("store/store"))
    var changed = header
    changed[8] ^= 1
    try workshop.write(changed, to: "store/store")
    for arguments in [["list"], ["get", "key"], ["put", "key"], ["verify"], ["export", "out"]] {
      let outcome = try await workshop.expect(4, arguments)
      #expect(outcome.errors.contains("repair"), "\(arguments): \(outcome.errors)")
      #expect(outcome.bytes.isEmpty)
    }
    try await workshop.expect(0, ["repair"])
    #expect(workshop.contents("store/store") == header)
    #expect(try await workshop.expect(0, ["get", "key"]).bytes == Data("bytes".utf8))
  }

  @Test("gc --recompress saves what a dry run says, about, and only once")
  func recompressing() async throws {
    let workshop = try await Workshop()
    // Lines that repeat words: a codec that tries harder finds more of them.
    var random = SplitMix64(seed: 7)
    let words = (0..<500).map { _ in String(random.next() % 1_000_000, radix: 36) }
    let text = Data(
      (0..<60_000).map { _ in words[Int(random.next() % 500 * (random.next() % 500) / 500)] }
        .joined(separator: " ").utf8)
    try await workshop.expect(0, ["put", "text"], input: text)
    func collect(_ options: String...) async throws -> CollectionLine {
      try #require(
        try await workshop.expect(0, ["gc", "--json"] + options).json(CollectionLine.self).first)
    }
    let planned = try await collect("--dry-run", "--recompress")
    let done = try await collect("--recompress", "--time", "1h")
    #expect(planned.packsRecompressed == 1 && done.packsRecompressed == 1)
    let (guess, saved) = (
      try #require(planned.recompressionSavedByteCount), try #require(done.recompressionSavedByteCount)
    )
    #expect(saved > 2_000 && abs(guess - saved) < saved / 2)
    #expect(try await workshop.expect(0, ["get", "text"]).bytes == text)
    try await workshop.expect(0, ["verify"])
    #expect(try await collect("--recompress").recompressionSavedByteCount == 0)
    #expect(try await collect().packsRecompressed == 0)
    for options in [["--time", "5m"], ["--recompress", "--time", "5x"], ["--recompress", "--time", "0s"]] {
      try await workshop.expect(64, ["gc"] + options)
    }
  }

  @Test("keep, gc and verify free what is not needed, and nothing else")
  func collecting() async throws {
    let workshop = try await Workshop()
    for version in 0..<10 {
      for key in 0..<2 {
        try await workshop.expect(
          0, ["put", "k\(key)", "--archive"], input: noise(100_000, seed: UInt64(version * 2 + key)))
      }
    }
    try await workshop.expect(0, ["verify"])
    #expect(
      try await workshop.expect(0, ["keep", "--up-to", "2", "--all", "--json"]).text
        == #"{"keys":2,"versionsDropped":14}"# + "\n")
    let planned = try #require(
      try await workshop.expect(0, ["gc", "--dry-run", "--json"]).json(CollectionLine.self).first)
    let outcome = try await workshop.expect(0, ["gc", "--json"])
    #expect(
      try outcome.fields() == [
        "dryRun", "chunksDeleted", "packsDeleted", "packsCompacted", "chunksReencoded", "packsRecompressed",
        "recompressionSavedByteCount", "keysEvicted", "freedByteCount", "garbageByteCount", "copiedByteCount",
        "obstacles", "seconds",
      ])
    let done = try #require(try outcome.json(CollectionLine.self).first)
    #expect(planned.dryRun)
    #expect(!done.dryRun)
    #expect(planned.chunksDeleted == done.chunksDeleted)
    #expect(planned.freedByteCount == done.freedByteCount)
    #expect(done.freedByteCount >= 1_400_000)
    let statistics = try #require(
      try await workshop.expect(0, ["stats", "--json"]).json(StatisticsLine.self).first)
    #expect(statistics.versions == 6)
    #expect(statistics.plainByteCount == 600_000)
    #expect(statistics.diskByteCount > statistics.storedByteCount)
    let verified = try await workshop.expect(0, ["verify", "--json"])
    #expect(
      try verified.fields() == [
        "blobs", "chunks", "packs", "byteCount", "depth", "damaged", "losses", "versionsAhead", "seconds",
      ])
    #expect(try verified.json(VerificationLine.self).first?.byteCount == 600_000)
    let plannedLast = try #require(
      try await workshop.expect(0, ["gc", "--keep", "0", "--dry-run", "--json"]).json(CollectionLine.self)
        .first)
    #expect(try await workshop.expect(0, ["versions", "k0"]).lines.count == 3)
    let last = try #require(
      try await workshop.expect(0, ["gc", "--keep", "0", "--json"]).json(CollectionLine.self).first)
    #expect(last.chunksDeleted > 0)
    #expect(plannedLast.chunksDeleted == last.chunksDeleted)
    #expect(try await workshop.expect(0, ["versions", "k0"]).lines.count == 1)
    #expect(try await workshop.expect(0, ["get", "k1"]).bytes == noise(100_000, seed: 19))
  }

  @Test("without its catalog the store gives the same answers", arguments: [false, true])
  func catalogGone(_ isGarbage: Bool) async throws {
    let workshop = try await Workshop()
    try makeTree(workshop, fileCount: 8)
    try await workshop.expect(0, ["import", "tree"])
    try await workshop.expect(0, ["put", "empty", "--archive"], input: Data("more".utf8))
    let questions = [["list", "--json"], ["versions", "empty", "--json"], ["info", "large", "--json"]]
    var before: [Data] = []
    for question in questions { before.append(try await workshop.expect(0, question).bytes) }
    if isGarbage {
      let find = "find store/catalog -type f -exec sh -c 'head -c 20000 /dev/urandom > \"$1\"' - {} \\;"
      _ = try await workshop.shell(find)
    } else {
      try FileManager.default.removeItem(atPath: workshop.path("store/catalog"))
    }
    for (question, answer) in zip(questions, before) {
      #expect(try await workshop.expect(0, question).bytes == answer)
    }
    try await workshop.expect(0, ["verify"])
  }

  @Test("a loss of states, and of versions that are kept for them, can be accepted")
  func lostState() async throws {
    let workshop = try await Workshop()
    for name in ["1", "2", "3"] { try workshop.write(noise(3_000, seed: UInt64(name)!), to: "from/" + name) }
    try await workshop.expect(0, ["import", "from", "--prefix", "d"])
    let listing = try await workshop.shell("ls store/packs")
    let pack = try #require(listing.lines.first)
    try workshop.write(noise(3_000, seed: 4), to: "from/1")
    try await workshop.expect(0, ["import", "from", "--prefix", "d", "--name", "second"])
    _ = try await workshop.shell("rm store/packs/\(pack)")
    try await workshop.expect(4, ["repair"])
    let accepted = try await workshop.expect(0, ["repair", "--accept-loss"])
    #expect(accepted.text.contains("dropped: “state ") && accepted.text.contains("a state of “d/1”"))
    try await workshop.expect(0, ["verify"])
    try await workshop.expect(0, ["gc"])
    let left = try await workshop.expect(4, ["list", "--at", "second"])
    #expect(left.errors.contains("builds on") && left.errors.contains("import again"))
  }

  @Test("damage is 4, named, and healed by a repair and a second put")
  func damage() async throws {
    let workshop = try await Workshop()
    let bytes = noise(300_000, seed: 11)
    try await workshop.expect(0, ["put", "k"], input: bytes)
    try await workshop.expect(0, ["put", "other"], input: Data("fine".utf8))
    // 100,000 bytes into the pack that holds the chunks.
    let hurt = try await workshop.shell(
      """
      pack=$(ls -S store/packs/*.pack | head -1)
      printf '\\377\\000\\377\\000' | dd of="$pack" bs=1 seek=100000 conv=notrunc status=none
      """)
    #expect(hurt.status == 0)
    let read = try await workshop.expect(4, ["get", "k", "-o", "out"])
    #expect(read.errors.contains("blake3:"))
    #expect(workshop.contents("out") == nil)
    let found = try #require(
      try await workshop.expect(4, ["verify", "--json"]).json(VerificationLine.self).first)
    #expect(found.damaged.contains { $0.keys == ["k"] && $0.digest?.hasPrefix("blake3:") == true })
    try await workshop.expect(4, ["export", "exported"])
    #expect(workshop.contents("exported/other") == Data("fine".utf8))
    #expect(workshop.contents("exported/k") == nil)
    let repaired = try await workshop.expect(4, ["repair", "--json"])
    #expect(
      try repaired.fields() == [
        "keys", "packs", "damaged", "setAside", "unreadable", "dropped", "losses", "hasLaterRecords",
        "unreadableHolds",
        "seconds",
      ])
    try await workshop.expect(0, ["put", "k"], input: bytes)
    #expect(try await workshop.expect(0, ["get", "k"]).bytes == bytes)
    try await workshop.expect(0, ["verify"])
    try await workshop.expect(0, ["repair"])
  }

  @Test("verify is 4 also for damage that no key needs", arguments: ["header", "garbage", "footer"])
  func unneededDamage(_ part: String) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "other"], input: Data("fine".utf8))
    try await workshop.expect(0, ["put", "k"], input: noise(300_000, seed: 11))
    try await workshop.expect(0, ["delete", "k"])
    try await workshop.expect(0, ["verify"])
    let offsets = ["header": "60", "garbage": "100000", "footer": "$(($(wc -c < $pack) - 20))"]
    let hurt = try await workshop.shell(
      """
      pack=$(ls -S store/packs/*.pack | head -1)
      printf '\\377\\000\\377\\000' | dd of=$pack bs=1 seek=\(try #require(offsets[part])) conv=notrunc status=none
      """)
    #expect(hurt.status == 0)
    let found = try #require(
      try await workshop.expect(4, ["verify", "--json"]).json(VerificationLine.self).first)
    #expect(!found.damaged.isEmpty)
    #expect(found.damaged.allSatisfy { $0.keys.isEmpty && $0.pack.count > 0 })
    try await workshop.expect(4, ["verify"])
    #expect(try await workshop.expect(0, ["get", "other"]).text == "fine")
  }

  @Test("export is 4 if a key is damaged, also when another could not be written")
  func damagedExport() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "../x"], input: Data("outside".utf8))
    try await workshop.expect(0, ["put", "k"], input: noise(300_000, seed: 11))
    try await workshop.expect(1, ["export", "before"])
    let hurt = try await workshop.shell(
      """
      pack=$(ls -S store/packs/*.pack | head -1)
      printf '\\377\\000\\377\\000' | dd of=$pack bs=1 seek=100000 conv=notrunc status=none
      """)
    #expect(hurt.status == 0)
    let outcome = try await workshop.expect(4, ["export", "out"])
    #expect(outcome.errors.contains("not written: “../x”"))
    #expect(outcome.errors.contains("not written: “k”"))
    #expect(workshop.contents("out/k") == nil)
  }

  @Test("progress is JSON Lines on standard error, results on standard output")
  func progress() async throws {
    struct Line: Decodable {
      var phase: String; var doneByteCount: Int64; var totalByteCount: Int64; var doneCount: Int
    }
    let workshop = try await Workshop()
    try makeTree(workshop)
    let outcome = try await workshop.expect(0, ["import", "tree", "--progress", "json", "--json"])
    #expect(outcome.lines.count == 1)
    let lines = try outcome.errors.split(separator: "\n").map {
      try JSONDecoder().decode(Line.self, from: Data($0.utf8))
    }
    #expect(lines.last?.doneCount == 32)
    for style in ["plain", "bar"] {
      #expect(!(try await workshop.expect(0, ["verify", "--progress", style]).errors.isEmpty))
    }
    for style in ["auto", "none"] {
      #expect(try await workshop.expect(0, ["verify", "--progress", style]).errors.isEmpty)
    }
  }
}
