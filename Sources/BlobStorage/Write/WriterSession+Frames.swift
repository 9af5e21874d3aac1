import Synchronization

/// Appending several small chunks as one record.
extension WriterSession {
  /// Appends a frame; a later commit makes its members visible.
  ///
  /// - Returns: bytes that were added to the pack.
  @discardableResult
  package func append(_ frame: FrameRecord, payload: RawSpan) throws(BlobStorageError) -> Int {
    try appending { (packs, time) throws(BlobStorageError) in
      try self.append(frame, payload: payload, to: &packs, time: time)
    }
  }

  /// Appends a frame or a chunk.
  func append(_ part: JoinedChunks.Part) throws(BlobStorageError) -> Int {
    switch part {
    case .frame(let frame, let stored): try append(frame, payload: stored.span.bytes)
    case .chunk(let chunk, let stored): try append(.chunk(chunk), payload: stored.span.bytes)
    }
  }

  /// Appends a frame under the append lock, in a new pack if there is none.
  func append(
    _ frame: FrameRecord, payload: RawSpan, to packs: inout OpenPacks, time: UInt64
  ) throws(BlobStorageError) -> Int {
    guard let writer = try writer(&packs, time: time) else { return 0 }
    if let poison = locked({ $0.admit(frame) }) { throw poison }
    let before = writer.byteCount
    do throws(BlobStorageError) {
      for record in try writer.append(frame, payload: payload) {
        packs.pending.append((writer.header, record))
      }
    } catch {
      lose(writer, &packs, error)
      throw error
    }
    addedCount.wrappingAdd(writer.byteCount - before, ordering: .relaxed)
    return Int(writer.byteCount - before)
  }
}
