import Foundation
import Testing

/// What commands say to a reader.
@Suite struct TextTests {
  /// The names and values of facts that are printed one a line.
  private func facts(_ outcome: Outcome) -> [String: String] {
    var facts: [String: String] = [:]
    for line in outcome.lines {
      guard let gap = line.firstRange(of: /\s\s+/) else { continue }
      facts[String(line[..<gap.lowerBound])] = String(line[gap.upperBound...])
    }
    return facts
  }

  @Test("columns are as the help says, and sizes have the unit that is easy to read")
  func columns() async throws {
    let workshop = try await Workshop()
    let sizes = [
      (0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (10_189, "10.0 KiB"), (102_400, "100 KiB"),
      (1_572_864, "1.5 MiB"),
    ]
    for (byteCount, text) in sizes {
      let put = try await workshop.expect(
        0, ["put", "k", "--archive", "-"], input: noise(byteCount, seed: 1))
      #expect(put.text.hasPrefix("Stored \(text) as “k”, "))
      let versions = try await workshop.expect(0, ["versions", "k"]).lines
      let newest = try #require(versions.first)
      let columns = newest.split(separator: /\s\s+/).map(String.init)
      #expect(columns.count == 4 && columns[1] == text, "\(newest)")
      #expect(put.text.contains("\n\(columns[3])  version \(columns[0])\n"), "\(put.text)")
      let listed = try await workshop.expect(0, ["list"]).lines.map {
        // Sizes end in one column: some lines begin with a blank.
        $0.drop { $0 == " " }.split(separator: /\s\s+/).map(String.init)
      }
      #expect(listed.first?.suffix(4) == [text, columns[2], "\(versions.count)", "k"])
    }
    #expect(
      try await workshop.expect(0, ["keep", "--up-to", "3", "k"]).text == "Dropped 2 versions of 1 key.\n")
    #expect(try await workshop.expect(0, ["export", "out"]).text.hasPrefix("Wrote 1 file, 1.5 MiB, in "))
    #expect(try await workshop.expect(0, ["delete", "k", "--dry-run"]).text == "Would drop 1 key.\n")
    let missing = try await workshop.expect(3, ["delete", "one", "two", "k"])
    #expect(missing.text == "Dropped 1 key.\n")
    #expect(missing.errors == "blobtool: 2 keys are not in the store, “one” among them.\n")
    #expect(try await workshop.expect(0, ["delete", "--all"]).text == "Dropped 0 keys.\n")
  }

  @Test("facts are the numbers that JSON has, with commas between thousands")
  func numbers() async throws {
    let workshop = try await Workshop(hasStore: false)
    let made = try await workshop.expect(0, ["init", "--similarity", "off"])
    #expect(made.text == "Created a store in \(workshop.storePath).\n")
    for index in 0..<1_234 { try workshop.write(Data("file \(index)".utf8), to: "tree/\(index)") }
    let planned = facts(try await workshop.expect(0, ["import", "tree", "--dry-run"]))
    #expect(planned["would import"] == "1,234 files, 9.8 KiB" && planned["would take on disk"] != nil)
    let imported = facts(try await workshop.expect(0, ["import", "tree"]))
    #expect(imported["imported"] == "1,234 files, 9.8 KiB")
    #expect(imported["new or changed"] == "1,234" && imported["unchanged"] == "0")
    #expect(facts(try await workshop.expect(0, ["import", "tree"]))["unchanged"] == "1,234")
    try await workshop.expect(0, ["put", "0", "--archive"], input: noise(100_000, seed: 1))
    let statistics = facts(try await workshop.expect(0, ["stats"]))
    #expect(statistics["keys"] == "1,234" && statistics["versions"] == "1,235")
    #expect(statistics["plain bytes of all versions"] == "107 KiB")
    #expect(statistics.count == 14)
    let information = facts(try await workshop.expect(0, ["info", "0"]))
    #expect(information["key"] == "0" && information["size"] == "97.7 KiB")
    #expect(information["codecs"]?.hasPrefix("none ") == true)
    #expect(information["freed by dropping it"] == information["as stored"])
    let why = try await workshop.expect(0, ["why", "0"])
    #expect(facts(why)["held by"] == "2 versions" && facts(why)["shared with"] == "0 other keys")
    #expect(
      why.lines.filter { $0.hasPrefix("  0  version ") }.map { $0.hasSuffix("  archived") } == [false, true])
    let verified = facts(try await workshop.expect(0, ["verify"]))
    #expect(verified["blobs"] == "1,237" && verified["damaged"] == "0")
    let quick = facts(try await workshop.expect(0, ["verify", "--quick"]))
    #expect(quick["checked"] == "structure only; no chunk was read")
    #expect(facts(try await workshop.expect(0, ["repair"]))["keys"] == "1,234")
    let other = workshop.path("other")
    try await workshop.expect(0, ["init", "--store", other])
    let copied = facts(try await workshop.expect(0, ["copy", workshop.storePath, other]))
    #expect(copied["source"] == "1,234 keys, 1,235 versions, 107 KiB" && copied["versions copied"] == "1,235")
    try await workshop.expect(0, ["delete", "0"])
    let plan = facts(try await workshop.expect(0, ["gc", "--dry-run"]))
    #expect(plan["chunks to delete"] != "0" && plan["would free"] != "0 B")
    let collected = facts(try await workshop.expect(0, ["gc"]))
    #expect(
      collected["chunks deleted"] == plan["chunks to delete"] && collected["freed"] == plan["would free"])
  }

  @Test("damage is told with its place and the keys that need it")
  func damage() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: noise(300_000, seed: 11))
    let hurt = try await workshop.shell(
      """
      pack=$(ls -S store/packs/*.pack | head -1)
      printf '\\377\\000\\377\\000' | dd of="$pack" bs=1 seek=100000 conv=notrunc status=none
      """)
    #expect(hurt.status == 0)
    let verified = try await workshop.expect(4, ["verify"])
    let line = verified.lines.first ?? ""
    #expect(
      line.wholeMatch(of: /damaged: blake3:[0-9a-f]{64} in pack \S+ at \d+: .+; needed by “k”/) != nil,
      "\(line)")
    #expect(facts(verified)["damaged"] == "1")
    #expect(verified.errors.contains("damaged in 1 place; `blobtool repair` saves the rest."))
    let repaired = try await workshop.expect(4, ["repair"])
    #expect(repaired.text.contains("\nset aside: \(workshop.storePath)/set-aside/"))
    #expect(repaired.text.contains("\ncannot be read: “k” version "))
    #expect(facts(repaired)["unreadable versions"] == "1")
    #expect(repaired.errors.contains("1 version cannot be read until the same bytes are put again."))
  }

  @Test("sync has nothing to do for a folder, and says so")
  func synchronization() async throws {
    let workshop = try await Workshop()
    #expect(try await workshop.expect(0, ["sync"]).text == "Up to date with \(workshop.storePath).\n")
    #expect(try await workshop.expect(0, ["sync", "--json"]).fields() == ["store", "seconds"])
    try await workshop.expect(1, ["sync", "--store", workshop.path("none")])
  }
}
