import BlobStorage

/// Encodes and decodes the small objects of a shared store: a head of 40 bytes, a body, a checksum.
package struct SharedObject: Hashable, Sendable {
  /// The first eight bytes.
  package enum Kind: String, Hashable, Sendable, CaseIterable {
    case registration = "BLOBWRIT"
    case collection = "BLOBCOLL"
    case checkpoint = "BLOBCHCK"
    case ack = "BLOBPASS"
    case change = "BLOBCHNG"
    case fence = "BLOBFENC"

    /// For messages.
    var noun: String {
      switch self {
      case .registration: "writer's registration"
      case .collection: "log entry"
      case .checkpoint: "checkpoint of the log"
      case .ack: "writer's ack"
      case .change: "change"
      case .fence: "fence"
      }
    }

    /// The allowed lengths of a body.
    var bodyByteCounts: ClosedRange<Int> {
      switch self {
      case .registration: 28...28 + 2 * BlobLimits.machineNameByteCountMax
      case .collection, .checkpoint: 16...BlobLimits.collectionByteCountMax - SharedObject.byteCountMin
      case .ack: 0...0
      case .change: 9...9
      case .fence: 0...8
      }
    }
  }

  static let headByteCount = 40
  /// The length of an object without a body.
  static let byteCountMin = headByteCount + 4

  package var kind: Kind
  package var number: UInt32
  package var storeID: [UInt8]
  package var writer: UInt64
  package var body: [UInt8]

  package init(_ kind: Kind, number: UInt32, storeID: [UInt8], writer: UInt64, body: [UInt8] = []) {
    precondition(storeID.count == 16)
    self.kind = kind
    self.number = number
    self.storeID = storeID
    self.writer = writer
    self.body = body
  }

  /// The greatest length of an object of that kind.
  package static func byteCountMax(_ kind: Kind) -> Int { byteCountMin + kind.bodyByteCounts.upperBound }

  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: Self.byteCountMin + body.count)
    writer.raw(Array(kind.rawValue.utf8))
    writer.integer(StoreHeader.formatVersion)
    writer.zeros(2)
    writer.integer(number)
    writer.raw(storeID)
    writer.integer(self.writer)
    writer.raw(body)
    writer.checksum()
    return writer.bytes
  }

  /// Decodes an object.
  ///
  /// - Throws: `corrupted` for other bytes or another store's object; `unsupportedFormat` for another format version.
  package init(_ bytes: [UInt8], _ kind: Kind, storeID: [UInt8], name: String) throws(BlobStorageError) {
    do throws(BlobStorageError) {
      self = try bridge(bytes) { (raw) throws(BlobStorageError) in try Self(raw, kind, storeID) }
    } catch {
      throw BlobStorageError(
        error.code, "The object \(name) is not a \(kind.noun): \(error.message)", path: name)
    }
  }

  private init(
    _ bytes: UnsafeRawBufferPointer, _ kind: Kind, _ storeID: [UInt8]
  ) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    guard try reader.bytes(8).elementsEqual(kind.rawValue.utf8) else {
      throw BlobStorageError(.corrupted, "it begins with other bytes.")
    }
    let version: UInt16 = try reader.integer()
    // All versions have the store's ID here. Another store's object proves nothing about this store.
    guard bytes.dropFirst(16).prefix(16).elementsEqual(storeID) else {
      throw BlobStorageError(.corrupted, "it belongs to another store.")
    }
    guard version == StoreHeader.formatVersion || version == 0 else {
      throw StoreHeader.unsupported(version, "object")
    }
    guard kind.bodyByteCounts.contains(bytes.count - Self.byteCountMin) else {
      throw BlobStorageError(.corrupted, "it has \(bytes.count) bytes.")
    }
    guard bytes.endsWithChecksum else {
      throw BlobStorageError(.corrupted, "it does not match its checksum.")
    }
    try reader.reserved(2)
    self.kind = kind
    number = try reader.integer()
    self.storeID = Array(try reader.bytes(16))
    writer = try reader.integer()
    body = Array(try reader.bytes(bytes.count - 4 - Self.headByteCount))
  }
}

extension ObjectStore {
  /// Reads all bytes of a small object; nil if there is none.
  ///
  /// - Throws: `corrupted` if it is longer than any object of its kind.
  package func whole(_ name: String, _ kind: SharedObject.Kind) throws(BlobStorageError) -> [UInt8]? {
    let byteCountMax = SharedObject.byteCountMax(kind)
    guard let bytes = try get(name, 0..<Int64(byteCountMax) + 1) else { return nil }
    guard bytes.count <= byteCountMax else {
      throw BlobStorageError(
        .corrupted, "The object \(name) is not a \(kind.noun): it is longer than \(byteCountMax) bytes.",
        path: name)
    }
    return bytes
  }

  /// Lists all objects whose names begin with `prefix` and come after `name`, page by page.
  package func listAll(_ prefix: String, after name: String? = nil) throws(BlobStorageError)
    -> [ObjectPage.Entry]
  {
    var entries: [ObjectPage.Entry] = []
    var last = name
    while true {
      let page = try list(prefix, after: last)
      entries += page.entries
      guard page.isTruncated, let end = page.entries.last else { return entries }
      last = end.name
    }
  }
}
