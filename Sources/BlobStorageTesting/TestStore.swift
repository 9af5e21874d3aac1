import BlobStorage
import Foundation
import SystemPackage

/// A store for the tests of a program that uses one. Its temporary folder is removed with it. The test moves its clock
/// and breaks its medium.
///
/// ```swift
/// let test = try await TestStore.create()
/// try await test.store.set("a", to: Data("value".utf8))
/// test.medium.isFull = true
/// // … expect that the program tells its user
/// try await test.close()
/// ```
public final class TestStore: Sendable {
  public let store: BlobStore
  /// The store's time of day.
  public let clock: TestClock
  /// The medium of its files.
  public let medium: TestMedium
  /// The store's folder.
  public let folder: URL

  private init(_ store: BlobStore, _ clock: TestClock, _ medium: TestMedium, _ folder: URL) {
    self.store = store
    self.clock = clock
    self.medium = medium
    self.folder = folder
  }

  /// Creates an empty store in a temporary folder.
  ///
  /// - Throws: what `BlobStore.create` throws.
  public static func create(
    options: StoreOptions = StoreOptions(), configuration: StoreConfiguration = StoreConfiguration(),
    clock: TestClock = TestClock()
  ) async throws(BlobStorageError) -> TestStore {
    let folder = FileManager.default.temporaryDirectory.appending(path: "TestStore-\(UUID())")
    let medium = TestMedium()
    let store = try await BlobStore.blocking { () throws(BlobStorageError) in
      var environment = Engine.Environment()
      environment.files = TestFiles(medium)
      environment.clock = WallClock { UInt64(max(0, clock.now.timeIntervalSince1970 * 1_000)) }
      try Engine.create(at: folder.path, options: options, environment: environment)
      return try BlobStore.open(at: folder.path, configuration, in: environment)
    }
    return TestStore(store, clock, medium, folder)
  }

  /// Changes stored bytes of a key's current version, so that reading it throws `corrupted`.
  ///
  /// Values that share the damaged chunk or its frame, or are encoded against it, cannot be read either.
  ///
  /// - Throws: `invalidArgument` if the key has no value, or an empty one.
  public func damage(_ key: String) async throws(BlobStorageError) {
    try await store.synchronize()
    let folder = folder
    try await store.work { (engine) throws(BlobStorageError) in
      let place = try engine.storedPlace(ofKey: key)
      guard let place else {
        throw BlobStorageError(.invalidArgument, "The key “\(key)” has no bytes to damage.", key: key)
      }
      let path = FilePath(folder.path).appending("packs").appending("\(place.pack).pack")
      let file = try SystemFiles().open(path, .readWrite)
      defer { file.close() }
      var bytes = try file.bytesThere(at: place.offset, 1)
      guard !bytes.isEmpty else {
        throw BlobStorageError(.invalidArgument, "The key “\(key)” has no bytes to damage.", key: key)
      }
      bytes[0] ^= 0x10
      try file.put(bytes, at: place.offset)
    }
  }

  /// Closes the store and removes its folder.
  public func close() async throws(BlobStorageError) {
    medium.heal()
    try await store.close()
    remove()
  }

  deinit { remove() }

  private func remove() { try? FileManager.default.removeItem(at: folder) }
}

extension Engine {
  /// The place of stored bytes of a key's current version: those of its first chunk.
  fileprivate func storedPlace(ofKey key: String) throws(BlobStorageError) -> (pack: PackName, offset: Int64)?
  {
    guard let version = try version(key, nil), let layout = try blobs.layout(version.digest) else {
      return nil
    }
    var first: BlobDigest?
    try layout.forEachChunk(in: 0..<layout.byteCount, from: chunks) { chunk in
      first = chunk.entry.digest
      return false
    }
    guard let first else { return nil }
    return try chunks.located(first) { (place) throws(BlobStorageError) in
      if let frame = place.row.frameOffset {
        // After the header and the meta of the frame's record.
        let raw = try place.file.bytes(at: frame, RecordHeader.byteCountMax, pack: place.pack)
        let header = try bridge(raw) { (raw) throws(BlobStorageError) in try RecordHeader(raw) }
        return (place.pack, frame + Int64(header.byteCount + header.metaByteCount))
      }
      return (place.pack, place.row.payloadOffset)
    }
  }
}
