import BlobStorage

/// Compares blobs with their digests.
extension Copier {
  /// Where the bytes of blobs are compared with their digests: not over a network, if one side is here.
  var comparesInTarget: Bool { source.backend.readAheadCount > 0 }

  /// Compares the bytes of a blob of several chunks with its digest. Chunks that are right by themselves may be those
  /// of another blob, because nothing but this guards a manifest.
  func compare(_ layout: BlobLayout, in store: Engine) throws(BlobStorageError) {
    if layout.chunkCount > 1 { try store.blobs.streamWhole(layout) { _ in } }
  }

  func compareInTarget(
    _ blobs: inout [BlobDigest: Blob], _ failures: inout [BlobDigest: BlobStorageError],
    _ transfer: ChunkTransfer
  ) throws(BlobStorageError) {
    let copied = blobs.values.filter { !$0.isNamed && $0.layout.chunkCount > 1 }
    if copied.isEmpty { return }
    try transfer.commit()
    for blob in copied {
      do throws(BlobStorageError) { try compare(blob.layout, in: target) } catch {
        guard error.code == .corrupted else { throw error }
        failures[blob.layout.digest] = error
        blobs[blob.layout.digest] = nil
      }
    }
  }
}
