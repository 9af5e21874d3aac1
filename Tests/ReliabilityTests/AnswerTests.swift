import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// What a store answers for its keys: nothing but the newest state may come back without an error.
struct Answers: Equatable {
  enum Answer: Equatable {
    case value(Data)
    case absent
    case damaged
  }

  /// Of each key the current value, then all versions as they are listed; of every key whether it is listed.
  var current: [String: Answer] = [:]
  var versions: [String: [Answer]] = [:]
  var listed: [String: Bool] = [:]

  static func read(_ engine: Engine, _ keys: [String]) throws -> Answers {
    var answers = Answers()
    let listed = Set(try engine.keys("", after: nil, limit: 1_000).map(\.key))
    for key in keys {
      answers.listed[key] = listed.contains(key)
      answers.current[key] = try answer { try engine.data(key, nil) }
      do {
        answers.versions[key] = try engine.versions(key).map { version in
          try answer { try engine.data(key, version.id) }
        }
      } catch let error as BlobStorageError where error.code == .corrupted {
        answers.versions[key] = nil
      }
    }
    return answers
  }

  private static func answer(_ read: () throws -> Data?) throws -> Answer {
    do { return try read().map { .value($0) } ?? .absent } catch let error as BlobStorageError {
      guard error.code == .corrupted else { throw error }
      return .damaged
    }
  }

  /// Throws unless these are the answers of `other`, but for what is damaged by now.
  func checkNotStale(comparedTo other: Answers, _ moment: String) throws {
    for (key, expected) in other.current {
      guard current[key] == expected || current[key] == .damaged else {
        throw Broken("\(moment): key \(key) reads as \(current[key] ?? .absent), not \(expected)")
      }
      guard let found = versions[key] else { continue }
      let expected = other.versions[key] ?? []
      guard found.count == expected.count,
        zip(found, expected).allSatisfy({ $0 == $1 || $0 == .damaged })
      else { throw Broken("\(moment): key \(key) has versions \(found), not \(expected)") }
      guard listed[key] == other.listed[key] else {
        throw Broken("\(moment): key \(key) is \(listed[key] == true ? "" : "not ")listed")
      }
    }
  }

  /// Throws unless everything that could be read in `other` reads the same here.
  func checkNothingLost(since other: Answers, _ moment: String) throws {
    for (key, before) in other.current where before != .damaged && current[key] != before {
      throw Broken("\(moment): key \(key) reads as \(current[key] ?? .absent), before as \(before)")
    }
    for (key, before) in other.versions {
      let found = versions[key] ?? []
      guard found.count == before.count,
        zip(found, before).allSatisfy({ $0 == $1 || $1 == .damaged })
      else { throw Broken("\(moment): key \(key) has versions \(found), before \(before)") }
    }
  }
}

/// No damage of one place makes a store answer with anything but its newest state, and no repair makes it worse.
@Suite("Answers after damage", .serialized)
struct AnswerTests {
  static let keys = ["replaced", "deleted", "archived", "long", "never"]

  /// Replaced versions, a deleted key, a history, a blob of several chunks: in several sessions, so in several packs.
  static func fill(_ lab: Lab, closes: Bool) throws -> Engine? {
    try lab.session { engine in
      try lab.put(engine, [("replaced", Data("old".utf8))])
      try lab.put(engine, [("deleted", Data("should never come back".utf8))])
      try lab.put(engine, [("archived", Data("first".utf8))])
      try lab.put(engine, [("long", noise(1, 2_500))])
    }
    let engine = try lab.open()
    try lab.put(engine, [("replaced", Data("new".utf8))])
    try lab.put(engine, [("archived", Data("second".utf8))], archives: true)
    try lab.delete(engine, ["deleted"])
    try lab.put(engine, [("long", noise(2, 2_500))])
    // Whatever follows tells how much of the pack had been synced.
    try lab.put(engine, [("last", Data("end".utf8))])
    if closes { try engine.close() }
    return closes ? nil : engine
  }

  static func truth(of lab: Lab) throws -> Answers {
    let engine = try lab.open()
    let answers = try Answers.read(engine, keys)
    try engine.close()
    return answers
  }

