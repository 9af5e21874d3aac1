import Foundation
import Testing

/// Folders that are exchanged while a process has the store in them open.
@Suite("A store's folder that is exchanged below a running put")
struct ExchangedFolderTests {
  /// Begins a put of a stream, exchanges the folder, and ends the stream. Prints what the put says and its status.
  ///
  /// The pipe holds less than the bytes that are written to it, so the put has opened the store by then.
  private static func script(_ exchange: String) -> String {
    """
    image() { (cd -P store 2> /dev/null && find . -type f -exec cksum {} + | sort); }
    mkfifo input
    $TOOL put lost < input 2> errors & put=$!
    exec 3> input
    head -c 4000000 /dev/urandom >&3
    \(exchange)
    image > before
    exec 3>&-
    wait $put; echo $?
    image > after
    cmp before after && cat errors
    """
  }

  @Test(
    "makes it fail, and gets nothing from it",
    arguments: [
      "cp -a store copy; mv store old; mv copy store",
      "cp -a store copy; mv store old; ln -s copy store",
      "rm -rf store; $TOOL init",
      "rm -rf store/* && $TOOL init other && cp -a other/. store/",
    ])
  func exchanged(_ exchange: String) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "kept"], input: Data([1]))
    let outcome = try await workshop.shell(Self.script(exchange))
    #expect(outcome.status == 0, "\(outcome.text)")
    let first = try #require(outcome.lines.first)
    #expect(first != "0")
    #expect(outcome.text.contains("open the store again"), "\(outcome.text)")
    try await workshop.expect(3, ["get", "lost"])
    try await workshop.expect(0, ["verify"])
    try await workshop.expect(0, ["put", "new"], input: Data([2]))
    try await workshop.expect(0, ["gc"])
  }

  @Test("makes it fail if none takes its place")
  func deleted() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(Self.script("rm -rf store"))
    #expect(outcome.lines.first != "0")
    #expect(outcome.text.contains("moved or deleted"), "\(outcome.text)")
    #expect(!FileManager.default.fileExists(atPath: workshop.storePath))
  }
}
