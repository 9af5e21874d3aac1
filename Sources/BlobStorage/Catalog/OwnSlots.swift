import Synchronization

/// The slots that this process has taken through one open table.
final class OwnSlots: Sendable {
  private let numbers = Mutex<Set<Int>>([])
  func contains(_ number: Int) -> Bool { numbers.withLock { $0.contains(number) } }
  func insert(_ number: Int) { numbers.withLock { _ = $0.insert(number) } }
  func remove(_ number: Int) { numbers.withLock { _ = $0.remove(number) } }
}
