import Synchronization

/// Counts from 1.
final class CallCount: Sendable {
  private let number = Atomic<Int>(0)

  var value: Int { number.load(ordering: .relaxed) }

  func next() -> Int { number.add(1, ordering: .relaxed).newValue }
}
