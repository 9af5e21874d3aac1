import Foundation

extension Engine {
  package func data(_ key: String, _ id: BlobVersion.ID?) throws(BlobStorageError) -> Data? {
    if let data = try smallData(key, id) { return data }
    // Between looking up the version and reading its chunks, it can be dropped and collected: then it is looked up
    // again, and what is missing then is missing.
    for attempt in 0..<3 {
      guard let version = try version(key, id) else { return nil }
      do throws(BlobStorageError) {
        if let data = try data(version.digest) { return data }
      } catch {
        guard error.code == .corrupted, attempt < 2, try self.version(key, id)?.digest != version.digest
        else {
          throw named(error, key)
        }
        continue
      }
      guard try self.version(key, id)?.digest == version.digest else { continue }
      throw named(Self.missing(version.digest), key)
    }
    return nil
  }

  /// The blob of a version if it is a single chunk that can be read at once: looked up in one snapshot.
  private func smallData(_ key: String, _ id: BlobVersion.ID?) throws(BlobStorageError) -> Data? {
    try checkOpen()
    let bytes = try Self.keyBytes(key)
    do throws(BlobStorageError) {
      if id == nil, uncertain.time(of: bytes) != nil { return nil }
      return try chunks.bytes { (transaction) throws(BlobStorageError) in
        guard let name = try transaction.nameRow(bytes) else { return nil }
        guard let id else {
          return try transaction.currentVersion(key: name.key)?.row.digest
        }
        return try transaction.versionRow(key: name.key, id.stamp)?.digest
      }.map { Data($0) }
    } catch {
      // It may have been dropped and collected meanwhile: the long way finds out.
      guard error.code == .corrupted else { throw error }
      return nil
    }
  }

  package func data(_ digest: Digest) throws(BlobStorageError) -> Data? {
    try checkOpen()
    try check(digest)
    guard let layout = try blobs.layout(digest) else { return nil }
    if layout.byteCount == 0 { return Data() }
    guard layout.byteCount <= Int.max / 2 else {
      throw BlobStorageError(
        .limitExceeded, "Blob \(digest) is too long for memory: use a reader.", digest: digest)
    }
    if layout.chunkCount == 1 { return Data(try chunks.bytes(digest)) }
    // A manifest may claim any length: what is not there yet is not paid for in advance.
    var data = Data(capacity: Int(min(layout.byteCount, 64 << 20)))
    try blobs.streamWhole(layout) { data.append(contentsOf: $0) }
    return data
  }

  package func openBlob(_ key: String, _ id: BlobVersion.ID?) throws(BlobStorageError) -> OpenBlob? {
    for _ in 0..<8 {
      guard let version = try version(key, id) else { return nil }
      let hold = try leases.holdWhereThereIsRoom([.blob(version.digest)])
      // Only a version that is still there after the lease was written is sure to stay readable.
      guard try self.version(key, id)?.id == version.id else {
        leases.release(hold)
        continue
      }
      do throws(BlobStorageError) {
        guard let layout = try blobs.layout(version.digest) else {
          throw Self.missing(version.digest)
        }
        return OpenBlob(engine: self, layout: layout, hold: hold)
      } catch {
        leases.release(hold)
        throw named(error, key)
      }
    }
    throw BlobStorageError(.busy, "Key “\(key)” changes faster than it can be opened.", key: key)
  }

  package func openBlob(_ digest: Digest) throws(BlobStorageError) -> OpenBlob? {
    try checkOpen()
    try check(digest)
    let hold = try leases.holdWhereThereIsRoom([.blob(digest)])
    do throws(BlobStorageError) {
      if let layout = try blobs.layout(digest) { return OpenBlob(engine: self, layout: layout, hold: hold) }
    } catch {
      leases.release(hold)
      throw error
    }
    leases.release(hold)
    return nil
  }

  package func holdVersions(_ key: String) throws(BlobStorageError) -> HeldVersions {
    for _ in 0..<8 {
      let versions = try versions(key)
      let hold = try leases.holdWhereThereIsRoom(versions.map { .blob($0.digest) })
      if try self.versions(key) == versions {
        return HeldVersions(versions: versions, hold: hold, leases: leases)
      }
      leases.release(hold)
    }
    throw BlobStorageError(.busy, "Key “\(key)” changes faster than its history can be opened.", key: key)
  }

  private func check(_ digest: Digest) throws(BlobStorageError) {
    guard digest.algorithm == header.digestAlgorithm else {
      throw BlobStorageError(
        .invalidArgument,
        "The store names blobs by \(header.digestAlgorithm.name): \(digest) cannot be in it.",
        digest: digest)
    }
  }

  private static func missing(_ digest: Digest) -> BlobStorageError {
    BlobStorageError(
      .corrupted, "Blob \(digest) is missing from the store: put the same bytes again to heal it.",
      digest: digest)
  }

  /// The error for a version that cannot be read. If another machine has fenced this one, the error says so first:
  /// relaxed puts may refer to chunks that are gone.
  private func named(_ error: BlobStorageError, _ key: String) -> BlobStorageError {
    guard error.key == nil, error.code == .corrupted else { return error }
    let cause = sharing.fencing ?? error
    return BlobStorageError(
      cause.code, "Key “\(key)”: \(cause.message)", key: key, digest: error.digest, pack: error.pack,
      offset: error.offset, path: error.path, errno: error.errno)
  }
}
