import Foundation
import Testing

/// `-v` of commands that store and write files.
@Suite struct VerboseTests {
  /// The lines about files on standard error, in order of their text.
  private func lines(_ outcome: Outcome) -> [String] {
    outcome.errors.split(separator: "\n").map { String($0.dropFirst("blobtool: ".count)) }.sorted()
  }

  @Test("import names each file that is stored, unchanged or skipped, on standard error only")
  func importing() async throws {
    let workshop = try await Workshop()
    for name in ["a", "sub/b"] { try workshop.write(Data(name.utf8), to: "tree/\(name)") }
    try workshop.write(noise(9_000_000, seed: 1), to: "tree/large")
    _ = try await workshop.shell("for i in {10..22}; do mkfifo tree/l$i; done")
    let links = (10...22).map { "skipped tree/l\($0): it is a device, a socket or a pipe" }

    let planned = try await workshop.expect(0, ["import", "tree", "-v", "--dry-run"])
    #expect(lines(planned) == links + ["would store “a”", "would store “large”", "would store “sub/b”"])
    let first = try await workshop.expect(0, ["import", "tree", "-v", "--json"])
    #expect(lines(first) == links + ["stored “a”", "stored “large”", "stored “sub/b”"])
    #expect(try first.json(ImportLine.self).map(\.newFiles) == [3])
    try workshop.write(Data("other".utf8), to: "tree/a")
    let second = try await workshop.expect(0, ["import", "tree", "--verbose"])
    #expect(lines(second) == links + ["stored “a”", "unchanged “large”", "unchanged “sub/b”"])
    #expect(second.text.hasPrefix("imported "))
    #expect(try await workshop.expect(0, ["import", "tree", "-v", "-q"]).errors.isEmpty)
    let plain = try await workshop.expect(0, ["import", "tree"])
    #expect(!plain.errors.contains("unchanged"))
  }

  @Test("export names each file that is written, unchanged or refused, on standard error only")
  func exporting() async throws {
    let workshop = try await Workshop()
    for key in ["a", "sub/b", "../c"] {
      try await workshop.expect(0, ["put", key], input: Data(key.utf8))
    }
    try await workshop.expect(0, ["put", "large"], input: noise(9_000_000, seed: 1))
    let refused = "not written: “../c”: the key cannot be a path below the folder"
    let end = "1 key could not be written."
    let planned = try await workshop.expect(1, ["export", "out", "-v", "--dry-run"])
    #expect(
      lines(planned) == [end, refused, "would write “a”", "would write “large”", "would write “sub/b”"])
    let first = try await workshop.expect(1, ["export", "out", "-v", "--json"])
    #expect(lines(first) == [end, refused, "wrote “a”", "wrote “large”", "wrote “sub/b”"])
    #expect(first.lines.count == 1 && first.text.hasPrefix("{"))
    let second = try await workshop.expect(1, ["export", "out", "-v"])
    #expect(lines(second) == [end, refused, "unchanged “a”", "unchanged “large”", "unchanged “sub/b”"])
  }
}
