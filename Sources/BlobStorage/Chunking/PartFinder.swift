/// Where the parts of a container end, found while its bytes go by.
///
/// What it finds depends on the blob's bytes alone, however they are handed over.
struct PartFinder: Sendable {
  /// Of a longer header no more is looked at, however many bytes are there.
  static let headerByteCountMax = 4 << 10

  private var parts: any ContainerParts
  private let longByteCount: UInt64
  /// Where the next header begins; nil when no more are looked for.
  private var next: Int64?
  private var borders: [(offset: Int64, kind: PartBorder)] = []
  private var passedCount = 0

  /// - Parameters:
  ///   - beginning: the blob's first bytes.
  ///   - longByteCount: the length from which a part stands alone.
  init?(beginning: UnsafeRawBufferPointer, longByteCount: Int) {
    guard let kind = ContainerKind(beginning: PartWindow(beginning)) else { return nil }
    let (first, parts) = kind.parts
    self.parts = parts
    next = first
    self.longByteCount = UInt64(longByteCount)
  }

  /// Up to here, all borders are known: at a header that is not whole yet, or behind all there is.
  var knownEnd: Int64 { next ?? .max }

  /// The next border that has not been passed, if it is known.
  var nextBorder: (offset: Int64, kind: PartBorder)? {
    passedCount < borders.count ? borders[passedCount] : nil
  }

  mutating func passBorder() {
    passedCount += 1
    if passedCount == borders.count {
      borders.removeAll(keepingCapacity: true)
      passedCount = 0
    }
  }

  /// Reads the headers that are in these bytes.
  ///
  /// - Parameter start: where they begin in the blob: not behind ``knownEnd``.
  mutating func read(_ bytes: UnsafeRawBufferPointer, at start: Int64) {
    while let offset = next, offset >= start, offset - start < bytes.count {
      let window = PartWindow(
        UnsafeRawBufferPointer(rebasing: bytes[Int(offset - start)...].prefix(Self.headerByteCountMax)))
      switch parts.header(in: window, longByteCount: longByteCount) {
      case .incomplete(let byteCount):
        guard byteCount > window.byteCount, byteCount <= Self.headerByteCountMax else {
          next = nil
          return
        }
        return
      case .end(let before):
        addBorder(offset, before)
        next = nil
      case .part(let part):
        addBorder(offset, part.before)
        if let byteCount = part.headerByteCount { addBorder(offset + Int64(byteCount), .always) }
        // A part that would end behind the longest blob is the last.
        guard part.byteCount > 0, part.byteCount <= UInt64(BlobLimits.maximumBlobByteCount - offset) else {
          next = nil
          return
        }
        next = offset + Int64(part.byteCount)
        addBorder(offset + Int64(part.byteCount), part.after)
      }
    }
  }

  private mutating func addBorder(_ offset: Int64, _ kind: PartBorder) {
    if kind != .none { borders.append((offset, kind)) }
  }
}
