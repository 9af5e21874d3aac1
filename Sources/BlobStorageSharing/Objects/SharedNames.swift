import BlobStorage

/// The names of a shared store's objects, below the store's place. Format.md, "Objects of a shared store".
package enum SharedNames {
  package static let store = "store"
  package static let packs = "packs/"
  package static let writers = "writers/"
  package static let collections = "collections/"
  package static let checkpoints = "checkpoints/"
  package static let acks = "acks/"
  package static let changes = "changes/"
  package static let index = "index/"
  /// The common prefix of changes and of the log's objects. A machine that knows the store lists only these.
  static let news = "c"

  package static func pack(_ name: PackName) -> String { packs + name.fileName }

  /// The prefix of a writer's packs.
  package static func packs(of writer: UInt64) -> String { packs + Hex.text(writer) + "-" }

  package static func writer(_ writer: UInt64) -> String { writers + Hex.text(writer) }

  package static func collection(_ number: UInt32) -> String { collections + Hex.text(number) }

  package static func checkpoint(_ number: UInt32) -> String { checkpoints + Hex.text(number) }

  package static func change(_ number: UInt32) -> String { changes + Hex.text(number) }

  /// The parts of an index root's name.
  package struct IndexName: Hashable, Sendable {
    package var number: UInt64
    package var run: UInt64
  }

  /// The name of an index's root.
  package static func index(_ name: IndexName) -> String {
    index + Hex.text(name.number) + "." + Hex.text(name.run)
  }

  package static func indexPart(_ name: PackName) -> String { index + "\(name)" }

  /// The prefix of a condemnation's acks.
  package static func acks(of epoch: UInt32) -> String { acks + Hex.text(epoch) + "/" }

  package static func ack(_ epoch: UInt32, _ writer: UInt64) -> String { acks(of: epoch) + Hex.text(writer) }

  // MARK: Decoding

  /// Parses the name of a pack's object; nil for any other name.
  package static func packName(_ name: String) -> PackName? {
    guard name.hasPrefix(packs) else { return nil }
    return PackName(fileName: String(name.dropFirst(packs.count)))
  }

  /// Parses a registration's name; nil for any other name.
  package static func writerNumber(_ name: String) -> UInt64? { integer(name, after: writers) }

  /// Parses a log entry's name; nil for any other name.
  package static func collectionNumber(_ name: String) -> UInt32? { integer(name, after: collections) }

  /// Parses a checkpoint's name; nil for any other name.
  package static func checkpointNumber(_ name: String) -> UInt32? { integer(name, after: checkpoints) }

  /// Parses a change's name; nil for any other name.
  package static func changeNumber(_ name: String) -> UInt32? { integer(name, after: changes) }

  /// Parses the name of an ack of `epoch`; nil for any other name.
  package static func ackWriter(_ name: String, epoch: UInt32) -> UInt64? {
    integer(name, after: acks(of: epoch))
  }

  /// Parses the name of an index's root; nil for any other name.
  package static func indexName(_ name: String) -> IndexName? {
    let words = name.split(separator: ".", omittingEmptySubsequences: false)
    guard words.count == 2, let number: UInt64 = integer(String(words[0]), after: index),
      let run: UInt64 = integer(String(words[1]), after: "")
    else { return nil }
    return IndexName(number: number, run: run)
  }

  /// Parses the name of a run's part, and returns the run; nil for any other name.
  package static func runNumber(_ name: String) -> UInt64? {
    guard name.hasPrefix(index) else { return nil }
    return PackName(fileName: name.dropFirst(index.count) + ".part", ending: "part")?.writer
  }

  /// Parses an ack's name, and returns the condemnation; nil for any other name.
  package static func ackEpoch(_ name: String) -> UInt32? {
    guard name.hasPrefix(acks),
      let epoch = Hex.integer(UInt32.self, name.dropFirst(acks.count).prefix(8)),
      ackWriter(name, epoch: epoch) != nil
    else { return nil }
    return epoch
  }

  private static func integer<T: FixedWidthInteger & UnsignedInteger>(_ name: String, after prefix: String)
    -> T?
  {
    guard name.hasPrefix(prefix) else { return nil }
    let digits = name.dropFirst(prefix.count)
    // Each number has one spelling, with lower-case digits.
    guard let number = Hex.integer(T.self, digits), Hex.text(number) == digits else { return nil }
    return number
  }
}
