import BlobStorage
import SystemPackage

/// A step of what processes tell each other by the table of open packs, for a test that leaves it out.
package enum TableStep: Sendable, CaseIterable {
  /// Stores how far a pack is published.
  case publish
  /// Says that there is something to look at.
  case announce
  /// Says that a commit has begun, and that it has ended.
  case enter, leave
  /// Says that the file is replaced that names the catalog in use.
  case replace
  case lockStripe, lockSlot
}

/// A simulated process at the table of open packs: each word that it stores is a call on the simulated disk, and so is
/// each look at what others have published.
struct TableProcess: SharedMemory.Process {
  let process: SimulatedProcess
  let memory: SharedMemory
  let missing: Set<TableStep>

  func willLoad(_ index: Int) {
    guard index == LiveTable.Word.publishCount.rawValue else { return }
    process.touch(.load, "live", Self.name(index)) {}
  }

  func store(_ value: UInt64, at index: Int, _ store: () -> Void) {
    if let step = step(value, at: index), missing.contains(step) { return }
    process.touch(.store, "live", Self.name(index), store)
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
      // A slot that changes hands gets the length of a pack that has nothing yet.
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
