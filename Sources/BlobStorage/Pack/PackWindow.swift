/// A part of a pack's file that moves forward, so that small reads cost no system call each.
///
/// The file of a pack that is still written to may become shorter meanwhile: then it ends there.
struct PackWindow {
  let file: any File
  private(set) var end: Int64
  /// Where the last part ends that the medium could not read; 0 if there was none.
  private(set) var unreadableEnd: Int64 = 0
  /// Why the first of them could not be read.
  private(set) var unreadable: BlobStorageError?
  private var start: Int64 = 0
  private var content: [UInt8] = []
  private static let byteCount = 1 << 20
  /// The system reads as much at a time, and fails for all of it.
  private static let pageByteCount = 4 << 10

  init(file: any File, end: Int64) {
    self.file = file
    self.end = end
  }

  mutating func bytes(at offset: Int64, _ count: Int) throws(BlobStorageError) -> [UInt8] {
    let last = offset + Int64(count)
    if last <= end, offset < start || last > start + Int64(content.count) {
      try move(to: offset, atLeast: count)
    }
    guard last <= end else {
      throw BlobStorageError(.corrupted, "A record runs past the end of its pack.", offset: offset)
    }
    let first = Int(offset - start)
    return Array(content[first..<first + count])
  }

  /// The first place from `offset` on where `mark` stands.
  mutating func next(_ mark: [UInt8], from offset: Int64) throws(BlobStorageError) -> Int64? {
    var offset = offset
    while offset + Int64(mark.count) <= end {
      if offset < start || offset + Int64(mark.count) > start + Int64(content.count) {
        try move(to: offset, atLeast: mark.count)
        guard content.count >= mark.count else { return nil }
      }
      let first = Int(offset - start)
      for index in first...(content.count - mark.count) where content[index] == mark[0] {
        if content[index..<index + mark.count].elementsEqual(mark) { return start + Int64(index) }
      }
      offset = start + Int64(content.count - mark.count + 1)
    }
    return nil
  }

  private mutating func move(to offset: Int64, atLeast count: Int) throws(BlobStorageError) {
    let wanted = Int(min(end - offset, Int64(max(Self.byteCount, count))))
    do throws(BlobStorageError) { content = try file.bytesThere(at: offset, wanted) } catch {
      guard error.isUnreadable else { throw error }
      content = try readableBytes(at: offset, wanted)
    }
    start = offset
    if content.count < wanted { end = offset + Int64(content.count) }
  }

  /// The same bytes, with zeros for those that the medium cannot read: no checksum takes these for a record.
  private mutating func readableBytes(at offset: Int64, _ count: Int) throws(BlobStorageError) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(count)
    while bytes.count < count {
      let start = offset + Int64(bytes.count)
      let wanted = min(count - bytes.count, Self.pageByteCount - Int(start % Int64(Self.pageByteCount)))
      do throws(BlobStorageError) {
        let part = try file.bytesThere(at: start, wanted)
        bytes += part
        if part.count < wanted { return bytes }
      } catch {
        guard error.isUnreadable else { throw error }
        bytes += [UInt8](repeating: 0, count: wanted)
        unreadableEnd = max(unreadableEnd, start + Int64(wanted))
        unreadable = unreadable ?? error
      }
    }
    return bytes
  }
}
