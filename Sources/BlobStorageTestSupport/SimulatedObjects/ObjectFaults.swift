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

/// How often each fault happens, in thousandths of requests.
package struct ObjectFaults: Sendable {
  /// The object store answers 500 or 503, and does nothing.
  package var failures = 0
  /// The request is done, and the answer is lost.
  package var lostAnswers = 0
  /// The answer is lost, and the request is done later.
  package var latePuts = 0
  package var lateDeletes = 0
  /// The request is done, and once more later.
  package var doubledPuts = 0
  package var doubledDeletes = 0
  /// The most requests that come between a late request and its effect.
  package var lateCallCountMax = 60
  /// The number of attempts before a call fails.
  package var attemptCountMax = 4
  /// Entries of one page.
  package var pageCount = 1_000
  /// Whether several puts with `ifAbsent` at the same time all store.
  package var ignoresIfAbsent = false

  package init() {}

  /// Random rates of all faults.
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
