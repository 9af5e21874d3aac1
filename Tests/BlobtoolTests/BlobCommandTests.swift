import Foundation
import Testing

struct PutLine: Decodable {
  var key: String
  var version: String
  var digest: String
  var byteCount: Int64
  var newByteCount: Int64
  var storedByteCount: Int64
}

struct ListLine: Decodable, Equatable {
  var key: String
  var byteCount: Int64
  var digest: String
  var version: String
  var versionCount: Int
  var created: String
}

struct VersionLine: Decodable {
  var key: String
  var version: String
  var digest: String
  var byteCount: Int64
  var created: String
}

/// `put`, `get`, `list`, `versions`, `info`, `delete`, `keep`.
@Suite struct BlobCommandTests {
  @Test(
    "put prints what b3sum prints, and get gives the bytes back", arguments: [0, 1, 1_000, 65_536, 3_000_001])
  func roundTrip(_ byteCount: Int) async throws {
    let workshop = try await Workshop()
    let bytes = noise(byteCount, seed: 7)
    let file = try workshop.write(bytes, to: "plain")
    let outcome = try await workshop.expect(0, ["put", "k", file, "--json"])
    #expect(
      try outcome.fields() == [
        "key", "version", "digest", "byteCount", "created", "newByteCount", "storedByteCount",
      ])
    let put = try #require(try outcome.json(PutLine.self).first)
    #expect(put.byteCount == byteCount)
    let sum = try await workshop.shell("b3sum --no-names plain")
    if sum.status == 0 { #expect(put.digest == "blake3:\(sum.lines[0])") }
    #expect(try await workshop.expect(0, ["get", "k"]).bytes == bytes)
    #expect(try await workshop.expect(0, ["get", "--digest", put.digest]).bytes == bytes)
    #expect(
      try await workshop.expect(0, ["get", "--digest", String(put.digest.dropFirst(7))]).bytes == bytes)
    #expect(try await workshop.expect(0, ["get", "k", "--version", put.version]).bytes == bytes)
    let again = try #require(
      try await workshop.expect(0, ["put", "k2", "-", "--json"], input: bytes).json(PutLine.self).first)
    #expect(again.digest == put.digest)
    #expect(again.newByteCount == 0)
  }

  @Test("what is put from standard input is encoded against the version before")
  func similarInput() async throws {
    struct InformationLine: Decodable {
      var basedChunks: Int
      var storedByteCount: Int
    }
    let workshop = try await Workshop()
    var text = noise(300, seed: 9).map { 97 + $0 % 26 }
    try await workshop.expect(0, ["put", "k", "-", "--archive"], input: Data(text))
    text[150] = 0x2e
    try await workshop.expect(0, ["put", "k", "-", "--archive"], input: Data(text))
    let information = try await workshop.expect(0, ["info", "k", "--json"]).json(InformationLine.self)
    #expect(information.first?.basedChunks == 1)
    #expect(information.first?.storedByteCount ?? .max < 60)
    #expect(try await workshop.expect(0, ["get", "k"]).bytes == Data(text))
  }

  @Test("put and delete under a condition end with 5, change nothing and name the current version")
  func conditions() async throws {
    struct Refusal: Decodable {
      var key: String
      var current: String?
    }
    let workshop = try await Workshop()
    let first = try #require(
      try await workshop.expect(0, ["put", "k", "--if-absent", "--json"], input: Data("one".utf8))
        .json(PutLine.self).first)
    let second = try #require(
      try await workshop.expect(
        0, ["put", "k", "--archive", "--if-version", first.version, "--json"], input: Data("two".utf8)
      ).json(PutLine.self).first)
    for command in [
      ["put", "k", "--if-absent"], ["put", "k", "--if-version", first.version],
      ["delete", "k", "--if-absent"], ["delete", "k", "--if-version", first.version],
    ] {
      let refused = try await workshop.expect(5, command, input: Data("three".utf8))
      #expect(refused.errors.contains(second.version), "\(command)")
      let json = try await workshop.expect(5, command + ["--json"], input: Data("three".utf8))
      let refusal = try #require(try json.json(Refusal.self).first)
      #expect((refusal.key, refusal.current ?? "") == ("k", second.version))
    }
    #expect(try await workshop.expect(0, ["get", "k"]).text == "two")
    #expect(try await workshop.expect(0, ["delete", "k", "--dry-run"]).text.contains("1 key"))
    for text in ["９９９９９９", "99999g", "99999"] {
      try await workshop.expect(64, ["put", "k", "--if-version", text], input: Data("no".utf8))
      try await workshop.expect(64, ["delete", "k", "--if-version", text])
    }
    try await workshop.expect(0, ["delete", "k", "--if-version", second.version])
    try await workshop.expect(0, ["delete", "k", "--if-absent"])
    let gone = try await workshop.expect(
      5, ["put", "k", "--if-version", second.version, "--json"], input: Data())
    #expect(try gone.fields() == ["key", "current"], "a key that is absent has a null")
    #expect(try #require(try gone.json(Refusal.self).first).current == nil)
    try await workshop.expect(3, ["get", "k"])
    for command in [
      ["put", "k", "--if-absent", "--if-version", first.version], ["delete", "a", "b", "--if-absent"],
      ["delete", "--prefix", "k", "--if-absent"], ["put", "k", "--if-version", "nonsense"],
    ] { try await workshop.expect(64, command, input: Data()) }
  }

  @Test("a mebibyte goes through a pipe both ways")
  func pipe() async throws {
    let workshop = try await Workshop()
    try workshop.write(noise(1 << 20, seed: 8), to: "plain")
    let outcome = try await workshop.shell(
      "set -eo pipefail; cat plain | $TOOL put k - --progress json; $TOOL get k | cat | cmp - plain")
    #expect(outcome.status == 0, "\(outcome.errors)")
  }

  @Test("a pipe that another program has made non-blocking gets all bytes")
  func nonBlockingPipe() async throws {
    let workshop = try await Workshop()
    try workshop.write(noise(4 << 20, seed: 9), to: "plain")
    try await workshop.expect(0, ["put", "k", "plain"])
    let outcome = try await workshop.shell(
      """
      set -o pipefail
      perl -e 'use Fcntl; fcntl(STDOUT, F_SETFL, O_WRONLY | O_NONBLOCK); exec @ARGV' $TOOL get k | cmp - plain
      """)
    #expect(outcome.status == 0, "\(outcome.errors)")
    // A message that is longer than a pipe holds.
    let message = try await workshop.shell(
      """
      word=$(printf %0120000d 0)
      perl -e 'use Fcntl; fcntl(STDERR, F_SETFL, O_WRONLY | O_NONBLOCK); exec @ARGV' $TOOL $word 2>&1 | wc -c
      $TOOL $word 2>&1 | wc -c
      """)
    #expect(Set(message.lines).count == 1, "\(message.text)")
  }

  @Test("a reader that has had enough is no failure")
  func readerGone() async throws {
    let workshop = try await Workshop()
    try workshop.write(noise(4 << 20, seed: 9), to: "plain")
    try await workshop.expect(0, ["put", "k", "plain"])
    let outcome = try await workshop.shell("set -o pipefail; $TOOL get k | head -c 10 | wc -c")
    #expect(outcome.status == 0)
    #expect(outcome.errors.isEmpty)
    #expect(outcome.text.trimmingCharacters(in: .whitespacesAndNewlines) == "10")
  }

  @Test("a standard output that cannot be written is a failure", arguments: [">/dev/full", ">&-"])
  func badOutput(_ redirection: String) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: noise(100, seed: 1))
    for command in ["get k", "list", "stats --json"] {
      let outcome = try await workshop.shell("$TOOL \(command) \(redirection)")
      #expect(outcome.status == 1)
      #expect(outcome.errors.contains("standard output"))
    }
    try await workshop.expect(0, ["verify"])
  }

  @Test("a standard input that cannot be read is a failure in one sentence")
  func unreadableInput() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell("$TOOL put k - 0>other")
    #expect(outcome.status == 1)
    #expect(outcome.errors.hasPrefix("blobtool: Cannot read standard input: "), "\(outcome.errors)")
    #expect(outcome.errors.count { $0 == "\n" } == 1)
    try await workshop.expect(3, ["get", "k"])
  }

  @Test(
    "ranges are clamped at the end",
    arguments: [
      (0, nil, 0..<100), (10, 20, 10..<30), (90, 50, 90..<100), (100, 5, 100..<100), (0, 0, 0..<0),
      (99, .max, 99..<100),
    ] as [(Int, Int?, Range<Int>)])
  func ranges(_ offset: Int, _ length: Int?, _ range: Range<Int>) async throws {
    let workshop = try await Workshop()
    let bytes = noise(100, seed: 2)
    try await workshop.expect(0, ["put", "k"], input: bytes)
    let options = ["--offset", "\(offset)"] + (length.map { ["--length", "\($0)"] } ?? [])
    #expect(try await workshop.expect(0, ["get", "k"] + options).bytes == bytes.subdata(in: range))
  }

  @Test(
    "what is missing is 3, or 1 where the place is wrong, and named",
    arguments: [
      (["get", "nope"], 3, "nope"), (["get", "k", "--version", "x"], 3, "x"),
      (["versions", "nope"], 3, "nope"),
      (["get", "k", "--version", "00000000000000000000000000000001"], 3, "00000001"),
      (["info", "nope"], 3, "nope"),
      (["get", "--digest", "blake3:" + String(repeating: "0", count: 64)], 3, "blake3:000"),
      (["get", "--digest", "sha256:" + String(repeating: "0", count: 64)], 3, "sha256:000"),
      (["delete", "nope"], 3, "nope"), (["delete", "--prefix", "nope/"], 3, "nope/"),
      (["export", "nope/", "out"], 3, "nope/"), (["keep", "--up-to", "1", "nope"], 3, "nope"),
      (["get", "k", "--offset", "4"], 1, "4"), (["put", "x", "missing-file"], 1, "missing-file"),
      (["put", "x", "."], 1, "regular file"), (["get", "k", "-o", "no/such/folder"], 1, "no/such/folder"),
      (["put", String(repeating: "k", count: 4_097)], 64, "4096"),
      (["get", "k", "--version", "01"], 3, "6 digits"),
      (["import", "missing-file"], 1, "missing-file"),
    ] as [([String], Int32, String)])
  func missing(_ arguments: [String], _ status: Int32, _ name: String) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: Data("abc".utf8))
    let outcome = try await workshop.expect(status, arguments)
    #expect(outcome.errors.hasPrefix("blobtool: "))
    #expect((outcome.errors + outcome.text).contains(name))
    #expect(try await workshop.expect(0, ["list", "--json"]).json(ListLine.self).map(\.key) == ["k"])
  }

  @Test("nothing is written into the store's own folder")
  func outputInStore() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: Data("new".utf8))
    _ = try await workshop.shell("ln -s store/packs link")
    for file in ["store/file", "store/census", "link/file"] {
      for command in [["get", "k"], ["report"]] {
        let outcome = try await workshop.expect(1, command + ["-o", file])
        #expect(outcome.errors.contains("\(file) belongs to the store itself"))
      }
    }
    try await workshop.expect(0, ["verify"])
    try await workshop.expect(0, ["get", "k", "-o", "store-file"])
  }

  @Test("get -o replaces a file whole, and a failed one leaves the old")
  func outputFile() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: Data("new".utf8))
    try workshop.write(Data("old".utf8), to: "out/file")
    try await workshop.expect(3, ["get", "nope", "-o", "out/file"])
    #expect(workshop.contents("out/file") == Data("old".utf8))
    try await workshop.expect(0, ["get", "k", "-o", "out/file"])
    #expect(workshop.contents("out/file") == Data("new".utf8))
    #expect(try FileManager.default.contentsOfDirectory(atPath: workshop.path("out")) == ["file"])
    #expect(try await workshop.shell("$TOOL get k -o /dev/null && test -c /dev/null").status == 0)
    // A link is followed: what it points to is replaced.
    let linked = try await workshop.shell(
      "printf old > out/file && ln -s file out/link && $TOOL get k -o out/link && test -L out/link")
    #expect(linked.status == 0)
    #expect(workshop.contents("out/file") == Data("new".utf8))
  }

  @Test(
    "get -o of a damaged version leaves the file as it was, and nothing beside it", arguments: [true, false])
  func damagedOutput(isThere: Bool) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: noise(3_000_000, seed: 12))
    let hurt = try await workshop.shell(
      """
      mkdir out && pack=$(ls -S store/packs/*.pack | head -1)
      printf '\\377\\000\\377\\000' | dd of=$pack bs=1 seek=2000000 conv=notrunc status=none
      """)
    #expect(hurt.status == 0)
    if isThere { try workshop.write(Data("old".utf8), to: "out/file") }
    try await workshop.expect(4, ["get", "k", "-o", "out/file"])
    #expect(
      try FileManager.default.contentsOfDirectory(atPath: workshop.path("out")) == (isThere ? ["file"] : []))
    #expect(workshop.contents("out/file") == (isThere ? Data("old".utf8) : nil))
    // The rest can be had. In the pack the chunks lie in the order in which threads finished them.
    let content = noise(3_000_000, seed: 12)
    var readCount = 0
    for offset in stride(from: 0, to: content.count, by: 500_000) {
      let range = ["--offset", "\(offset)", "--length", "100000"]
      let outcome = try await workshop.run(["get", "k"] + range + ["-o", "out/part\(offset)"])
      let part = workshop.contents("out/part\(offset)")
      #expect(part == (outcome.status == 0 ? content[offset..<offset + 100_000] : nil))
      readCount += outcome.status == 0 ? 1 : 0
    }
    #expect(readCount >= 4)
  }

  @Test("keys are bytes, never paths, and listed in byte order")
  func keys() async throws {
    let workshop = try await Workshop()
    let keys = ["a", "a/b", "../x", "A", "ä", "-", "a b\nc", String(repeating: "k", count: 4_096)]
    for key in keys { try await workshop.expect(0, ["put", "--", key, "-"], input: Data(key.utf8)) }
    let outcome = try await workshop.expect(0, ["list", "--json"])
    #expect(try outcome.fields() == ["key", "byteCount", "digest", "version", "versionCount", "created"])
    let listed = try outcome.json(ListLine.self)
    #expect(listed.map(\.key) == keys.sorted { Array($0.utf8).lexicographicallyPrecedes(Array($1.utf8)) })
    #expect(
      try await workshop.expect(0, ["list", "a", "--json"]).json(ListLine.self).map(\.key) == ["a", "a/b"])
    let bytes = ["list", "--prefix-bytes", "a", "--json"]
    #expect(try await workshop.expect(0, bytes).json(ListLine.self).count == 3)
    #expect(listed.allSatisfy { $0.created.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil })
    for key in keys { #expect(try await workshop.expect(0, ["get", "--", key]).bytes == Data(key.utf8)) }
    // A line break in a key is made visible.
    #expect(try await workshop.expect(0, ["list"]).lines.count == keys.count)
  }

  @Test("put drops the version before, put --archive keeps it")
  func history() async throws {
    let workshop = try await Workshop()
    for (text, options) in [("1", []), ("2", ["--archive"]), ("3", ["--archive"]), ("4", [])] {
      try await workshop.expect(0, ["put", "k"] + options, input: Data(text.utf8))
    }
    let outcome = try await workshop.expect(0, ["versions", "k", "--json"])
    #expect(try outcome.fields() == ["key", "version", "digest", "byteCount", "created"])
    let versions = try outcome.json(VersionLine.self)
    var texts: [String] = []
    for version in versions {
      texts.append(try await workshop.expect(0, ["get", "k", "--version", version.version]).text)
    }
    #expect(texts == ["4", "2", "1"])
    #expect(try await workshop.expect(0, ["list", "--json"]).json(ListLine.self)[0].versionCount == 3)
    let kept = try await workshop.expect(0, ["keep", "--up-to", "1", "k", "--json"])
    #expect(kept.text == #"{"keys":1,"versionsDropped":1}"# + "\n")
    #expect(try await workshop.expect(0, ["versions", "k"]).lines.count == 2)
    try await workshop.expect(3, ["get", "k", "--version", versions[2].version])
  }

  @Test("delete drops keys with all versions, by name and by prefix")
  func delete() async throws {
    let workshop = try await Workshop()
    for key in ["a", "b/1", "b/2", "c"] {
      try await workshop.expect(0, ["put", key], input: Data("1".utf8))
      try await workshop.expect(0, ["put", key, "--archive"], input: Data("2".utf8))
    }
    #expect(
      try await workshop.expect(0, ["delete", "a", "--prefix", "b/", "--json"]).text == "{\"keys\":3}\n")
    try await workshop.expect(3, ["get", "a"])
    try await workshop.expect(3, ["delete", "nope", "c"])
    #expect(try await workshop.expect(0, ["list"]).bytes.isEmpty)
  }

  @Test("delete and keep do what they can, and are 3 for a key or a prefix that is not there")
  func missingBesides() async throws {
    let workshop = try await Workshop()
    for key in ["a", "b/1", "b/2", "c"] {
      for text in ["1", "2"] {
        try await workshop.expect(0, ["put", key, "--archive"], input: Data(text.utf8))
      }
    }
    let prefix = try await workshop.expect(3, ["delete", "a", "--prefix", "nope/", "--json"])
    #expect(prefix.text == #"{"keys":1}"# + "\n")
    #expect(prefix.errors.contains("nope/"))
    let key = try await workshop.expect(3, ["delete", "nope", "--prefix", "b/", "--json"])
    #expect(key.text == #"{"keys":2}"# + "\n")
    #expect(key.errors.contains("nope"))
    let kept = try await workshop.expect(3, ["keep", "--up-to", "0", "nope", "c", "--json"])
    #expect(kept.text == #"{"keys":1,"versionsDropped":1}"# + "\n")
    #expect(kept.errors.contains("nope"))
    let left = try await workshop.expect(0, ["list", "--json"]).json(ListLine.self)
    #expect(left.map(\.key) == ["c"])
    #expect(left.map(\.versionCount) == [1])
  }

  @Test("info tells how a version is stored")
  func information() async throws {
    struct Line: Decodable {
      var key: String
      var version: String
      var digest: String
      var byteCount: Int64
      var chunks: Int
      var codecs: [String: Int]
      var storedByteCount: Int64
      var exclusiveByteCount: Int64
      var created: String
    }
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k", "--codec", "zlib"], input: Data(repeating: 65, count: 50_000))
    let outcome = try await workshop.expect(0, ["info", "k", "--json"])
    #expect(try outcome.fields().count == 11)
    let line = try #require(try outcome.json(Line.self).first)
    #expect(line.codecs.keys.sorted() == ["zlib"])
    #expect(line.codecs["zlib"] == line.chunks)
    #expect(line.exclusiveByteCount == line.storedByteCount)
    try await workshop.expect(0, ["put", "k2", "-"], input: Data(repeating: 65, count: 50_000))
    #expect(
      try await workshop.expect(0, ["info", "k", "--json"]).json(Line.self).first?.exclusiveByteCount == 0)
  }
}