  /// Damages a copy of the store and compares what it answers: at once, after a repair, and with a rebuilt catalog.
  static func examine(
    _ origin: Lab, _ truth: Answers, keepsCatalog: Bool, _ damage: (Lab) throws -> Void
  ) throws {
    let lab = try origin.copy()
    try damage(lab)
    if !keepsCatalog { try lab.forgetCatalog() }
    let engine = try lab.open()
    let before = try Answers.read(engine, keys)
    // What may be out of date is told by every command, until it is repaired or accepted.
    if try engine.losses().isEmpty { try before.checkNotStale(comparedTo: truth, "before repair") }
    _ = try engine.repair()
    try Answers.read(engine, keys).checkNothingLost(since: before, "after repair")
    try engine.close()
    try lab.forgetCatalog()
    try lab.session { engine in
      let found = try Answers.read(engine, keys)
      try found.checkNothingLost(since: before, "after repair, with a new catalog")
      let report = try engine.verify()
      guard report.damaged.allSatisfy({ !$0.keys.isEmpty }) || !report.losses.isEmpty else {
        throw Broken("verify finds damage after a repair that no key needs: \(report.damaged)")
      }
    }
  }

  /// Each record of each pack that is a ref or a drop, the pack's header, and a block of the footer.
  static func places(_ lab: Lab) throws -> [(path: FilePath, offset: Int)] {
    var places: [(FilePath, Int)] = []
    for path in try DamageTests.paths(lab) {
      let bytes = try DamageTests.bytes(lab, path)
      for range in try DamagedRecordTests.records(lab, path) {
        guard bytes[range.lowerBound + 2] == RecordType.commit.rawValue else { continue }
        places.append((path, range.lowerBound + 15))
      }
      places += [(path, 21), (path, 45), (path, bytes.count - 100)]
    }
    return places
  }

  @Test("a flipped bit in each ref, drop and header of sealed packs")
  func refs() throws {
    let origin = try Lab()
    _ = try Self.fill(origin, closes: true)
    let truth = try Self.truth(of: try origin.copy())
    for (index, place) in try Self.places(origin).enumerated() {
      try Self.examine(origin, truth, keepsCatalog: index.isMultiple(of: 2)) { lab in
        try DamageTests.change(lab, place.path) { $0[place.offset] ^= 4 }
      }
    }
  }

  @Test("a flipped bit in a sealed pack, with the old catalog and with a new one")
  func sealed() throws {
    let origin = try Lab()
    _ = try Self.fill(origin, closes: true)
    let truth = try Self.truth(of: try origin.copy())
    try flipEverywhere(origin, truth, withNewCatalog: true)
  }

  @Test("a flipped bit in a pack whose writer was killed")
  func unsealed() throws {
    let origin = try Lab()
    let living = try Self.fill(origin, closes: false)
    let killed = try origin.afterKill(origin.catalog)
    _ = living
    let truth = try Self.truth(of: try killed.copy())
    // Without a footer there is no second copy: what the catalog does not know either is lost, and told.
    try flipEverywhere(killed, truth, withNewCatalog: true)
  }

  private func flipEverywhere(_ origin: Lab, _ truth: Answers, withNewCatalog: Bool) throws {
    for path in try DamageTests.paths(origin) {
      let count = Int(try origin.disk.status(of: path)?.byteCount ?? 0)
      for (index, offset) in stride(from: 0, to: count, by: Soak.isOn ? 1 : 611).enumerated() {
        for keepsCatalog in [true, false] {
          if !keepsCatalog, !withNewCatalog { continue }
          if !Soak.isOn, withNewCatalog, keepsCatalog == index.isMultiple(of: 2) { continue }
          do {
            try Self.examine(origin, truth, keepsCatalog: keepsCatalog) { lab in
              try DamageTests.change(lab, path) { $0[offset] ^= 1 << UInt8(offset % 8) }
            }
          } catch {
            Issue.record("byte \(offset) of \(path), catalog kept: \(keepsCatalog): \(error)")
          }
          Soak.count("compared flips")
        }
      }
    }
    Soak.printCounts("answers")
  }
}
