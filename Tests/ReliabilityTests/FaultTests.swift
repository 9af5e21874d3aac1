import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// Every scenario of the crash tests, recovery and collection among them, with one of its calls failing.
@Suite("Calls that fail")
struct FaultTests {
  /// What fails, and how.
  struct Failing: CustomStringConvertible {
    var errno: Errno
    var isPermanent = false
    /// Of a write, half its bytes land.
    var landsInPart = false

    static let all = [
      Failing(errno: .ioError), Failing(errno: .ioError, isPermanent: true),
      Failing(errno: .noSpace, landsInPart: true), Failing(errno: .noSpace, isPermanent: true),
      Failing(errno: .interrupted),
    ]

    var description: String { "\(errno)\(isPermanent ? " for good" : "")\(landsInPart ? ", in part" : "")" }
  }

  /// What comes after the failure.
  enum Sequel: CaseIterable {
    /// The process ends and another opens the store.
    case restart
    case powerCut
    /// Another process puts the same bytes under other keys, durably; then the power fails.
    case sharing
  }

  /// What a scenario begins with, and the calls that it makes when none fails and that can fail.
  private func calls(of scenario: CrashTests.Scenario) throws -> (origin: Lab, calls: [CallRecord]) {
    let origin = try Lab()
    try scenario.setUp(origin)
    let whole = try origin.copy()
    let before = whole.disk.callCount
    try scenario.act(whole)
    let calls = whole.disk.calls.filter { $0.number > before }
    #expect(calls.count == whole.disk.callCount - before, "more than the disk remembers")
    return (origin, calls.filter(\.kind.canFail))
  }

  @Test("lose nothing that was acknowledged", arguments: CrashTests.scenarios)
  func enumerate(_ scenario: CrashTests.Scenario) throws {
    let (origin, calls) = try calls(of: scenario)
    let count = calls.count
    var all: [(number: Int, failing: Failing, sequel: Sequel)] = []
    for number in 1...count {
      for failing in Failing.all { all += Sequel.allCases.map { (number, failing, $0) } }
    }
    for (number, failing, sequel) in Soak.some(of: all, daily: 8) {
      do { try Self.check(origin, scenario, number, failing, sequel) } catch {
        Issue.record(
          "\(scenario.name), call \(number) of \(count) failed with \(failing), \(sequel): \(error)")
        return
      }
      Soak.count("failing calls")
    }
    Soak.count("possible failing calls", all.count)
    Soak.printCounts("failing calls in \(scenario.name)")
  }

  @Test(
    "lose nothing, and leave nothing that looks damaged, where each sync in turn is the one",
    arguments: CrashTests.scenarios)
  func syncs(_ scenario: CrashTests.Scenario) throws {
    let (origin, calls) = try calls(of: scenario)
    let count = calls.count { $0.kind == .synchronize }
    let all = Failing.all.prefix(2).flatMap { failing in (1..<count + 1).map { ($0, failing) } }
    for (number, failing) in Soak.some(of: all, daily: 7) {
      do { try Self.check(origin, scenario, number, failing, .sharing, of: .synchronize) } catch {
        Issue.record("\(scenario.name), sync \(number) of \(count) failed with \(failing): \(error)")
      }
      Soak.count("failing syncs")
    }
    Soak.count("possible failing syncs", all.count)
    Soak.printCounts("failing syncs in \(scenario.name)")
  }

  @Test(
    "lose nothing, and leave nothing that looks damaged, where the sync that ends a pack fails, and that of its recovery",
    arguments: CrashTests.scenarios)
  func syncsOfRecovery(_ scenario: CrashTests.Scenario) throws {
    let (origin, calls) = try calls(of: scenario)
    let count = calls.count { $0.kind == .synchronize }
    guard count > 0 else { return }
    let lab = try origin.copy()
    for number in [count, 1] {
      lab.disk.plan(Fault(.synchronize, count: number, errno: .ioError, isPermanent: true))
      do {
        if number == 1 { try lab.session { _ in } } else { try scenario.act(lab) }
      } catch is BlobStorageError {}
      lab.restart()
    }
    try lab.session { _ in }
    try lab.loseData { $0.powerCut() }
    try lab.checkInvariants(afterPowerCut: true)
  }

  static func check(
    _ origin: Lab, _ scenario: CrashTests.Scenario, _ number: Int, _ failing: Failing, _ sequel: Sequel,
    of kind: CallKind? = nil
  ) throws {
    let lab = try origin.copy()
    lab.disk.plan(
      Fault(
        kind, count: number, errno: failing.errno, landingByteCount: failing.landsInPart ? 200 : 0,
        isPermanent: failing.isPermanent))
    // An error is an answer; that it says the right thing is for other tests.
    do { try scenario.act(lab) } catch is BlobStorageError {}
    lab.restart()
    switch sequel {
    case .restart:
      try lab.checkInvariants(afterPowerCut: false)
    case .powerCut:
      try lab.loseData { $0.powerCut() }
      try lab.checkInvariants(afterPowerCut: true)
    case .sharing:
      try lab.session { engine in
        let found = try lab.observed(engine)
        for number in Set(found.values.joined()).sorted() {
          guard let data = lab.model.contents[number] else { continue }
          try lab.put(engine, [("again-\(number)", data)])
        }
      }
      try lab.loseData { $0.powerCut() }
      try lab.checkInvariants(afterPowerCut: true)
    }
  }
}
