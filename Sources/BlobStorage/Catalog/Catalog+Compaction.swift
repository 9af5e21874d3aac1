import CLMDB
import Logging
import SystemPackage

/// LMDB takes free pages back but never makes its file shorter: a store that was filled in many small commits has more
/// free pages than pages in use. The last process to close the catalog compacts it.
extension Catalog {
  /// Below this the free pages are not worth a copy. Neither are they if they are less than a quarter: so the copy costs
  /// no more than a few times the commits that freed them.
  private static let compactedByteCountMin: Int64 = 1 << 20

  /// A new generation, on the medium, that holds the same without free pages; nil when there is no need for one, or no
  /// room: the one in use is as good.
  func compacted(_ environment: Environment) -> String? {
    let generation = "g" + Hex.text(randomNumber())
    let place = folder.appending(generation)
    do throws(BlobStorageError) {
      let byteCount = try environment.byteCount()
      guard byteCount >= Self.compactedByteCountMin,
        try environment.freeByteCount() * 4 > byteCount
      else { return nil }
      try files.createPart(place)
      try environment.copy(to: place)
      let file = try files.open(place.appending("data.mdb"), .read)
      defer { file.close() }
      try file.synchronize()
      try files.syncDirectory(place)
      return generation
    } catch {
      logger.debug("The catalog was not made smaller.", metadata: ["reason": "\(error.message)"])
      do throws(BlobStorageError) { try removeGeneration(generation) } catch {
        // The next rebuild removes it.
      }
      return nil
    }
  }
}

extension Environment {
  /// Bytes of pages that are in no use.
  func freeByteCount() throws(BlobStorageError) -> Int64 {
    try read { (transaction) throws(BlobStorageError) in
      // LMDB keeps its list of free pages as its table 0: for each transaction a count and that many page numbers.
      var cursor: OpaquePointer?
      try Self.check(mdb_cursor_open(transaction.handle, 0, &cursor), "read")
      defer { mdb_cursor_close(cursor) }
      var key = MDB_val()
      var value = MDB_val()
      var count: Int64 = 0
      var code = mdb_cursor_get(cursor, &key, &value, MDB_FIRST)
      while code != MDB_NOTFOUND {
        try Self.check(code, "read")
        guard value.mv_size >= 8, let data = value.mv_data else {
          throw BlobStorageError(.catalogDamaged, "The catalog's list of free pages is damaged.")
        }
        count += Int64(clamping: data.loadUnaligned(as: UInt64.self))
        code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)
      }
      return count.multipliedReportingOverflow(by: Int64(pageByteCount)).partialValue
    }
  }

  /// Writes what is in use to a new file in `folder`, which is empty.
  func copy(to folder: FilePath) throws(BlobStorageError) {
    // Not by name: LMDB would make the file readable for all users.
    let file = try OwnedDescriptor.create(folder.appending("data.mdb"))
    try Self.check(mdb_env_copyfd2(handle, file.number, UInt32(MDB_CP_COMPACT)), "copy")
  }
}
