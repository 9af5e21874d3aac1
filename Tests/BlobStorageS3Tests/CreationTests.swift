import BlobStorage
import BlobStorageS3
import Foundation
import Testing

@Suite("Creating a store in a bucket")
struct CreationTests {
  private func code(_ body: () async throws -> BlobStore) async -> BlobStorageError.Code? {
    do { _ = try await body() } catch { return (error as? BlobStorageError)?.code }
    return nil
  }

  @Test(
    "tries the object store and leaves nothing of it: where two puts of one name are stored, one folder alone collects",
    arguments: [true, false])
  func probe(keepsApart: Bool) async throws {
    let service = SmallObjectStore(keepsApart: keepsApart)
    let server = try ScriptedServer { _, request in service.answer(request) }
    let folder = FileManager.default.temporaryDirectory.appending(path: "created-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    func place(_ prefix: String) throws -> S3Configuration {
      S3Configuration(
        location: try S3Location("s3://bucket/\(prefix)"),
        endpoint: try S3Endpoint("http://127.0.0.1:\(server.port)"), credentials: Scripted.credentials)
    }
    func state(_ machine: String) -> String { folder.appending(path: machine).path }
    func putCount() -> Int { server.requests.filter { $0.method == "PUT" }.count }

    let store = try await BlobStore.create(in: try place("p"), state: state("a"))
    #expect(service.names == ["p/store"])
    // It was tried, by several at once.
    #expect(putCount() > 8)
    #expect((store.information.collectingMachine == nil) == keepsApart)
    try await store.set("key", to: Data("value".utf8))
    try await store.close()
    let other = try await BlobStore.open(try place("p"), state: state("b"))
    #expect((other.information.collectingMachine == nil) == keepsApart)
    #expect(try await other.data(forKey: "key") == Data("value".utf8))
    try await other.close()

    // Existing objects are reported before anything is written.
    service.set("q/holiday.jpg", [1, 2, 3])
    let count = putCount()
    let codes = [
      await code { try await BlobStore.create(in: try place("p"), state: state("c")) },
      await code { try await BlobStore.create(in: try place("q"), state: state("d")) },
      await code { try await BlobStore.create(in: try place("p/in/it"), state: state("g")) },
      await code { try await BlobStore.open(try place("q"), state: state("e")) },
      await code { try await BlobStore.open(try place("r"), state: state("f")) },
    ]
    #expect(codes == [.storeExists, .notAStore, .notAStore, .notAStore, .noStore])
    #expect(putCount() == count)
    // Beside a store, below something else that is called like a store's header.
    service.set("z/store", [1, 2, 3])
    try await BlobStore.create(in: try place("z/in"), state: state("h")).close()
  }
}
