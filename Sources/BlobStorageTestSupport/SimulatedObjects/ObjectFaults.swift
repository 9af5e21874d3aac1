import BlobStorage

/// One kind of call on an object store.
package enum ObjectCallKind: String, Sendable, Hashable, CaseIterable {
  case put, get, tail, list, delete
}

/// One request that is about to be made.
package struct ObjectCall: Sendable, CustomStringConvertible {
  package let kind: ObjectCallKind
  /// The name, or the prefix of a listing.
  package let name: String
  /// The ordinal of this try of the same call, from 1.
  package let attempt: Int

  package var description: String { "\(kind.rawValue) \(name)" + (attempt > 1 ? " again" : "") }
}

/// How often what goes wrong, each in parts of a thousand requests.
package struct ObjectFaults: Sendable {
  /// The object store says 500 or 503, and has done nothing.
  package var failures = 0
  /// It was done, and the answer was lost.
  package var lostAnswers = 0
  /// The answer was lost, and it is done later.
  package var latePuts = 0
  package var lateDeletes = 0
  /// It is done, and once more later.
  package var doubledPuts = 0
  package var doubledDeletes = 0
  /// By how many requests of all later is late, at most.
  package var lateCallCountMax = 60
  /// How often a call is tried before it fails.
  package var attemptCountMax = 4
  /// Entries of one page.
  package var pageCount = 1_000
  /// Of several puts with `ifAbsent` at the same time, all store.
  package var ignoresIfAbsent = false

  package init() {}

  /// Everything goes wrong now and then.
  package static func some(_ random: inout some RandomNumberGenerator) -> ObjectFaults {
    var faults = ObjectFaults()
    let most = [0, 20, 80].randomElement(using: &random) ?? 20
    faults.failures = .random(in: 0...most, using: &random)
    faults.lostAnswers = .random(in: 0...most, using: &random)
    faults.latePuts = .random(in: 0...most, using: &random)
    faults.lateDeletes = .random(in: 0...most, using: &random)
    faults.doubledPuts = .random(in: 0...most, using: &random)
    faults.doubledDeletes = .random(in: 0...most, using: &random)
    faults.lateCallCountMax = [10, 100, 1_000].randomElement(using: &random) ?? 100
    faults.attemptCountMax = .random(in: 1...4, using: &random)
    faults.pageCount = [2, 9, 1_000].randomElement(using: &random) ?? 3
    return faults
  }
}
