/// A record as it was found in a pack: where it lies, and what it says.
package struct PackRecord: Sendable {
  /// What a record says. Unknown records that may be skipped are `.skipped`.
  package enum Content: Sendable {
    case chunk(ChunkRecord)
    case manifest(ManifestRecord)
    case ref(RefRecord)
    case drop(DropRecord)
    case skipped
  }

  package var content: Content
  /// Where the record begins in its pack.
  package var offset: Int64
  package var metaByteCount: Int
  package var payloadByteCount: Int
  /// Whether the commit that the record is part of goes on with the next ref or drop of the pack.
  package var continues: Bool

  /// Bytes of the whole record.
  package var byteCount: Int {
    RecordHeader.byteCount + metaByteCount + payloadByteCount + (payloadByteCount > 0 ? 4 : 0)
  }

  /// Bytes of the pack that were known to be on the medium when the record was appended; 0 if it does not say.
  package var syncedByteCount: Int64 {
    switch content {
    case .ref(let ref): Int64(ref.syncedByteCount)
    case .drop(let drop): Int64(drop.syncedByteCount)
    case .chunk, .manifest, .skipped: 0
    }
  }

  /// Whether a commit can end with it.
  package var endsCommit: Bool {
    switch content {
    case .ref, .drop: !continues
    case .chunk, .manifest, .skipped: false
    }
  }

  package init(
    content: Content, offset: Int64, metaByteCount: Int, payloadByteCount: Int, continues: Bool = false
  ) {
    self.content = content
    self.continues = continues
    self.offset = offset
    self.metaByteCount = metaByteCount
    self.payloadByteCount = payloadByteCount
  }

  /// Decodes a record whose header and meta have been checked.
  ///
  /// - Parameter dropPayload: a drop's payload; empty for every other record, whose payload is not looked at.
  package init(
    header: RecordHeader, meta: UnsafeRawBufferPointer, dropPayload: UnsafeRawBufferPointer, offset: Int64,
    algorithm: Digest.Algorithm
  ) throws(BlobStorageError) {
    self.offset = offset
    metaByteCount = header.metaByteCount
    payloadByteCount = header.payloadByteCount
    let type = RecordType(rawValue: header.typeNumber)
    continues = header.flags & Self.flagsKnown(type) & RecordHeader.continues != 0
    guard header.typeNumber >= 128 || header.flags & ~Self.flagsKnown(type) == 0 else {
      throw BlobStorageError(
        .unsupportedFormat, "A record has flags \(header.flags), unknown to this build: use a later one.")
    }
    switch type {
    case .chunk:
      let chunk = try ChunkRecord(meta: meta, algorithm: algorithm)
      // Codec 0 keeps the plain bytes; any other is used only where it makes them fewer.
      guard
        chunk.codecNumber == 0
          ? payloadByteCount == chunk.plainByteCount : 1..<max(chunk.plainByteCount, 1) ~= payloadByteCount
      else {
        throw BlobStorageError(
          .corrupted, "A chunk of \(chunk.plainByteCount) bytes cannot be stored in \(payloadByteCount).",
          digest: chunk.digest)
      }
      content = .chunk(chunk)
    case .manifest:
      let manifest = try ManifestRecord(meta: meta, algorithm: algorithm)
      guard payloadByteCount == manifest.payloadByteCount else {
        throw BlobStorageError(
          .corrupted, "A manifest has not as many entries as it says.", digest: manifest.digest)
      }
      content = .manifest(manifest)
    case .ref:
      guard payloadByteCount == 0 else { throw BlobStorageError(.corrupted, "A ref has a payload.") }
      content = .ref(try RefRecord(meta: meta, algorithm: algorithm))
    case .drop:
      content = .drop(try DropRecord(meta: meta, payload: dropPayload))
    case nil:
      guard header.typeNumber >= 128 else {
        throw BlobStorageError(
          .unsupportedFormat,
          "A record has type \(header.typeNumber), unknown to this build: use a later one.")
      }
      content = .skipped
    }
  }

  private static func flagsKnown(_ type: RecordType?) -> UInt8 {
    type == .ref || type == .drop ? RecordHeader.continues : 0
  }
}
