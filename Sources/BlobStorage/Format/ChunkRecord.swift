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

  /// Bits of the meta's flags: the lowest two are the kind of base.
  private static let baseKindBits: UInt8 = 3
  private static let hasFeatures: UInt8 = 4

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

  /// Bytes of the meta. The payload of codec 0 says the plain length.
  package static func metaByteCount(
    codecNumber: UInt8, plainByteCount: Int, hasBase: Bool, hasFeatures: Bool
  ) -> Int {
    2 + (hasBase ? 2 : 1) * Digest.byteCount + (hasFeatures ? 12 : 0)
      + (codecNumber == 0 ? 0 : Varint.byteCount(UInt64(plainByteCount)))
  }

  /// The most bytes that a meta has.
  package static let metaByteCountMax = metaByteCount(
    codecNumber: 1, plainByteCount: Limits.chunkByteCountMax, hasBase: true, hasFeatures: true)

  package var metaByteCount: Int {
    Self.metaByteCount(
      codecNumber: codecNumber, plainByteCount: plainByteCount, hasBase: base != nil,
      hasFeatures: features != nil)
  }

  /// Bytes of the whole record.
  package func recordByteCount(payloadByteCount: Int) -> Int {
    RecordHeader.recordByteCount(metaByteCount: metaByteCount, payloadByteCount: payloadByteCount)
  }

  package func encodeMeta(into filler: inout ByteFiller) {
    digest.withUnsafeBytes { filler.raw($0) }
    filler.integer(codecNumber)
    filler.integer(baseKind.rawValue | (features == nil ? 0 : Self.hasFeatures))
    if codecNumber != 0 { filler.varint(plainByteCount) }
    base?.withUnsafeBytes { filler.raw($0) }
    if let features { for index in 0..<3 { filler.integer(features[index]) } }
  }

  /// - Parameter payloadByteCount: of its record.
  package init(
    meta: UnsafeRawBufferPointer, payloadByteCount: Int, algorithm: Digest.Algorithm
  ) throws(BlobStorageError) {
    var reader = ByteReader(meta)
    digest = Digest(algorithm: algorithm, bytes: try reader.bytes(Digest.byteCount))
    codecNumber = try reader.integer()
    let flags: UInt8 = try reader.integer()
    guard flags & ~(Self.baseKindBits | Self.hasFeatures) == 0,
      let kind = BaseKind(rawValue: flags & Self.baseKindBits)
    else {
      throw BlobStorageError(
        .unsupportedFormat, "A chunk has flags \(flags), unknown to this build: use a later one.")
    }
    plainByteCount =
      codecNumber == 0 ? payloadByteCount : try reader.varint(atMost: Limits.chunkByteCountMax)
    baseKind = kind
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
    // A codec is used only where it makes the bytes fewer.
    guard codecNumber == 0 || 1..<max(plainByteCount, 1) ~= payloadByteCount else {
      throw BlobStorageError(
        .corrupted, "A chunk of \(plainByteCount) bytes cannot be stored in \(payloadByteCount).",
        digest: digest)
    }
  }
}
