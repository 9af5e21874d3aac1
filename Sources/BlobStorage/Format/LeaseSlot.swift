/// One slot of a lease: 40 bytes with their own checksum. A slot of zeros is empty. Format.md, "Leases".
package enum LeaseSlot: Hashable, Sendable {
  case chunk(BlobDigest)
  case blob(BlobDigest)
  /// The first of the writer's packs that may hold chunks of unfinished puts.
  case firstPack(UInt32)

  package static let byteCount = 40

  package func encode(into writer: inout ByteWriter) {
    var guarded = ByteWriter(capacity: Self.byteCount - 4)
    switch self {
    case .chunk(let digest):
      guarded.integer(UInt32(1))
      digest.withUnsafeBytes { guarded.raw($0) }
    case .blob(let digest):
      guarded.integer(UInt32(2))
      digest.withUnsafeBytes { guarded.raw($0) }
    case .firstPack(let sequence):
      guarded.integer(UInt32(3))
      guarded.integer(sequence)
      guarded.zeros(28)
    }
    writer.integer(CRC32C.checksum(guarded.bytes.span.bytes))
    writer.raw(guarded.bytes)
  }

  /// Nil for a checksum mismatch or an unknown kind.
  package init?(_ slot: UnsafeRawBufferPointer, algorithm: BlobDigest.Algorithm) {
    let guarded = UnsafeRawBufferPointer(rebasing: slot[4...])
    guard slot.loadUnaligned(as: UInt32.self).littleEndian == CRC32C.checksum(guarded.bytes) else {
      return nil
    }
    let content = UnsafeRawBufferPointer(rebasing: guarded[4...])
    switch guarded.loadUnaligned(as: UInt32.self).littleEndian {
    case 1: self = .chunk(BlobDigest(algorithm: algorithm, bytes: content))
    case 2: self = .blob(BlobDigest(algorithm: algorithm, bytes: content))
    case 3: self = .firstPack(content.loadUnaligned(as: UInt32.self).littleEndian)
    default: return nil
    }
  }
}
