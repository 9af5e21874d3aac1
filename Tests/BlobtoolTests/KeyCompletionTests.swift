import Foundation
import Testing

/// Keys that a shell completes. A completion script asks the tool like this.
@Suite struct KeyCompletionTests {
  private func asked(_ typed: String, _ command: [String] = ["get"], before: [String] = []) -> [String] {
    ["---completion"] + command
      + ["--", "positional@0", "\(1 + command.count + before.count)", "\(typed.utf8.count)", "blobtool"]
      + command + before + [typed]
  }

  @Test("are those of the store that the line or the environment names, and nothing is changed")
  func keys() async throws {
    let workshop = try await Workshop()
    for key in ["a/1", "a/2", "b", "a/with space", "a/line\nbreak"] {
      try await workshop.expect(0, ["put", key], input: Data("x".utf8))
    }
    try await workshop.expect(0, ["init", "other"])
    try await workshop.expect(0, ["put", "a/other:1", "--store", "other"], input: Data("x".utf8))
    let listing = "find store other -printf '%p %s %T@ %C@\\n' | sort"
    let before = try await workshop.shell(listing)
    for command in ["get", "list", "put", "versions", "delete", "keep", "info", "why"] {
      let outcome = try await workshop.expect(0, asked("a/", [command]))
      #expect(outcome.lines == ["a/1", "a/2", "a/with space"], "\(command)")
      #expect(outcome.errors.isEmpty)
    }
    #expect(try await workshop.expect(0, asked("")).lines.count == 4)
    for option in [["--store", "other"], ["--store=other"], ["--store", "=", "other"]] {
      #expect(try await workshop.expect(0, asked("a", before: option)).lines == ["a/other:1"])
    }
    let zsh = try await workshop.run(
      asked("a"), environment: ["SAP_SHELL": "zsh", "BLOBTOOL_STORE": workshop.path("other")])
    #expect(zsh.lines.first == "a/other\\:1")
    #expect(try await workshop.shell(listing).text == before.text)
  }

  @Test(
    "are none, without a word, where there is no store to ask",
    arguments: ["none", "s3://bucket/x", "s3:x", ""])
  func noStore(_ store: String) async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.expect(0, asked("a", before: ["--store", store]))
    #expect(outcome.text.allSatisfy(\.isWhitespace) && outcome.errors.isEmpty)
  }

  @Test("complete in bash", .enabled(if: FileManager.default.isExecutableFile(atPath: "/bin/bash")))
  func bash() async throws {
    let workshop = try await Workshop()
    for key in ["photos/1", "photos/2", "x"] {
      try await workshop.expect(0, ["put", key], input: Data("x".utf8))
    }
    let outcome = try await workshop.shell(
      """
      ln -s "$TOOL" blobtool; PATH=$PWD:$PATH
      source <(blobtool --generate-completion-script bash)
      COMP_WORDS=(blobtool get pho); COMP_CWORD=2; COMP_LINE="blobtool get pho"; COMP_POINT=${#COMP_LINE}
      _blobtool blobtool pho get
      printf '%s\\n' "${COMPREPLY[@]}"
      """)
    #expect(outcome.lines == ["photos/1", "photos/2"], "\(outcome.text) \(outcome.errors)")
  }
}
