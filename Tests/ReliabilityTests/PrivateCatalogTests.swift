import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// The system's files on a medium that can only be read.
private struct ReadOnlyFiles: ForwardingFiles {
  let system = SystemFiles()

  func begin(_ call: String, _ path: FilePath) throws(BlobStorageError) {
    if ["status", "list", "availableByteCount"].contains(call) { return }
    throw .systemCall("change", path: path, errno: Errno.readOnlyFileSystem.rawValue)
  }

  func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    if intent != .read { try begin("open", path) }
    return try system.open(path, intent)
  }
}

/// A process that cannot write to the catalog makes one of its own.
@Suite("A reader with a catalog of its own")
struct PrivateCatalogTests {
  @Test("reads what a collection has moved since it was opened, and changes nothing")
  func moved() throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("k", noise(1, 900)), ("garbage", noise(2, 3_000))]) }
    var environment = lab.environment(lab.disk.process())
    environment.catalogFiles = ReadOnlyFiles()
    let reader = try Engine(
      path: Lab.storePath, configuration: StoreConfiguration(threadCount: 1), environment: environment)
    let before = try reader.keys("", after: nil, limit: 9).map(\.key)
    #expect(before == ["garbage", "k"])
    let put = #expect(throws: BlobStorageError.self) {
      _ = try reader.put("new", .data(Data([1])), PutOptions())
    }
    let delete = #expect(throws: BlobStorageError.self) { _ = try reader.delete(["k"], .durable) }
    #expect(put?.code == .readOnly && delete?.code == .readOnly)
    let path = try #require(try DamageTests.paths(lab).first)
    try lab.session { engine in
      try lab.delete(engine, ["garbage"])
      let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      #expect(report.obstacles == [])
    }
    let name = try #require(path.lastComponent?.string.dropLast(5))
    #expect(try DamageTests.paths(lab).allSatisfy { !$0.string.contains(String(name)) }, "the pack has gone")
    let data = try reader.data("k", nil)
    #expect(data == noise(1, 900))
    let after = try reader.keys("", after: nil, limit: 9).map(\.key)
    #expect(after == ["k"], "its catalog was made anew")
    try reader.close()
  }
}
