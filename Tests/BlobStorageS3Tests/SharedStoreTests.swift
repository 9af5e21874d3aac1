import BlobStorage
import BlobStorageS3
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("A store in a bucket")
struct SharedStoreTests {
  /// A place of its own, and two machines' folders.
  struct Lab {
    let place: S3Configuration
    let folder = FileManager.default.temporaryDirectory.appending(path: "machines-\(UUID().uuidString)")

    init(_ service: TestedService) throws {
      place = try service.configuration(prefix: "stores/\(UUID().uuidString)")
      try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    }

    func state(_ machine: String) -> String { folder.appending(path: machine).path }
    func end() { try? FileManager.default.removeItem(at: folder) }
  }

  @Test("is created once, written on one machine and read on another", arguments: TestedService.present)
  func machines(service: TestedService) async throws {
    let lab = try Lab(service)
    defer { lab.end() }
    let first = try await BlobStore.create(in: lab.place, state: lab.state("a"))
    let data = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) })
    let digest = try await first.set("key", to: data).version.digest
    #expect(first.information.path == lab.place.location.description)

    let second = try await BlobStore.open(lab.place, state: lab.state("b"))
    #expect(try await second.currentVersion(of: "key")?.digest == digest)
    #expect(try await second.data(forKey: "key") == data)
    try await second.set("other", to: Data("later".utf8))
    try await second.close()

    #expect(try await first.currentVersion(of: "other") == nil)
    try await first.extend()
    #expect(try await first.data(forKey: "other") == Data("later".utf8))
    try await first.close()

    await #expect(throws: BlobStorageError.self) {
      try await BlobStore.create(in: lab.place, state: lab.state("c"))
    }
  }
}
