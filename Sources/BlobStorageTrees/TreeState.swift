import BlobStorage
import Foundation

/// The files, links and folders that one import found, with the version of each file.
///
/// A state names versions and does not own them. A version that is deleted is missing from its states; listing and
/// exporting them report that.
public struct TreeState: Sendable, Hashable, Codable {
  /// Names the state in its store: 16 hexadecimal digits.
  public struct ID: Sendable, Hashable, Codable, LosslessStringConvertible {
    let number: UInt64

    init(_ number: UInt64) { self.number = number }

    public init?(_ description: String) {
      guard description.utf8.count == 16, let number = Hex.integer(UInt64.self, description[...]) else {
        return nil
      }
      self.number = number
    }

    public var description: String { Hex.text(number) }

    public init(from decoder: any Decoder) throws {
      let container = try decoder.singleValueContainer()
      guard let id = ID(try container.decode(String.self)) else {
        throw DecodingError.dataCorruptedError(in: container, debugDescription: "not the ID of a state")
      }
      self = id
    }

    public func encode(to encoder: any Encoder) throws {
      var container = encoder.singleValueContainer()
      try container.encode(description)
    }
  }

  public var id: ID
  /// The name that the import gave it, with a number if that was taken meanwhile.
  public var name: String?
  /// The prefix of its keys.
  public var prefix: String
  /// When the import began by the wall clock of its machine, or the time of the snapshot that was taken over.
  public var created: Date
  /// The absolute paths that were imported.
  public var sources: [String] = []
  /// The machine that a snapshot of another program was made on; nil if that is not known, and for an import of files.
  public var host: String?
  /// The snapshots that it is a later or earlier one of: those of one prefix with the same sources and host.
  public var series: TreeSeries
  public var fileCount = 0
  public var linkCount = 0
  public var folderCount = 0
  /// The length of all files together.
  public var byteCount: Int64 = 0
  /// Files that could not be read, and that the snapshot lacks.
  public var failureCount = 0
  /// The paths of some of them: as many as its record has room for.
  public var failedPaths: [String] = []

  public init(id: ID, name: String? = nil, prefix: String, created: Date) {
    self.id = id
    self.name = name
    self.prefix = prefix
    self.created = created
    series = TreeSeries(prefix: prefix, number: 0)
  }

  private enum CodingKeys: String, CodingKey {
    case id, name, prefix, created, sources, host, series, byteCount, failedPaths
    case fileCount = "files"
    case linkCount = "links"
    case folderCount = "folders"
    case failureCount = "failed"
  }

  /// Whether it has files, and all that the import was to store. Another one displaces no complete one of its series.
  public var isComplete: Bool { failureCount == 0 && fileCount + linkCount > 0 }

  /// Its text for a person: the name, or else the ID.
  public var text: String { name ?? id.description }
}
