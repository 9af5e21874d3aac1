import Synchronization

/// Whether the task that asked for the current work was cancelled.
package final class CancellationFlag: Sendable {
  /// The flag of this thread's current work.
  @TaskLocal package static var current: CancellationFlag?

  private let isSet = Atomic<Bool>(false)

  package init() {}

  package func cancel() { isSet.store(true, ordering: .relaxed) }

  package var isCancelled: Bool { isSet.load(ordering: .relaxed) }

  /// Throws `cancelled` if the work was cancelled. Long loops call it between two complete steps.
  package static func check() throws(BlobStorageError) {
    if current?.isCancelled == true { throw cancelled }
  }

  static var cancelled: BlobStorageError { BlobStorageError(.cancelled, "The work was cancelled.") }
}
