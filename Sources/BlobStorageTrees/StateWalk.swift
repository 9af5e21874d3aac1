import BlobStorage
import Foundation

/// Walks the entries of a state in the order of their keys. For use by one thread.
package final class StateWalk {
  private let blobs: [OpenBlob]
  private var merge: StateMerge

  /// - Parameter chain: the blobs of the state and of those that it changes, newest first. ``close()`` closes them.
  init(_ chain: [OpenBlob]) {
    blobs = chain
    merge = StateMerge(chain.map { StateEntryReader($0) })
  }

  /// The next entry; nil after the last.
  ///
  /// - Throws: `corrupted` for entries that cannot be read.
  package func next() throws(BlobStorageError) -> StateEntry? { try merge.next() }

  package func close() {
    for blob in blobs { blob.close() }
  }
}

extension StateEntryReader {
  /// Reads the blob of a state.
  init(_ blob: OpenBlob) {
    var offset: Int64 = 0
    self.init { () throws(BlobStorageError) in
      guard offset < blob.layout.byteCount else { return [] }
      let part = try blob.firstPart(offset..<blob.layout.byteCount)
      offset += Int64(part.count)
      return Array(part)
    }
  }
}
