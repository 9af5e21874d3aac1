import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation

/// What a store broke, in words.
struct Broken: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

extension Lab {
  /// What must hold after every crash:
  ///
  /// 1. What was acknowledged is there (after a power cut: what was acknowledged as durable); what was not is there
  ///    whole or not at all; versions are in the order in which they were put.
  /// 2. Every version that can be seen reads as what was put.
  /// 3. `verify` finds no damage.
  /// 4. A collection meets no obstacle, and afterwards 1 to 3 hold unchanged; in a soak also after a second one.
  /// 5. A catalog rebuilt from the packs says the same, statistics included.
  /// 6. A new version can be put, and is the newest.
  ///
  /// 10. A blob that a put without a key has stored is held, and stays so: see ``checkHolds(_:_:)``.
  ///
  /// And while many processes run (``Simulation``, ``RaceTests``):
  ///
  /// 7. A reader finds a version that could be the current one at some time of its call, and reads its bytes; an open
  ///    blob reads as what was put, whatever is dropped and collected.
  /// 8. A writer finds what it has done itself, and what came of its predecessor's last change when that was killed.
  /// 9. No process waits for ever.
  func checkInvariants(afterPowerCut: Bool, collects: Bool = true) throws {
    var engine = try open()
    try adopt(engine, afterPowerCut: afterPowerCut)
    try checkSound(engine, "at first")
    if collects {
      for pass in 1...(Soak.isOn ? 2 : 1) {
        let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.1))
        if !report.obstacles.isEmpty { throw Broken("4: obstacles in pass \(pass): \(report.obstacles)") }
        do { try checkSound(engine, "after collection \(pass)") } catch {
          throw Broken("\(error) \(report) \(disk.calls.suffix(150).filter { $0.mutationNumber != nil })")
        }
      }
    }
    let statistics = try engine.statistics()
    // For the message alone, and slow.
    let places = Soak.isOn ? try Self.places(engine) : []
    try engine.close()
    try forgetCatalog()
    engine = try open()
    try checkSound(engine, "after the rebuild")
    let rebuilt = try engine.statistics()
    if Self.comparable(statistics) != Self.comparable(rebuilt) {
      let moved = Soak.isOn ? places.symmetricDifference(try Self.places(engine)).sorted() : []
      throw Broken("5: statistics were \(statistics), after the rebuild \(rebuilt); only in one: \(moved)")
    }
    try put(engine, [("check", noise(UInt64(model.changes.count) + 77, 600))], archives: true)
    try checkSound(engine, "after the last put")
    try repeatHolds(engine)
    try engine.close()
  }

  /// Invariant 1: finds out which of the changes that were open have come to pass.
  func adopt(_ engine: Engine, afterPowerCut: Bool) throws {
    let found = try observed(engine)
    guard let subset = model.explanation(of: found, afterPowerCut: afterPowerCut) else {
      throw Broken("1: found \(found), which is no outcome of \(model.describe())")
    }
    model.adopt(subset)
  }

  /// Invariants 2 and 3, and that the state is the model's.
  func checkSound(_ engine: Engine, _ when: String) throws {
    let found = try observed(engine)
    if !model.matches(found) { throw Broken("1 \(when): found \(found), expected \(model.state)") }
    let report = try engine.verify()
    if !report.damaged.isEmpty { throw Broken("3 \(when): \(report.damaged)") }
    if !report.losses.isEmpty { throw Broken("3 \(when): \(report.losses)") }
    try checkHolds(engine, when)
    try Self.checkUnsettled(engine, when)
  }

  /// The catalog counts the packs right that are not settled.
  static func checkUnsettled(_ engine: Engine, _ when: String) throws {
    let (counted, count) = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      (try transaction.meta(.unsettledPacks), try transaction.packRows().count { !$0.row.isSettled })
    }
    guard counted == count else {
      throw Broken("\(when): \(counted) packs count as not settled, and \(count) are not")
    }
  }

  /// What can be seen, as numbers of the model's versions; every one is read and compared.
  func observed(_ engine: Engine, keys: Set<String>? = nil) throws -> [String: [Int]] {
    var found: [String: [Int]] = [:]
    for entry in try engine.keys("", after: nil, limit: 10_000) where keys?.contains(entry.key) ?? true {
      let versions = try engine.versions(entry.key)
      if versions.isEmpty || versions.count != entry.versionCount {
        throw Broken(
          "1: key \(entry.key) is listed with \(entry.versionCount) versions and has \(versions.count)")
      }
      if zip(versions, versions.dropFirst()).contains(where: { $0.id.stamp <= $1.id.stamp }) {
        throw Broken("1: the versions of key \(entry.key) are out of order")
      }
      var numbers: [Int] = []
      for version in versions {
        let data = try engine.data(entry.key, version.id)
        guard let data else {
          throw Broken("2: version \(version.id) of key \(entry.key) is listed and not there")
        }
        guard let number = Self.number(version.metadata), model.contents[number] == data
        else { throw Broken("2: key \(entry.key) reads as \(data.count) bytes that no process put") }
        numbers.append(number)
      }
      found[entry.key] = numbers
    }
    return found
  }

  /// Packs with the bytes that were applied, and where chunks and versions lie.
  private static func places(_ engine: Engine) throws -> Set<String> {
    let keys = try engine.keys("", after: nil, limit: 10_000).map(\.key)
    return try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var places: Set<String> = []
      var names: [UInt32: PackName] = [:]
      for (number, row) in try transaction.packRows() {
        names[number] = row.name
        places.insert("pack \(row.name), created \(row.created): \(row.appliedByteCount)")
      }
      func insert(_ what: String, _ place: Place, _ byteCount: Int) {
        places.insert(
          "\(what): \(byteCount) bytes at \(place.offset) of \(names[place.pack].map(String.init) ?? "none")")
      }
      try transaction.forEachChunk { (digest, row) throws(BlobStorageError) in
        insert("chunk \(digest)", row.place, row.recordByteCount)
        return true
      }
      for key in keys {
        guard let name = try transaction.nameRow(Array(key.utf8)) else { continue }
        for version in try transaction.versions(of: name) {
          insert("version \(version.stamp) of \(key)", version.row.place, version.row.recordByteCount)
        }
      }
      return places
    }
  }

  private static func comparable(_ statistics: StoreStatistics) -> StoreStatistics {
    var statistics = statistics
    statistics.diskByteCount = 0
    statistics.packCount = 0
    return statistics
  }
}
