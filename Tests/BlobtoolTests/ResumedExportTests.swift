import Foundation
import Testing

/// An export into a folder that has some of the files already.
@Suite struct ResumedExportTests {
  private struct Line: Decodable {
    var dryRun: Bool
    var files: Int
    var byteCount: Int64
    var unchangedFiles: Int
    var unchangedByteCount: Int64
    var skipped: [ImportLine.SkippedFile]
  }

  private func export(_ workshop: Workshop, _ options: [String] = [], status: Int32 = 0) async throws -> Line
  {
    try #require(
      try await workshop.expect(status, ["export", "out", "--json"] + options).json(Line.self).first)
  }

  @Test("files with the same bytes count as done, others are not touched")
  func resumed() async throws {
    let workshop = try await Workshop()
    for index in 0..<6 { try workshop.write(noise(1_000 * index, seed: UInt64(index)), to: "tree/f\(index)") }
    try workshop.write(noise(5_000_000, seed: 9), to: "tree/sub/large")
    try await workshop.expect(0, ["import", "tree"])
    try await workshop.expect(0, ["put", "piped"], input: Data("piped".utf8))
    let planned = try await export(workshop, ["--dry-run"])
    #expect(planned.dryRun && planned.files == 8 && planned.unchangedFiles == 0)
    #expect(!FileManager.default.fileExists(atPath: workshop.path("out")))
    let first = try await export(workshop)
    #expect(!first.dryRun && first.files == 8 && first.byteCount == planned.byteCount)

    // As after an interruption: one file is missing, one is another.
    try FileManager.default.removeItem(atPath: workshop.path("out/f1"))
    let mine = Data(noise(2_000, seed: 2).reversed())
    try workshop.write(mine, to: "out/f2")
    let rest = try await export(workshop, ["-n"], status: 1)
    #expect(rest.files == 1 && rest.unchangedFiles == 6 && rest.skipped.map(\.path) == ["f2"])
    #expect(workshop.contents("out/f1") == nil)
    let second = try await export(workshop, status: 1)
    #expect(second.files == 1 && second.byteCount == 1_000 && second.unchangedFiles == 6)
    #expect(second.skipped.map(\.path) == ["f2"])
    #expect(workshop.contents("out/f2") == mine)

    #expect(try await export(workshop, ["--overwrite", "-n"]).files == 1)
    #expect(workshop.contents("out/f2") == mine)
    // A time that is not the imported file's is put right.
    _ = try await workshop.shell("touch -d 2001-01-01 out/f3")
    let third = try await workshop.expect(0, ["export", "out", "--overwrite"])
    #expect(third.text.hasPrefix("Wrote 2 files, 4.9 KiB, in "), "\(third.text)")
    #expect(third.text.hasSuffix("; 6 files, 4.8 MiB, were there already.\n"), "\(third.text)")
    try FileManager.default.removeItem(atPath: workshop.path("out/piped"))
    #expect(try await workshop.shell("diff -r tree out").status == 0)
    #expect(try await workshop.shell("test $(stat -c %Y tree/f3) = $(stat -c %Y out/f3)").status == 0)
  }

  @Test("an export that was cut short goes on, and gives the folder, which was empty, its attributes")
  func cutShort() async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    for index in 0..<40 { try workshop.write(noise(300_000, seed: UInt64(index)), to: "tree/f\(index)") }
    _ = try await workshop.shell("chmod 750 tree; mkdir -m 755 out")
    try await workshop.expect(0, ["import", "tree"])
    let running = try await workshop.start(["export", "out", "--progress", "json"])
    try await running.wait(for: .errors) { $0.contains("exporting") }
    running.signal(SIGKILL)
    _ = try await running.outcome()
    let line = try await export(workshop)
    #expect(line.files + line.unchangedFiles == 40)
    #expect(try await workshop.shell("diff -r tree out && stat -c %a out").lines == ["750"])
  }

  @Test("progress of an export has totals, and ends with everything done")
  func progress() async throws {
    let workshop = try await Workshop()
    for index in 0..<5 {
      try await workshop.expect(0, ["put", "k\(index)"], input: noise(1_000, seed: UInt64(index)))
    }
    let outcome = try await workshop.expect(0, ["export", "out", "--progress", "json", "--glob", "k[1-4]"])
    let lines = try outcome.errors.split(separator: "\n").map {
      try JSONDecoder().decode(ImportTests.ProgressLine.self, from: Data($0.utf8))
    }
    #expect(lines.allSatisfy { $0.totalByteCount == 4_000 && $0.totalCount == 4 })
    #expect(lines.last?.doneByteCount == 4_000 && lines.last?.doneCount == 4)
    #expect(try FileManager.default.contentsOfDirectory(atPath: workshop.path("out")).count == 4)
    #expect(try await workshop.expect(3, ["export", "out", "--glob", "x*"]).errors.contains("matches “x*”"))
  }

  @Test("blocks of zeros become holes", arguments: [0, 5_000, 4_096])
  func holes(_ endByteCount: Int) async throws {
    let workshop = try await Workshop()
    let file = try FileHandle(
      forWritingTo: URL(filePath: workshop.write(Data("start".utf8), to: "tree/sparse")))
    try file.seek(toOffset: 3_000_001)
    try file.write(contentsOf: Data("middle".utf8))
    try file.truncate(atOffset: 8 << 20)
    try file.seekToEnd()
    try file.write(contentsOf: noise(endByteCount, seed: 1))
    try file.close()
    try workshop.write(Data(count: 20_000), to: "tree/zeros")
    try await workshop.expect(0, ["import", "tree"])
    try await workshop.expect(0, ["export", "out"])
    #expect(try await workshop.shell("cmp tree/sparse out/sparse && cmp tree/zeros out/zeros").status == 0)
    let blocks = try await workshop.shell("stat -c %b out/sparse out/zeros").lines.compactMap { Int($0) }
    #expect(blocks.count == 2 && blocks[0] < 200 && blocks[1] < 20, "\(blocks)")
  }
}
