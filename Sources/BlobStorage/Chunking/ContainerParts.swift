/// Reads the headers of one container in sequence.
///
/// A header is only a hint where to cut. Whatever it says, every blob can be stored.
protocol ContainerParts: Sendable {
  /// - Parameter longByteCount: the length from which a part stands alone.
  mutating func header(in window: PartWindow, longByteCount: UInt64) -> PartHeader
}

/// The content of a header.
enum PartHeader: Equatable, Sendable {
  /// The header is longer: at least this many bytes.
  case incomplete(byteCount: Int)
  case part(Part)
  /// No part is looked for from here on.
  case end(before: PartBorder)

  struct Part: Equatable, Sendable {
    /// The length with the header. The next header follows.
    var byteCount: UInt64
    var before = PartBorder.none
    /// The length of the header, if there is a border after it.
    var headerByteCount: Int?
    var after = PartBorder.none
  }
}

/// Whether a chunk ends between two parts.
enum PartBorder: Sendable {
  case none
  /// If the chunk then has the minimum length.
  case ifLong
  case always
}
