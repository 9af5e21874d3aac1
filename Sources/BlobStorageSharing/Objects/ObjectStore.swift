import BlobStorage

/// An object store, such as an S3 bucket, that keeps a shared store's packs.
///
/// Names are relative to the store's place and consist of letters, digits, `/`, `-` and `.`. Every call blocks, may run
/// on any thread, and retries transient failures. Callers rely on these guarantees:
/// 1. After a put has returned, every read and every later listing sees it.
/// 2. Of all puts of one name with `ifAbsent`, exactly one stores.
/// 3. A put stores an object whole or not at all. A put whose response was lost may take effect at once, later, or
/// never.
package protocol ObjectStore: Sendable {
  /// The place, for messages: `s3://BUCKET/PREFIX`.
  var place: String { get }

  /// Stores an object.
  ///
  /// - Returns: `.exists` if `ifAbsent` and the name is taken. A retry may find the object of its own first attempt.
  func put(_ name: String, _ content: ObjectContent, ifAbsent: Bool) throws(BlobStorageError)
    -> ObjectPutOutcome

  /// Reads a range, fewer bytes if the object is shorter; nil if there is no such object.
  func get(_ name: String, _ range: Range<Int64>) throws(BlobStorageError) -> [UInt8]?

  /// Reads the last `byteCount` bytes of an object, or all of a shorter one, and its length; nil if there is no such
  /// object.
  func tail(_ name: String, byteCount: Int) throws(BlobStorageError) -> (bytes: [UInt8], byteCount: Int64)?

  /// Lists one page of the objects whose names begin with `prefix` and come after `name`, in byte order.
  func list(_ prefix: String, after name: String?) throws(BlobStorageError) -> ObjectPage

  /// Deletes an object, if it exists. A delete whose response was lost may take effect later.
  func delete(_ name: String) throws(BlobStorageError)
}

extension ObjectStore {
  package var place: String { "the object store" }
}

/// The content of a put.
package enum ObjectContent: Sendable {
  case bytes([UInt8])
  /// The first bytes of a file, which must not change during the put.
  case file(any File, byteCount: Int64)
}

/// The outcome of a put.
package enum ObjectPutOutcome: Hashable, Sendable {
  case stored
  case exists
}

/// A page of a listing.
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
  /// Whether more objects follow.
  package var isTruncated: Bool

  package init(entries: [Entry], isTruncated: Bool) {
    self.entries = entries
    self.isTruncated = isTruncated
  }
}
