import Foundation
import Testing

/// What an import says beforehand and while it runs, and what an interrupted one leaves.
@Suite struct ImportTests {
  struct ProgressLine: Decodable {
    var phase: String
    var doneByteCount: Int64
    var totalByteCount: Int64
    var doneCount: Int
    var totalCount: Int
    var bytesPerSecond: Int64
    var secondsLeft: Double?
  }

  private func progress(_ errors: String) throws -> [ProgressLine] {
    try errors.split(separator: "\n").filter { $0.hasPrefix("{") }.map {
      try JSONDecoder().decode(ProgressLine.self, from: Data($0.utf8))
    }
  }

  /// Files of all lengths, some of them twice, that compress by half or so.
  private func makeTree(_ workshop: Workshop, fileCount: Int = 40) throws {
    for index in 0..<fileCount {
      let half = noise(300 + index * 900, seed: UInt64(index / 2 * 2))
      try workshop.write(half + Data(count: half.count), to: "tree/\(index % 3)/f\(index)")
    }
    let large = noise(1_500_000, seed: 99)
    try workshop.write(large + Data(count: 700_000) + large, to: "tree/large")
  }

  private func importLine(_ workshop: Workshop, _ options: [String] = []) async throws -> ImportLine {
    try #require(
      try await workshop.expect(0, ["import", "tree", "--json"] + options).json(ImportLine.self).first)
  }

  @Test("a plan says what the import then does, and changes nothing")
  func plan() async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    try makeTree(workshop)
    let planned = try await importLine(workshop, ["--dry-run"])
    #expect(try await workshop.expect(0, ["list"]).bytes.isEmpty)
    #expect(planned.newFiles == 41)
    #expect(planned.newByteCount + planned.duplicateByteCount == planned.byteCount)
    let done = try await importLine(workshop)
    #expect(planned.files == done.files)
    #expect(planned.byteCount == done.byteCount)
    #expect(planned.newByteCount == done.newByteCount)
    #expect(planned.duplicateByteCount == done.duplicateByteCount)
    #expect(abs(planned.storedByteCount - done.storedByteCount) < done.storedByteCount / 100)

    let again = try await importLine(workshop, ["--dry-run"])
    #expect(again.unchangedFiles == 41)
    #expect(again.storedByteCount == 0)
    let elsewhere = try await importLine(workshop, ["--dry-run", "--prefix", "copy/"])
    #expect(elsewhere.newFiles == 41)
    #expect(elsewhere.newByteCount == 0)
    // The store has the lists of chunks, too.
    let there = try await importLine(workshop, ["--prefix", "copy/"])
    #expect(abs(elsewhere.storedByteCount - there.storedByteCount) < 41 * 16)
  }

  @Test("files that have not changed are read again with --force, and else not")
  func forced() async throws {
    let workshop = try await Workshop()
    try makeTree(workshop, fileCount: 4)
    #expect(try await importLine(workshop).newFiles == 5)
    #expect(try await importLine(workshop).unchangedFiles == 5)
    #expect(try await importLine(workshop, ["--force", "--dry-run"]).unchangedFiles == 0)
    #expect(try await importLine(workshop, ["--force"]).unchangedFiles == 0)
    #expect(try await importLine(workshop).unchangedFiles == 5)
  }

  @Test("progress ends with a known total and everything done")
  func phases() async throws {
    let workshop = try await Workshop()
    try makeTree(workshop)
    for isAgain in [false, true] {
      let outcome = try await workshop.expect(0, ["import", "tree", "--json", "--progress", "json"])
      let lines = try progress(outcome.errors)
      var phases: [String] = []
      for line in lines where phases.last != line.phase { phases.append(line.phase) }
      #expect(phases == ["importing", "syncing"])
      let report = try #require(try outcome.json(ImportLine.self).first)
      #expect(report.unchangedFiles == (isAgain ? 41 : 0))
      for line in lines where line.totalCount > 0 {
        #expect(line.totalByteCount == report.byteCount && line.totalCount == 41 && line.doneCount <= 41)
      }
      let last = try #require(lines.last)
      #expect(last.doneByteCount == report.byteCount && last.doneCount == 41 && last.totalCount == 41)
    }
    let planning = try await workshop.expect(
      0, ["import", "tree", "--force", "--dry-run", "--progress", "json"])
    #expect(try progress(planning.errors).last?.phase == "planning")
  }

  @Test(
    "an import that was cut short goes on, and what it stored is not read again",
    arguments: [SIGKILL, SIGINT])
  func goesOn(_ signal: Int32) async throws {
    let workshop = try await Workshop()
    for index in 0..<60 {
      try workshop.write(noise(400_000, seed: UInt64(index)), to: "tree/f\(index)")
    }
    // Holes without an end, so that the import never ends by itself.
    let endless = try FileHandle(forWritingTo: URL(filePath: workshop.write(Data(), to: "tree/z")))
    try endless.truncate(atOffset: 1 << 42)
    try endless.close()
    let running = try await workshop.start(["import", "tree", "--progress", "json"])
    try await running.wait(for: .errors) { (errors: String) in
      errors.split(separator: "\n").contains { line in
        let line = try? JSONDecoder().decode(ProgressLine.self, from: Data(line.utf8))
        return line.map { $0.phase == "importing" && $0.doneCount > 0 } ?? false
      }
    }
    running.signal(signal)
    let outcome = try await running.outcome()
    #expect(outcome.status == (signal == SIGKILL ? -SIGKILL : 130))
    try FileManager.default.removeItem(atPath: workshop.path("tree/z"))
    let done = try await importLine(workshop)
    #expect(done.files == 60)
    #expect(done.unchangedFiles > 0)
    #expect(done.newFiles == 60 - done.unchangedFiles)
    try await workshop.expect(0, ["verify"])
    #expect(try await workshop.expect(0, ["get", "f7"]).bytes == noise(400_000, seed: 7))
  }

  @Test("an import with a file that fails is 1, and stores the others", arguments: ["missing", "too long"])
  func oneFails(_ failure: String) async throws {
    let workshop = try await Workshop()
    try workshop.write(Data("1".utf8), to: "tree/a")
    try workshop.write(Data("2".utf8), to: "tree/b")
    var arguments = ["import", "tree", "--json"]
    var prefix = ""
    if failure == "missing" {
      arguments.append("nowhere")
    } else {
      // A key has 4,096 bytes at most.
      prefix = String(repeating: "p", count: 4_094) + "/"
      try workshop.write(Data("3".utf8), to: "tree/long")
      arguments += ["--prefix", prefix]
    }
    for count in [2, 0] {
      let outcome = try await workshop.expect(1, arguments)
      let line = try #require(try outcome.json(ImportLine.self).first)
      #expect(line.files == 2)
      #expect(line.newFiles == count)
      #expect(line.skipped.count == 1)
      #expect(outcome.errors.contains("1 file could not be imported"))
    }
    #expect(try await workshop.expect(0, ["get", prefix + "a"]).text == "1")
    #expect(try await workshop.expect(0, ["get", prefix + "b"]).text == "2")
  }

  @Test("a path that is named twice is imported once")
  func twice() async throws {
    let workshop = try await Workshop()
    try makeTree(workshop, fileCount: 4)
    let outcome = try await workshop.expect(
      0, ["import", "tree", "tree/", "./tree", "--archive", "--json", "--progress", "none"])
    #expect(try outcome.json(ImportLine.self).first?.files == 5)
    #expect(try await workshop.expect(0, ["versions", "large"]).lines.count == 1)
  }

  @Test("files that would get the same key are refused, both are named, and nothing is stored")
  func collision() async throws {
    let workshop = try await Workshop()
    for name in ["A/x.jpg", "B/x.jpg", "B/y"] { try workshop.write(Data(name.utf8), to: name) }
    for more in [[], ["--dry-run"]] {
      let outcome = try await workshop.expect(64, ["import", "A", "B"] + more)
      #expect(outcome.errors.contains("A/x.jpg") && outcome.errors.contains("B/x.jpg"))
    }
    #expect(try await workshop.expect(0, ["list"]).lines.isEmpty)
    try await workshop.expect(0, ["import", "A", "--prefix", "A/"])
    try await workshop.expect(0, ["import", "B", "--prefix", "B/"])
    #expect(try await workshop.expect(0, ["list"]).lines.count == 3)
  }

  @Test("the store's own folder is left out, and is no place to export to")
  func ownFolder() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data("x".utf8), to: "tree/x")
    let around = try await workshop.expect(
      0, ["import", ".", "--exclude", "*.in", "--exclude", "*.out", "--exclude", "*.err"])
    #expect(around.errors.contains("it is the store's own folder"))
    #expect(try await workshop.expect(0, ["list"]).text.contains("tree/x"))
    #expect(try await workshop.expect(0, ["list", "store"]).lines.isEmpty)
    let named = try await workshop.expect(1, ["import", "store/packs"])
    #expect(named.errors.contains("it belongs to the store itself"))
    for folder in ["store", "store/packs", "store/new", "store/new/deep"] {
      let outcome = try await workshop.expect(1, ["export", folder])
      #expect(outcome.errors.contains("belongs to the store itself"))
      #expect(try await workshop.expect(1, ["export", folder, "--dry-run"]).errors == outcome.errors)
    }
    for key in ["store/packs/a", "store/new/b"] {
      try await workshop.expect(0, ["put", key], input: Data("x".utf8))
    }
    let planned = try await workshop.expect(1, ["export", "store/", ".", "--dry-run"])
    #expect(planned.errors.contains("“store/packs/a”") && planned.text == "Would write 0 files, 0 B.\n")
    #expect(try await workshop.expect(1, ["export", "store/", "."]).errors == planned.errors)
  }

  @Test("an import into a cache says how many of its files the cache has evicted again")
  func evicted() async throws {
    let workshop = try await Workshop()
    for index in 0..<30 {
      try workshop.write(noise(1_000_000, seed: UInt64(index)), to: "tree/f\(10 + index)")
    }
    try await workshop.expect(0, ["cache", "set-limit", "16M"])
    let outcome = try await workshop.expect(0, ["import", "tree"])
    let keptCount = try await workshop.expect(0, ["list"]).lines.count
    #expect(keptCount < 30)
    #expect(outcome.errors.contains("\(30 - keptCount) of 30 files are no longer in the cache"))
    struct Evicted: Decodable { var files: Int; var evictedFiles: Int }
    let again = try #require(
      try await workshop.expect(0, ["import", "tree", "--json"]).json(Evicted.self).first)
    let left = try await workshop.expect(0, ["list"]).lines.count
    #expect(again.files - again.evictedFiles == left)
  }

  @Test("put shows how much of its file is stored")
  func putProgress() async throws {
    let workshop = try await Workshop()
    let file = try workshop.write(noise(3_000_000, seed: 1), to: "file")
    let lines = try progress(try await workshop.expect(0, ["put", "k", file, "--progress", "json"]).errors)
    #expect(lines.last?.phase == "storing")
    #expect(lines.last?.doneByteCount == 3_000_000)
    #expect(lines.allSatisfy { $0.totalByteCount == 3_000_000 })
    let piped = try await workshop.expect(
      0, ["put", "k", "--progress", "json"], input: noise(3_000_000, seed: 1))
    #expect(try progress(piped.errors).last?.totalByteCount == 0)
  }

  @Test("keys are made of the prefix and the path or the name; what a pattern names is left out")
  func keys() async throws {
    let workshop = try await Workshop()
    for name in ["tree/a.txt", "tree/b.log", "tree/c.tmp", "tree/sub/d.log", "tree/sub/e", "tree/sub/f", "g"]
    {
      try workshop.write(Data(name.utf8), to: name)
    }
    func keys() async throws -> [String] {
      try await workshop.expect(0, ["list", "--json"]).json(ListLine.self).map(\.key)
    }
    let options = ["--exclude", "*.log", "--exclude", "sub/f", "--exclude=*.tmp"]
    try await workshop.expect(0, ["import", "tree", "g"] + options)
    #expect(try await keys() == ["a.txt", "g", "sub/e"])
    try await workshop.expect(0, ["import", "tree/sub/e", "tree/sub/d.log", "--prefix-bytes", "p-"])
    #expect(try await keys() == ["a.txt", "g", "p-d.log", "p-e", "sub/e"])
    #expect(try await workshop.expect(0, ["get", "p-d.log"]).text == "tree/sub/d.log")
    // A changed file takes the place of what was imported, unless that is to be kept.
    for (text, more, count) in [
      ("changed", [], 1), ("again", ["--archive"], 2), ("alone", ["--archive", "--no-state"], 3),
    ] as [(String, [String], Int)] {
      try workshop.write(Data(text.utf8), to: "g")
      try await workshop.expect(0, ["import", "g"] + more)
      #expect(try await workshop.expect(0, ["get", "g"]).text == text)
      #expect(try await workshop.expect(0, ["versions", "g"]).lines.count == count)
    }
  }

  @Test("ten of the pipes that are left out are named and the others counted; JSON has them all")
  func links() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data("f".utf8), to: "tree/f")
    _ = try await workshop.shell("for i in {10..22}; do mkfifo tree/l$i; done")
    let outcome = try await workshop.expect(0, ["import", "tree"])
    let errors = outcome.errors.split(separator: "\n")
    #expect(errors.count == 11)
    #expect(
      errors.prefix(10).allSatisfy { $0.hasPrefix("blobtool: skipped tree/l1") && $0.hasSuffix("pipe") })
    #expect(errors.last == "blobtool: skipped 3 more that are no files, links or folders; --json lists them")
    #expect(outcome.text.contains(/skipped +13\n/))
    let json = try await workshop.expect(0, ["import", "tree", "--json"])
    #expect(json.errors.isEmpty)
    #expect(try json.json(ImportLine.self).first?.skipped.map(\.path) == (10...22).map { "tree/l\($0)" })
  }
}
