import BlobStorage

/// Snapshots that follow each other: those of one prefix with the same sources and, if they were taken over from
/// another program, of the same host.
///
/// Retention thins out each series by itself. Snapshots that an earlier build recorded are one series for each prefix.
public struct TreeSeries: Sendable, Hashable, Codable {
  public var prefix: String
  /// Tells the series of a prefix apart: a number made of sources and host. 0 for snapshots of an earlier build.
  var number: UInt64

  init(prefix: String, number: UInt64) {
    self.prefix = prefix
    self.number = number
  }

  /// - Parameter origin: what tells the series apart, in any order.
  init(prefix: String, origin: [String]) {
    self.prefix = prefix
    // No path has a NUL.
    let text = Set(origin.map { Array($0.utf8) }).sorted { $0.precedes($1) }.joined(separator: [0])
    number = BlobDigest.of(Array(text)).withUnsafeBytes { $0.loadUnaligned(as: UInt64.self).littleEndian }
  }

  public static func == (one: Self, other: Self) -> Bool {
    one.number == other.number && one.prefix.utf8.elementsEqual(other.prefix.utf8)
  }

  public func hash(into hasher: inout Hasher) {
    hasher.combine(number)
    for byte in prefix.utf8 { hasher.combine(byte) }
  }

  public init(from decoder: any Decoder) throws {
    let text = try decoder.singleValueContainer().decode(String.self)
    guard let number = Hex.integer(UInt64.self, text.prefix(16)), text.utf8.dropFirst(16).first == 0x20 else {
      throw DecodingError.dataCorrupted(
        DecodingError.Context(codingPath: decoder.codingPath, debugDescription: "not a series"))
    }
    self.init(prefix: String(text.dropFirst(17)), number: number)
  }

  /// Its number in hexadecimal digits, and its prefix behind a blank.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(Hex.text(number) + " " + prefix)
  }
}

/// Where an import or a snapshot that is taken over comes from.
package struct TreeOrigin: Sendable, Hashable {
  /// The paths, as a person reads them.
  package var sources: [String]
  /// What tells its series from others of its prefix.
  package var identity: [String]
  package var host: String?
  /// Whether its time comes from another program, whose snapshots have an order of their own.
  package var isTakenOver: Bool

  package init(_ sources: [String], identity: [String]? = nil, host: String? = nil, isTakenOver: Bool = false)
  {
    self.sources = sources
    self.identity = identity ?? sources
    self.host = host
    self.isTakenOver = isTakenOver
  }
}
