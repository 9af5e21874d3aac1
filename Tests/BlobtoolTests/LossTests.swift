import Foundation
import Testing

/// What the commands say of a store that has lost something.
@Suite struct LossTests {
  private static let readers = [
    ["get", "a"], ["list"], ["versions", "a"], ["info", "a"], ["why", "a"], ["stats"], ["report"],
    ["export", "out", "--overwrite"], ["restore", "b", "--at", "2999-01-01"],
  ]

  /// Three packs: an old version, the newest, another key.
  private func workshop() async throws -> Workshop {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "a"], input: Data("version one".utf8))
    try await workshop.expect(0, ["put", "a"], input: Data("version two".utf8))
    try await workshop.expect(0, ["put", "b"], input: Data("other".utf8))
    return workshop
  }

  private func packs(_ workshop: Workshop) throws -> [URL] {
    try FileManager.default.contentsOfDirectory(
      at: URL(fileURLWithPath: workshop.storePath).appending(path: "packs"), includingPropertiesForKeys: nil
    ).filter { $0.pathExtension == "pack" }
  }

  @Test("While a pack is missing every reading command warns and exits 4", arguments: [true, false])
  func warns(keepsCatalog: Bool) async throws {
    let workshop = try await workshop()
    let newest = try #require(
      try packs(workshop).first { try Data(contentsOf: $0).range(of: Data("version two".utf8)) != nil })
    try FileManager.default.removeItem(at: newest)
    if !keepsCatalog { try FileManager.default.removeItem(atPath: workshop.storePath + "/catalog") }
    for command in Self.readers {
      let outcome = try await workshop.expect(4, command)
      #expect(outcome.errors.contains("blobtool repair --accept-loss"), "\(command)")
    }
    // It fails, but not before the warning.
    let unmounted = try await workshop.expect(1, ["mount", "missing"])
    #expect(unmounted.errors.contains("blobtool repair --accept-loss"))
    let other = try await workshop.expect(4, ["get", "b"])
    #expect(other.text == "other")
    try await workshop.expect(4, ["get", "nothing"])
    for command in [["verify"], ["verify", "--quick"]] {
      let told = try await workshop.expect(4, command).errors
      #expect(told.contains("blobtool repair --accept-loss"), "\(command)")
    }
    let before = try packs(workshop).count
    for command in [["gc"], ["gc", "--json"]] {
      let told = try await workshop.expect(4, command).errors
      #expect(!told.contains(/\.[.:;)]/), "a full stop within a sentence: \(told)")
    }
    #expect(try packs(workshop).count == before)
    try await workshop.expect(0, ["put", "c"], input: Data("new".utf8))
    try await workshop.expect(0, ["delete", "b"])
    try await workshop.expect(4, ["repair"])
    try await workshop.expect(4, ["list"])
    let accepted = try await workshop.expect(0, ["repair", "--accept-loss"])
    // Only the catalog knew the newest version: it is named as it goes.
    #expect(accepted.text.contains("dropped: “a”") == keepsCatalog)
    if keepsCatalog {
      // It also knew that it replaced the older one, which does not come back.
      try await workshop.expect(3, ["get", "a"])
      try await workshop.expect(0, ["put", "a"], input: Data("version three".utf8))
    } else {
      #expect(try await workshop.expect(0, ["get", "a"]).text == "version one")
    }
    for command in [["list"], ["get", "a"], ["verify"], ["gc"], ["repair"]] {
      let outcome = try await workshop.expect(0, command)
      #expect(!outcome.errors.contains("warning"), "\(command)")
    }
  }

  @Test("The exit code says what was found, also when the reader of the output has gone")
  func withoutReader() async throws {
    let workshop = try await workshop()
    try await workshop.expect(0, ["init", "target"])
    try workshop.write(Data("f".utf8), to: "tree/f")
    // Nothing reads from the pipe when the tool begins.
    let outcome = try await workshop.shell(
      """
      mkfifo pipe; exec 3<>pipe 4>pipe 3>&-
      try() { $TOOL "$@" >&4; echo "$? $*"; }
      try list; try get a; try stats; try verify; try delete none; try keep --up-to 1 none
      try import tree nowhere; try import tree nowhere --json
      rm "$(grep -l 'version two' store/packs/*.pack)"
      try list; try get b; try stats; try export out; try verify; try verify --json; try copy store target
      try gc; try gc --json; try repair; try repair --json
      """)
    let expected = [
      "0 list", "0 get a", "0 stats", "0 verify", "3 delete none", "3 keep --up-to 1 none",
      "1 import tree nowhere", "1 import tree nowhere --json", "4 list", "4 get b", "4 stats", "4 export out",
      "4 verify", "4 verify --json", "4 copy store target", "4 gc", "4 gc --json", "4 repair",
      "4 repair --json",
    ]
    #expect(outcome.lines == expected, "\(outcome.errors)")
  }

  @Test("The file store is restored by repair, and named by every other command")
  func storeFile() async throws {
    for content in [nil, Data(), Data("not a store".utf8)] as [Data?] {
      let workshop = try await workshop()
      let path = workshop.storePath + "/store"
      let before = FileManager.default.contents(atPath: path)
      try FileManager.default.removeItem(atPath: path)
      if let content { try content.write(to: URL(fileURLWithPath: path)) }
      let outcome = try await workshop.run(["get", "a"])
      #expect(outcome.status != 0)
      #expect(outcome.errors.contains("repair"), "\(outcome.errors)")
      #expect(try await workshop.run(["init"]).status != 0)
      let repaired = try await workshop.expect(0, ["repair"])
      #expect(repaired.errors.contains("the file “store” of \(workshop.storePath) was restored"))
      #expect(FileManager.default.contents(atPath: path) == before)
      #expect(try await workshop.expect(0, ["get", "a"]).text == "version two")
    }
  }
}
