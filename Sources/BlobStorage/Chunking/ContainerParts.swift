/// Reads the headers of one container, one after the other.
///
/// A header is a hint of where to cut and nothing else: whatever it says, every blob can be stored.
protocol ContainerParts: Sendable {
  /// - Parameter longByteCount: the length from which a part stands alone.
  mutating func header(in window: PartWindow, longByteCount: UInt64) -> PartHeader
}

/// What a header says.
enum PartHeader: Equatable, Sendable {
  /// It has this many bytes at least.
  case incomplete(byteCount: Int)
  case part(Part)
  /// Nothing behind it is looked at.
  case end(before: PartBorder)

  struct Part: Equatable, Sendable {
    /// With its header: the next one stands behind it.
    var byteCount: UInt64
    var before = PartBorder.none
    /// How long the header is, if there is a border behind it.
    var headerByteCount: Int?
    var after = PartBorder.none
  }
}

/// Whether a chunk ends between two parts.
enum PartBorder: Sendable {
  case none
  /// If it has the least length of a chunk by then.
  case ifLong
  case always
}
