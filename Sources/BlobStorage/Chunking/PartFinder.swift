/// Finds the borders between the parts of a container while its bytes pass.
///
/// The result depends on the blob's bytes alone, not on how they are split into calls.
struct PartFinder: Sendable {
  /// The longest header to read. A longer one ends the search, however many bytes are available.
  static let headerByteCountMax = 4 << 10

  private var parts: any ContainerParts
  private let longByteCount: UInt64
  /// The offset of the next header; nil once the search has ended.
  private var next: Int64?
  private var borders: [(offset: Int64, kind: PartBorder)] = []
  private var passedCount = 0

  /// - Parameters:
  ///   - beginning: the blob's first bytes.
  ///   - longByteCount: the length from which a part stands alone.
  init?(beginning: UnsafeRawBufferPointer, longByteCount: Int) {
    guard let (first, parts) = Self.parts(PartWindow(beginning)) else { return nil }
    self.parts = parts
    next = first
    self.longByteCount = UInt64(longByteCount)
  }

  /// Looks for magic bytes. Returns the offset of the first header and the reader of headers; nil if the blob is no
  /// container.
  ///
  /// - Parameter beginning: a blob's first bytes: at least 12, if it has as many.
  private static func parts(_ beginning: PartWindow) -> (Int64, any ContainerParts)? {
    if beginning.starts(with: [0xFF, 0xD8, 0xFF]) { return (2, JPEGParts()) }
    if beginning.starts(with: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) { return (8, PNGParts()) }
    // Also jar, docx, xlsx, epub and apk.
    if beginning.starts(with: ZIPParts.memberSignature) { return (0, ZIPParts()) }
    for type in BoxParts.firstTypes where beginning.starts(with: Array(type.utf8), at: 4) {
      return (0, BoxParts())
    }
    return nil
  }

  /// All borders before this offset are known. It is the offset of an incomplete header, or `.max` once the search has
  /// ended.
  var knownEnd: Int64 { next ?? .max }

  /// The next known border that has not been passed.
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

  /// Reads the headers in these bytes.
  ///
  /// - Parameter start: the offset of the bytes in the blob, at most ``knownEnd``.
  mutating func read(_ bytes: UnsafeRawBufferPointer, at start: Int64) {
    while let offset = next, offset >= start, offset - start < bytes.count {
      let window = PartWindow(
        UnsafeRawBufferPointer(rebasing: bytes[Int(offset - start)...].prefix(Self.headerByteCountMax)))
      switch parts.header(in: window, longByteCount: longByteCount) {
      case .incomplete(let byteCount):
        if byteCount <= window.byteCount || byteCount > Self.headerByteCountMax { next = nil }
        return
      case .end(let before):
        addBorder(offset, before)
        next = nil
      case .part(let part):
        addBorder(offset, part.before)
        if let byteCount = part.headerByteCount { addBorder(offset + Int64(byteCount), .always) }
        // A part that would end behind the longest possible blob is the last.
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
