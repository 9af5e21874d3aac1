import BlobStorage
import Foundation
import Testing

/// What else in a process may touch the files of a store that it has open.
@Suite("A store that is open")
struct OpenStoreTests {
  @Test("and lies in an imported tree is imported without its catalog")
  func leftOut() async throws {
    let workshop = try await Workshop()
    let made = try await workshop.shell(
      """
      set -e
      $TOOL init --store tree/inner; echo data | $TOOL put --store tree/inner k
      mkdir -p tree/catalog tree/lost/packs tree/lost/catalog
      echo mine > tree/catalog/file; echo mine > tree/catalogue
      cp tree/inner/packs/*.pack tree/lost/packs; echo lost > tree/lost/catalog/state
      ln -s inner/catalog tree/link
      """)
    #expect(made.status == 0, "\(made.errors)")
    let outcome = try await workshop.expect(0, ["import", "tree"])
    #expect(outcome.errors.contains("tree/inner/catalog"))
    let keys = try await workshop.expect(0, ["list"]).lines
    #expect(keys.contains { $0.contains("inner/store") } && keys.contains { $0.contains("inner/packs/") })
    #expect(keys.contains { $0.contains("catalog/file") } && keys.contains { $0.contains("catalogue") })
    #expect(!keys.contains { $0.contains("inner/catalog") || $0.contains("lost/catalog") })
    for path in ["tree/inner/catalog", "tree/link", "tree/inner/catalog/state", "tree/inner/catalog/./"] {
      let named = try await workshop.run(["import", path, "--prefix", "named/"])
      #expect(named.status == 1 && named.errors.contains("is the catalog of a store"), "\(path): \(named)")
    }
    // The imported store is whole.
    let exported = try await workshop.shell(
      "$TOOL export inner/ out && $TOOL get --store out/inner k && $TOOL verify --store out/inner")
    #expect(exported.status == 0 && exported.lines.contains("data"), "\(exported)")
  }

  #if os(Linux)
    /// The process IDs in LMDB's table of readers. LMDB 0.9 source, `MDB_rxbody`: 64 bytes a slot, after two such lines.
    private func readers(_ path: String) throws -> [Int32] {
      let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)))
      return stride(from: 128, to: bytes.count - 63, by: 64).map { slot in
        (0..<4).reduce(0) { $0 | Int32(bytes[slot + 8 + $1]) << (8 * Int32($1)) }
      }
    }

    @Test("keeps its slots when its process reads its files, whoever opens it then")
    func slots() async throws {
      let workshop = try await Workshop()
      try await workshop.expect(0, ["put", "k"], input: Data("1".utf8))
      let store = try await BlobStore.open(at: workshop.storePath)
      #expect(try await store.data(forKey: "k") == Data("1".utf8))
      let catalog = workshop.storePath + "/catalog/"
      let generation = try #require(
        try FileManager.default.contentsOfDirectory(atPath: catalog).first { $0.hasPrefix("g") })
      let lock = catalog + generation + "/lock.mdb"
      // Reads the file whole, and closes it.
      let before = try readers(lock)
      #expect(before.contains(getpid()))
      for command in [["list"], ["put", "l"], ["gc"], ["verify"]] {
        try await workshop.expect(0, command, input: Data("2".utf8))
        let now = try readers(lock)
        for slot in before.indices where before[slot] == getpid() { #expect(now[slot] == getpid()) }
      }
      #expect(try await store.data(forKey: "l") == Data("2".utf8))
      try await store.close()
    }

    @Test("survives copies and imports of its folder by its own process, beside processes that change it")
    func busy() async throws {
      let workshop = try await Workshop()
      let folder = workshop.folder.path
      try await workshop.expect(0, ["init", "--store", "tree/inner"])
      async let ended: Void = Self.expectEnd(in: folder)
      var (count, storedCount) = (0, 0)
      repeat {
        let outcome = try await workshop.shell(
          "echo \(count) | $TOOL put --store tree/inner other/\(count) && $TOOL gc --store tree/inner")
        // Too much at once is no damage.
        #expect(outcome.status == 0 || outcome.status == 5, "\(outcome)")
        if outcome.status == 0 { storedCount += 1 }
        count += 1
      } while !FileManager.default.fileExists(atPath: workshop.path("done")) && count < 400
      await ended
      try await workshop.expect(0, ["verify", "--store", "tree/inner"])
      let keys = try await workshop.expect(0, ["list", "--store", "tree/inner"]).lines.count
      #expect(keys >= 60 + storedCount)
    }

    private static func expectEnd(in folder: String) async {
      await #expect(processExitsWith: .success) { [folder = folder as String] in
        try await Self.read(in: folder)
      }
    }

    private static func read(in folder: String) async throws {
      defer { _ = FileManager.default.createFile(atPath: folder + "/done", contents: nil) }
      let inner = try await BlobStore.open(at: folder + "/tree/inner")
      let outer = try await BlobStore.open(at: folder + "/store")
      for round in 0..<60 {
        // A catalog may be replaced meanwhile.
        for name in (try? FileManager.default.subpathsOfDirectory(atPath: folder + "/tree/inner/catalog"))
          ?? []
        {
          _ = FileManager.default.contents(atPath: folder + "/tree/inner/catalog/" + name)
        }
        _ = try await inner.put(.data(Data("\(round)".utf8)), forKey: "own/\(round)")
        _ = try await outer.put(.data(Data("\(round)".utf8)), forKey: "own/\(round)")
        #expect(try await inner.data(forKey: "own/\(round / 2)") == Data("\(round / 2)".utf8))
      }
      try await inner.close()
      try await outer.close()
    }
  #endif

  @Test("by a tool without standard descriptors keeps all bytes", arguments: 1..<8)
  func closedDescriptors(_ closed: Int) async throws {
    let workshop = try await Workshop()
    try workshop.write(noise(300_000, seed: 1), to: "file")
    let redirections = (0..<3).filter { closed >> $0 & 1 == 1 }.map { "\($0)>&-" }.joined(separator: " ")
    let outcome = try await workshop.shell(
      """
      ($TOOL put k file; $TOOL put k2 missing; $TOOL import file --prefix p/; $TOOL get none; $TOOL gc; $TOOL list) \
        \(redirections) > /dev/null 2>&1 \(redirections)
      $TOOL verify && $TOOL get k | cmp - file && $TOOL get p/file | cmp - file
      """)
    #expect(outcome.status == 0, "\(outcome)")
  }
}
