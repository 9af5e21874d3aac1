import CBlobKernels
import Synchronization

/// Owns a file descriptor and closes it when no call uses it.
///
/// A descriptor's number is given out again the moment it is closed: a call still on its way would then read or write
/// another file. So every call goes through the gate, and closing shuts the gate first; the last call to leave closes
/// the descriptor.
package struct DescriptorGate: ~Copyable, Sendable {
  private let descriptor: Int32
  /// The count of calls inside; the top bit once it is shut.
  private let state = Atomic<UInt>(0)
  private static let shut: UInt = 1 << (UInt.bitWidth - 1)

  /// Takes the descriptor over.
  package init(owning descriptor: Int32) { self.descriptor = descriptor }

  deinit { shutGate() }

  /// Runs the body on the descriptor; nil once the gate is shut.
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
    // A DispatchIO channel's duplicate shares the open file description: closing alone would leave a lock held
    // until the channel's last read is done.
    _ = bs_unlock(descriptor)
    closeDescriptor(descriptor)
  }
}
