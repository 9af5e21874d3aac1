import CBlobKernels
import Synchronization

/// Owns a file descriptor, and closes it only when no call uses it.
///
/// The system reuses a descriptor's number at once after a close. A call still under way would then read or write
/// another file. So every call passes through the gate. Closing shuts the gate, and the last call to leave closes the
/// descriptor.
package struct DescriptorGate: ~Copyable, Sendable {
  private let descriptor: Int32
  /// The number of calls inside. The top bit is set once the gate is shut.
  private let state = Atomic<UInt>(0)
  private static let shut: UInt = 1 << (UInt.bitWidth - 1)

  /// How many descriptors the process may have open.
  package static var limit: Int { bs_descriptor_limit() }

  /// Takes ownership of the descriptor.
  package init(owning descriptor: Int32) { self.descriptor = descriptor }

  deinit { shutGate() }

  /// Runs `body` on the descriptor; nil once the gate is shut.
  package func enter<Value, Failure: Error>(_ body: (Int32) throws(Failure) -> Value) throws(Failure)
    -> Value?
  {
    var seen = state.load(ordering: .relaxed)
    while true {
      if seen & Self.shut != 0 { return nil }
      let (exchanged, original) = state.compareExchange(
        expected: seen, desired: seen + 1, ordering: .acquiringAndReleasing)
      if exchanged { break }
      seen = original
    }
    defer {
      if state.subtract(1, ordering: .acquiringAndReleasing).newValue == Self.shut { unlockAndClose() }
    }
    return try body(descriptor)
  }

  /// Refuses new calls. Returns at once, even while calls are inside.
  package func shutGate() {
    let before = state.bitwiseOr(Self.shut, ordering: .acquiringAndReleasing).oldValue
    if before == 0 { unlockAndClose() }
  }

  private func unlockAndClose() {
    // A DispatchIO channel's duplicate shares the open file description. Closing alone would keep a lock held until the
    // channel's last read ends.
    _ = bs_unlock(descriptor)
    closeDescriptor(descriptor)
  }
}
