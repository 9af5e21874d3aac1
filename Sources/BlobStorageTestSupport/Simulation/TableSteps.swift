import BlobStorage
import SystemPackage

/// A step between processes, with its name in the log of calls. A test leaves some of them out.
package enum TableStep: String, Sendable, CaseIterable {
  /// Stores how far a pack is published.
  case publish
  /// Announces that a pack was published.
  case announce
  /// Records that a commit has begun, and that it has ended.
  case enter, leave
  /// Announces a new file that names the catalog in use.
  case replace
  case lockStripe, lockSlot
  /// Checks whether others have published. Only `Weaknesses.skipsExtending` leaves it out.
  case extend
  /// Locks the catalog, to settle before anything else is written. Only `Weaknesses.skipsSettling` leaves it out.
  case settle
}

/// A simulated process's access to the table of open packs. Each word that it stores is a call on the simulated disk.
/// So is each look at what others have published.
struct TableProcess: SharedMemory.Process {
  let process: SimulatedProcess
  let memory: SharedMemory
  let missing: Set<TableStep>
  private static let path: FilePath = "live"

  func willLoad(_ index: Int) {
    guard index == LiveTable.Word.publishCount.rawValue else { return }
    process.touch(.load, Self.path, "\(TableStep.extend.rawValue): \(Self.name(index))") {}
  }

  func store(_ value: UInt64, at index: Int, _ store: () -> Void) {
    let step = step(value, at: index)
    if let step, missing.contains(step) { return }
    process.touch(.store, Self.path, (step.map { "\($0.rawValue): " } ?? "") + Self.name(index), store)
  }

  private static func slotWord(_ index: Int) -> LiveTable.SlotWord? {
    guard index >= LiveTable.headerWordCount else { return nil }
    return .init(rawValue: (index - LiveTable.headerWordCount) % LiveTable.slotWordCount)
  }

  private static func name(_ index: Int) -> String {
    guard let word = slotWord(index) else {
      return LiveTable.Word(rawValue: index).map { "\($0)" } ?? "\(index)"
    }
    return "\(word) of slot \((index - LiveTable.headerWordCount) / LiveTable.slotWordCount)"
  }

  private func step(_ value: UInt64, at index: Int) -> TableStep? {
    switch Self.slotWord(index) {
    case .published?:
      // A slot that changes hands gets the length of an empty pack.
      let turn = index - LiveTable.SlotWord.published.rawValue + LiveTable.SlotWord.turn.rawValue
      return memory[turn] & 1 == 0 ? .publish : nil
    case .epoch?: return value == 0 ? .leave : .enter
    case .some: return nil
    case nil: break
    }
    switch LiveTable.Word(rawValue: index) {
    case .publishCount?: return .announce
    case .catalogCount?: return .replace
    default: return nil
    }
  }
}

extension CallRecord {
  /// The step between processes that this call is; nil for other calls.
  package var step: TableStep? {
    guard [.load, .store, .step].contains(kind), let word = detail.split(separator: " ").dropFirst().first
    else { return nil }
    return TableStep(rawValue: String(word.prefix { $0 != ":" }))
  }
}
