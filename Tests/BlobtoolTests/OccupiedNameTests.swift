import Foundation
import Testing

/// Folders, links, sockets and pipes that have names of a store's files.
@Suite("A name of a store's file")
struct OccupiedNameTests {
  @Test(
    "that another thing than a file has stops nothing",
    arguments: [
      "packs/0102030405060708-00000001.new", "packs/x.new", "packs/0102030405060708-00000001.pack",
      "packs/0102030405060708-00000001.gone", "packs/0102030405060708-00000001.found",
      "leases/0102030405060708.lease", "leases/0102030405060708.new", "activities/0102030405060708.activity",
      "catalog/live.new", "catalog/g0102", "catalog/locks-0102",
    ],
    [
      "mkdir", "mkdir -p x && ln -s $PWD/x",
      "python3 -c 'import socket, sys; socket.socket(1).bind(sys.argv[1])'", "mkfifo",
    ])
  func occupied(_ name: String, _ making: String) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: noise(10_000, seed: 1))
    let made = try await workshop.shell("mkdir -p store/activities; \(making) store/\(name)")
    try #require(made.status == 0, "\(made.errors)")
    for command in [["get", "k"], ["put", "l"], ["list"], ["gc"], ["verify"], ["repair"]] {
      let outcome = try await workshop.run(command, input: Data("x".utf8))
      #expect(outcome.status == 0, "\(command): \(outcome.errors)")
    }
  }

  @Test(
    "that the store replaces is told, with what to do about it",
    arguments: ["census", "catalog/state", "gc.lock"])
  func told(_ name: String) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: noise(10_000, seed: 1))
    _ = try await workshop.shell("rm -f store/\(name); mkdir -p store/\(name)/full")
    let outcome = try await workshop.run(["gc"])
    #expect(outcome.status == 1, "\(outcome.errors)")
    #expect(outcome.errors.contains("\(name) is no file: the store needs a file there, so move it away."))
    #expect(outcome.errors.split(separator: "\n").count == 1)
  }
}
