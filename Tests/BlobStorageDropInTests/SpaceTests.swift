import BlobStorageDropIn
import Foundation
import Testing

@Suite("Space comes back by itself, without another process or call, of", .timeLimit(.minutes(3)))
struct SpaceTests {
  let root: Folder

  init() throws { root = try Folder() }

  private func packByteCount(_ folder: String) throws -> Int {
    let packs = root.url.appendingPathComponent(folder + "/.blobstore/packs").path
    return try FileManager.default.contentsOfDirectory(atPath: packs).reduce(0) { sum, name in
      let attributes = try? FileManager.default.attributesOfItem(atPath: packs + "/" + name)
      return sum + (attributes?[.size] as? Int ?? 0)
    }
  }

  /// Waits until that holds; the suite's time limit ends it otherwise.
  private func wait(until isReached: () throws -> Bool) async throws {
    while try !isReached() { try await Task.sleep(for: .milliseconds(20)) }
  }

  private func settle(_ folder: String, below byteCount: Int) async throws {
    try await wait {
      try packByteCount(folder) < byteCount
    }
  }

  @Test("archived versions that keep has dropped")
  func keep() async throws {
    let archive = DataArchive(rootUrl: root.url)
    for seed in UInt64(1)...8 {
      #expect(await archive.archive("k", randomBytes(1 << 20, seed: seed)).isSuccess)
    }
    #expect(try packByteCount("data_archive") >= 8 << 20)
    #expect(await archive.keep(1, of: "k").isSuccess)
    try await settle("data_archive", below: 5 << 20)
    #expect(await archive.all("k").0 == [8, 7].map { randomBytes(1 << 20, seed: $0) })
  }

  @Test("the original's files that were taken in and deleted since")
  func oldData() async throws {
    let folder = root.url.appendingPathComponent("data_archive")
    for key in 0..<6 {
      let place = folder.appendingPathComponent("key\(key)")
      try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
      try randomBytes(1 << 20, seed: UInt64(key + 1)).write(to: place.appendingPathComponent("0.dat"))
    }
    let archive = DataArchive(rootUrl: root.url)
    #expect(archive.keys.count == 6)
    #expect(try packByteCount("data_archive") >= 6 << 20)
    for key in 0..<6 { #expect(await archive.delete("key\(key)").isSuccess) }
    try await settle("data_archive", below: 1 << 20)
  }

  @Test("data that was replaced, removed, or removed with all other", arguments: ["replaced", "one", "all"])
  func dataStore(way: String) async throws {
    let store = try UserFolders.$environment.withValue(root.environment) {
      try PersistentDataStore(name: "images")
    }
    for number in 0..<8 {
      let identifier = way == "replaced" ? "k" : "k\(number)"
      await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
        store.storeData({ randomBytes(1 << 20, seed: UInt64(number + 1)) }, identifier: identifier) { _ in
          done.resume()
        }
      }
    }
    switch way {
    case "one": for number in 0..<8 { store.removeData(forIdentifier: " k\(number)") }
    case "all": store.removeAll()
    default: break
    }
    try await settle("Documents/images", below: way == "replaced" ? 3 << 20 : 1 << 20)
    withExtendedLifetime(store) {}
  }

  private struct Note: Persistible, Codable, Hashable {
    var content: Data
  }

  @Test("a document that was deleted")
  func document() async throws {
    let environment = root.environment
    try UserFolders.$environment.withValue(environment) {
      try Note(content: randomBytes(6 << 20, seed: 1)).saveToFile()
    }
    let note = root.url.appendingPathComponent("Documents/.blobstore/drop-in-live")
    try await wait {
      // It is not there at first.
      let text = (try? String(contentsOf: note, encoding: .utf8)) ?? ""
      return Int(text).map { $0 >= 4 << 20 } ?? false
    }
    UserFolders.$environment.withValue(environment) { Note.deleteFile() }
    try await settle("Documents", below: 1 << 20)
  }
}
