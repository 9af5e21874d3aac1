import BlobStorage
import BlobStorageReports
import Foundation
import SystemPackage
import Testing

/// A store that two engines have open, each with its own tails, slots and open files: they stand for two processes.
struct Pair: Sendable {
  let place: StorePlace
  let one: Engine
  let two: Engine

  init(
    _ environment: Engine.Environment = Pair.environment,
    options: StoreOptions = StoreOptions(averageChunkByteCount: 1_024)
  ) throws {
    place = try StorePlace(options)
    one = try place.engine(environment)
    two = try place.engine(environment)
    // Else no view would have tails, and all would be seen in the catalog.
    try #require(one.catalog.live.table != nil && two.catalog.live.table != nil)
  }

  /// The start of the machine has a name everywhere.
  static var environment: Engine.Environment {
    var environment = Engine.Environment()
    environment.bootIdentity = "boot"
    environment.commitPatienceSeconds = 0.05
    // Nothing is settled because time has passed.
    environment.time = PassingTime(now: { 0 }, wait: { _ in })
    return environment
  }

  var both: [Engine] { [one, two] }

  func close() throws {
    try one.close()
    try two.close()
  }

  /// What may happen between a change and the next look.
  enum Between: String, CaseIterable, Sendable {
    case nothing, settleOne, settleTwo, sealOne, sealTwo, rebuildOne, rebuildTwo, collectOne, collectTwo
  }

  func run(_ between: Between) throws {
    switch between {
    case .nothing: break
    case .settleOne: try one.catalog.settle()
    case .settleTwo: try two.catalog.settle()
    case .sealOne: try one.writer.rollOver()
    case .sealTwo: try two.writer.rollOver()
    case .rebuildOne: try one.catalog.rebuild(because: nil)
    case .rebuildTwo: try two.catalog.rebuild(because: nil)
    case .collectOne, .collectTwo:
      let engine = between == .collectOne ? one : two
      let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.1))
      #expect(report.obstacles == [])
    }
  }
}

/// All that a store answers, in a form that can be compared.
func answers(of engine: Engine) throws -> [String] {
  var lines = try contents(of: engine)
  for entry in try engine.keys("", after: nil, limit: .max) {
    let information = try #require(try BlobInformation.find(engine, entry.key, nil))
    lines.append(
      "\(entry.key) \(information.chunkCount) \(information.storedByteCount) \(information.exclusiveByteCount)"
    )
  }
  var statistics = try engine.statistics()
  statistics.diskByteCount = 0
  lines.append("\(statistics)")
  return lines
}

extension Engine {
  /// Whether the tails are due.
  var hasLongTails: Bool { catalog.tails.isLong }

  /// The rows of all packs.
  func packRows() throws -> [PackRow] {
    try catalog.read { (transaction) throws(BlobStorageError) in try transaction.packRows().map(\.row) }
  }

  /// The slots in use, as this engine sees the table of open packs.
  func slots() -> [LiveTable.Entry] { catalog.live.table?.entries() ?? [] }

  /// The slot of the pack that this engine writes.
  func ownSlot() -> LiveTable.Entry? { slots().first { $0.pack.writer == writer.writerID } }
}
