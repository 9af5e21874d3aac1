/// The meta of a chunk record: these stored bytes are, by this codec, the plain bytes with this digest.
package struct ChunkRecord: Hashable, Sendable, RecordMeta {
  /// What else the codec needs to decode the payload. The numbers are on disk.
  package enum BaseKind: UInt8, Sendable {
    case none = 0
    /// The base's plain bytes go before, as a prefix.
    case prefix = 1
    /// The base's plain bytes are a trained dictionary.
    case dictionary = 2
  }

  package var digest: Digest
  package var plainByteCount: Int
  package var codecNumber: UInt8
  package var baseKind: BaseKind
  package var base: Digest?
  /// Keys by which similar chunks find this one; kept so that the catalog can be rebuilt without the chunk.
  package var features: SIMD3<UInt32>?

  /// Flags of the meta.
  private static let hasFeatures: UInt8 = 1

  package init(
    digest: Digest, plainByteCount: Int, codecNumber: UInt8, baseKind: BaseKind = .none, base: Digest? = nil,
    features: SIMD3<UInt32>? = nil
  ) {
    precondition((baseKind == .none) == (base == nil))
    self.features = features
    self.digest = digest
    self.plainByteCount = plainByteCount
    self.codecNumber = codecNumber
    self.baseKind = baseKind
    self.base = base
  }

  /// Bytes of the meta.
  package static func metaByteCount(hasBase: Bool, hasFeatures: Bool) -> Int {
    8 + (hasBase ? 2 : 1) * Digest.byteCount + (hasFeatures ? 12 : 0)
  }

  /// The most bytes that a meta has.
  package static let metaByteCountMax = metaByteCount(hasBase: true, hasFeatures: true)

  package var metaByteCount: Int {
    Self.metaByteCount(hasBase: base != nil, hasFeatures: features != nil)
  }

  /// Bytes of the whole record.
  package func recordByteCount(payloadByteCount: Int) -> Int {
    RecordHeader.recordByteCount(metaByteCount: metaByteCount, payloadByteCount: payloadByteCount)
  }

  package func encodeMeta(into filler: inout ByteFiller) {
    filler.integer(codecNumber)
    filler.integer(baseKind.rawValue)
    filler.integer(features == nil ? 0 : Self.hasFeatures)
    filler.zeros(1)
    filler.integer(UInt32(plainByteCount))
    digest.withUnsafeBytes { filler.raw($0) }
    base?.withUnsafeBytes { filler.raw($0) }
    if let features { for index in 0..<3 { filler.integer(features[index]) } }
  }

  package init(meta: UnsafeRawBufferPointer, algorithm: Digest.Algorithm) throws(BlobStorageError) {
    var reader = ByteReader(meta)
    codecNumber = try reader.integer()
    let kindNumber: UInt8 = try reader.integer()
    let flags: UInt8 = try reader.integer()
    try reader.reserved(1)
    guard flags & ~Self.hasFeatures == 0 else {
      throw BlobStorageError(
        .unsupportedFormat, "A chunk has flags that this build does not know: use a later build.")
    }
    plainByteCount = Int(try reader.integer(UInt32.self))
    guard plainByteCount <= Limits.chunkByteCountMax else {
      throw BlobStorageError(.corrupted, "A chunk claims \(plainByteCount) bytes, more than any can have.")
    }
    guard let kind = BaseKind(rawValue: kindNumber) else {
      throw BlobStorageError(
        .unsupportedFormat, "A chunk has a base of kind \(kindNumber): use a later build.")
    }
    baseKind = kind
    digest = Digest(algorithm: algorithm, bytes: try reader.bytes(Digest.byteCount))
    base = kind == .none ? nil : Digest(algorithm: algorithm, bytes: try reader.bytes(Digest.byteCount))
    if flags & Self.hasFeatures != 0 {
      let (first, second, third) = (
        try reader.integer(UInt32.self), try reader.integer(UInt32.self), try reader.integer(UInt32.self)
      )
      features = SIMD3(first, second, third)
    }
    try reader.finish()
    guard base != digest, kind == .none || codecNumber != 0 else {
      throw BlobStorageError(.corrupted, "A chunk cannot be its own base, nor can plain bytes have one.")
    }
  }
}
