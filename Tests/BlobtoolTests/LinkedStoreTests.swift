import Foundation
import Testing

/// A store that is reached through symbolic links is the one that they lead to.
@Suite("A store behind links")
struct LinkedStoreTests {
  @Test("is created below a link, and in an empty folder that a link names")
  func creation() async throws {
    let workshop = try await Workshop(hasStore: false)
    _ = try await workshop.shell("mkdir -p par/empty; ln -s par parl; ln -s par/empty emptyl")
    for place in ["parl/st", "parl/new/st", "emptyl"] {
      try await workshop.expect(0, ["init", place])
      try await workshop.expect(0, ["put", "k", "--store", place], input: Data("x".utf8))
    }
    for place in ["par/st", "par/new/st", "par/empty"] {
      #expect(try await workshop.expect(0, ["get", "k", "--store", place]).text == "x")
    }
    try await workshop.expect(1, ["init", "parl/st"])
  }

  @Test("does all that a store does, and nothing is imported from it or written into it")
  func use() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell("ln -s store link; mkdir src; echo x > src/x")
    try await workshop.expect(0, ["import", "src", "--store", "link"])
    for command in ["stats", "report", "repair", "gc", "verify"] {
      try await workshop.expect(0, [command, "--store", "link"])
    }
    try await workshop.expect(0, ["cache", "set-limit", "1G", "--evict", "--store", "link"])
    for target in ["link", "link/out", "store/out", "store"] {
      try await workshop.expect(1, ["export", target, "--store", "link"])
    }
    #expect(!FileManager.default.fileExists(atPath: workshop.path("store/out")))
    _ = try await workshop.shell("cd src; ln -s ../store in; cp -r ../store whole")
    try await workshop.expect(0, ["import", ".", "--store", "link", "--prefix", "all/"])
    #expect(
      !(try await workshop.expect(0, ["list", "all/", "--store", "link"]).text.contains("all/store/")))
  }
}
