import BlobStorage

/// Named byte sequences that somebody else keeps, as S3 speaks of them: what a store on many machines stands on.
///
/// Names are relative to the store's place and made of letters, digits, `/`, `-` and `.`. Every call blocks, may run
/// on any thread, and tries again by itself what can be tried again. What it relies on:
/// 1. After a put has returned, every read and every later listing sees it.
/// 2. Of all puts of one name with `ifAbsent`, one stores.
/// 3. A put is whole or not at all. One whose answer was lost may take place, or may take place later.
package protocol ObjectStore: Sendable {
  /// What it is called in sentences, `s3://BUCKET/PREFIX`.
  var place: String { get }

  /// Stores an object.
  ///
  /// - Returns: `.exists` when `ifAbsent` and there is one of that name. It may be this very put's: an answer that was
  ///   lost is asked for again.
  func put(_ name: String, _ content: ObjectContent, ifAbsent: Bool) throws(BlobStorageError)
    -> ObjectPutOutcome

  /// The bytes of that range, fewer where the object ends before; nil when there is no such object.
  func get(_ name: String, _ range: Range<Int64>) throws(BlobStorageError) -> [UInt8]?

  /// The last bytes, all of a shorter object, and how long it is; nil when there is no such object.
  func tail(_ name: String, byteCount: Int) throws(BlobStorageError) -> (bytes: [UInt8], byteCount: Int64)?

  /// The objects whose names begin with `prefix` and come after `name`, in byte order: one page of them.
  func list(_ prefix: String, after name: String?) throws(BlobStorageError) -> ObjectPage

  /// Removes an object; nothing happens when there is none. One whose answer was lost may take place later.
  func delete(_ name: String) throws(BlobStorageError)
}

extension ObjectStore {
  package var place: String { "the object store" }
}

/// What is put.
package enum ObjectContent: Sendable {
  case bytes([UInt8])
  /// The first bytes of a file, which does not change meanwhile.
  case file(any File, byteCount: Int64)
}

/// What a put did.
package enum ObjectPutOutcome: Hashable, Sendable {
  case stored
  case exists
}

/// A part of a listing.
package struct ObjectPage: Hashable, Sendable {
  package struct Entry: Hashable, Sendable {
    package var name: String
    package var byteCount: Int64

    package init(name: String, byteCount: Int64) {
      self.name = name
      self.byteCount = byteCount
    }
  }

  package var entries: [Entry]
  /// Whether there is more after the last of them.
  package var isTruncated: Bool

  package init(entries: [Entry], isTruncated: Bool) {
    self.entries = entries
    self.isTruncated = isTruncated
  }
}
