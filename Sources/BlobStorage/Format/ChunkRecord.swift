/// The meta of a chunk record: decoded by this codec, the payload is the chunk with this digest.
package struct ChunkRecord: Hashable, Sendable, RecordMeta {
  package var digest: BlobDigest
  package var plainByteCount: Int
  package var codecNumber: UInt8
  /// The base: a similar chunk whose plain bytes the codec needs to decode the payload.
  package var base: BlobDigest?
  /// The keys of similarity search. Stored, so that a rebuild of the catalog need not read the chunk.
  package var features: SIMD3<UInt32>?

  /// Bits of the meta's flags.
  private static let hasBase: UInt8 = 1
  private static let hasFeatures: UInt8 = 2

  package init(
    digest: BlobDigest, plainByteCount: Int, codecNumber: UInt8, base: BlobDigest? = nil,
    features: SIMD3<UInt32>? = nil
  ) {
    self.features = features
    self.digest = digest
    self.plainByteCount = plainByteCount
    self.codecNumber = codecNumber
    self.base = base
  }

  /// The length of the meta. With codec 0 the payload's length is the plain length.
  package static func metaByteCount(
    codecNumber: UInt8, plainByteCount: Int, hasBase: Bool, hasFeatures: Bool
  ) -> Int {
    2 + (hasBase ? 2 : 1) * BlobDigest.byteCount + (hasFeatures ? 12 : 0)
      + (codecNumber == 0 ? 0 : Varint.byteCount(UInt64(plainByteCount)))
  }

  /// The longest meta.
  package static let metaByteCountMax = metaByteCount(
    codecNumber: 1, plainByteCount: BlobLimits.chunkByteCountMax, hasBase: true, hasFeatures: true)

  package var metaByteCount: Int {
    Self.metaByteCount(
      codecNumber: codecNumber, plainByteCount: plainByteCount, hasBase: base != nil,
      hasFeatures: features != nil)
  }

  /// The length of the whole record.
  package func recordByteCount(payloadByteCount: Int) -> Int {
    RecordHeader.recordByteCount(metaByteCount: metaByteCount, payloadByteCount: payloadByteCount)
  }

  /// The length of the record of a chunk that is stored unencoded and alone.
  package static func recordByteCount(unencoded count: Int) -> Int {
    RecordHeader.recordByteCount(
      metaByteCount: metaByteCount(
        codecNumber: 0, plainByteCount: count, hasBase: false, hasFeatures: false), payloadByteCount: count)
  }

  package func encodeMeta(into filler: inout ByteFiller) {
    digest.withUnsafeBytes { filler.raw($0) }
    filler.integer(codecNumber)
    filler.integer((base == nil ? 0 : Self.hasBase) | (features == nil ? 0 : Self.hasFeatures))
    if codecNumber != 0 { filler.varint(plainByteCount) }
    base?.withUnsafeBytes { filler.raw($0) }
    if let features { for index in 0..<3 { filler.integer(features[index]) } }
  }

  /// - Parameter payloadByteCount: the payload of its record.
  package init(
    meta: UnsafeRawBufferPointer, payloadByteCount: Int, algorithm: BlobDigest.Algorithm
  ) throws(BlobStorageError) {
    var reader = ByteReader(meta)
    digest = BlobDigest(algorithm: algorithm, bytes: try reader.bytes(BlobDigest.byteCount))
    codecNumber = try reader.integer()
    let flags: UInt8 = try reader.integer()
    guard flags & ~(Self.hasBase | Self.hasFeatures) == 0 else {
      throw BlobStorageError(
        .unsupportedFormat, "A chunk has flags \(flags), unknown to this build: use a later one.")
    }
    plainByteCount =
      codecNumber == 0 ? payloadByteCount : try reader.varint(atMost: BlobLimits.chunkByteCountMax)
    if flags & Self.hasBase != 0 {
      base = BlobDigest(algorithm: algorithm, bytes: try reader.bytes(BlobDigest.byteCount))
    }
    if flags & Self.hasFeatures != 0 { features = try reader.features() }
    try reader.finish()
    guard base != digest, base == nil || codecNumber != 0 else {
      throw BlobStorageError(.corrupted, "A chunk cannot be its own base, nor can plain bytes have one.")
    }
    // A writer uses a codec only if it saves bytes.
    guard codecNumber == 0 || 1..<max(plainByteCount, 1) ~= payloadByteCount else {
      throw BlobStorageError(
        .corrupted, "A chunk of \(plainByteCount) bytes cannot be stored in \(payloadByteCount).",
        digest: digest)
    }
  }
}

extension ByteReader {
  /// Reads the keys of similarity search.
  mutating func features() throws(BlobStorageError) -> SIMD3<UInt32> {
    SIMD3(try integer(), try integer(), try integer())
  }
}
