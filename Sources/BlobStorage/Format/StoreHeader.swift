/// The file `store`, which makes a folder a store: the settings that `init` fixed for good. Format.md, "The store
/// header".
package struct StoreHeader: Hashable, Sendable {
  package static let byteCount = 64
  package static let magic = Array("BLOBSTOR".utf8)
  package static let formatVersion: UInt16 = 2

  /// Bits of the flags field. A build refuses a store with an unknown bit.
  package struct Flags: OptionSet, Hashable, Sendable {
    package let rawValue: UInt16
    package init(rawValue: UInt16) { self.rawValue = rawValue }
    /// Writers encode new chunks against similar ones.
    package static let similarity = Flags(rawValue: 1)
    /// The folder is not a store, but one machine's state folder for a shared store.
    package static let stateOnly = Flags(rawValue: 2)
    /// A change names each published pack.
    package static let changes = Flags(rawValue: 4)
    package static let known: Flags = [.similarity, .stateOnly, .changes]
  }

  package var flags: Flags
  package var digestAlgorithm: BlobDigest.Algorithm
  package var codecNumber: UInt8
  package var level: Int8
  package var averageChunkByteCount: UInt32
  package var storeID: [UInt8]
  package var created: UInt64

  package init(
    flags: Flags, digestAlgorithm: BlobDigest.Algorithm, codecNumber: UInt8, level: Int8,
    averageChunkByteCount: UInt32, storeID: [UInt8], created: UInt64
  ) {
    precondition(storeID.count == 16)
    self.flags = flags
    self.digestAlgorithm = digestAlgorithm
    self.codecNumber = codecNumber
    self.level = level
    self.averageChunkByteCount = averageChunkByteCount
    self.storeID = storeID
    self.created = created
  }

  package func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: Self.byteCount)
    writer.raw(Self.magic)
    writer.integer(Self.formatVersion)
    writer.integer(flags.rawValue)
    writer.integer(digestAlgorithm.rawValue)
    writer.integer(codecNumber)
    writer.integer(level)
    writer.zeros(1)
    writer.integer(averageChunkByteCount)
    writer.zeros(12)
    writer.raw(storeID)
    writer.integer(created)
    writer.zeros(4)
    writer.checksum()
    return writer.bytes
  }

  /// - Throws: `notAStore` for other bytes, `unsupportedFormat` for another format version or unknown settings,
  ///   `corrupted` for a damaged header.
  package init(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    guard bytes.count >= 12, bytes.prefix(8).elementsEqual(Self.magic) else {
      throw BlobStorageError(.notAStore, "The file “store” does not begin like a store's header.")
    }
    var reader = ByteReader(bytes)
    _ = try reader.bytes(8)
    let version: UInt16 = try reader.integer()
    // No build has written version 0: the bytes were lost.
    guard version == Self.formatVersion || version == 0 || Self.hasOtherVersion(bytes) else {
      throw Self.unsupported(version, "store")
    }
    guard version == Self.formatVersion, bytes.count >= Self.byteCount,
      UnsafeRawBufferPointer(rebasing: bytes[..<Self.byteCount]).endsWithChecksum
    else {
      throw BlobStorageError(.corrupted, "The store's header does not match its checksum.")
    }
    flags = Flags(rawValue: try reader.integer())
    let algorithm = BlobDigest.Algorithm(rawValue: try reader.integer())
    codecNumber = try reader.integer()
    level = try reader.integer()
    guard try reader.integer(UInt8.self) == 0 else {
      throw BlobStorageError(.unsupportedFormat, "The store is encrypted: use a later build.")
    }
    averageChunkByteCount = try reader.integer()
    // Of these, the last four are reserved for the length of bytes after the header.
    try reader.reserved(12)
    storeID = Array(try reader.bytes(16))
    created = try reader.integer()
    try reader.reserved(4)
    guard bytes.count == Self.byteCount else {
      throw BlobStorageError(.corrupted, "The store's header is \(bytes.count) bytes long.")
    }
    guard let algorithm, flags.isSubset(of: .known) else {
      throw BlobStorageError(
        .unsupportedFormat,
        "The store uses a digest or a flag that this build does not know: use a later build.")
    }
    digestAlgorithm = algorithm
  }

  /// Whether a header is valid except for its version: then the medium has changed the version.
  private static func hasOtherVersion(_ bytes: UnsafeRawBufferPointer) -> Bool {
    var whole = Array(bytes.prefix(byteCount))
    guard whole.count == byteCount else { return false }
    withUnsafeBytes(of: formatVersion.littleEndian) { whole.replaceSubrange(8..<10, with: $0) }
    return whole.withUnsafeBytes(\.endsWithChecksum)
  }

  /// The error for another format version.
  package static func unsupported(_ version: UInt16, _ what: String) -> BlobStorageError {
    BlobStorageError(
      .unsupportedFormat,
      version < formatVersion
        ? "The \(what) has format version \(version), which this build does not read: export it with the build that "
          + "made it, and import that with this one."
        : "The \(what) has format version \(version), this build reads \(formatVersion): use a later build.")
  }
}
