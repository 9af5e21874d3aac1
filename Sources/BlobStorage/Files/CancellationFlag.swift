import Synchronization

/// Whether the task that asked for the work under way has been cancelled.
package final class CancellationFlag: Sendable {
  /// The flag of the work that this thread does.
  @TaskLocal package static var current: CancellationFlag?

  private let isSet = Atomic<Bool>(false)

  package init() {}

  package func cancel() { isSet.store(true, ordering: .relaxed) }

  package var isCancelled: Bool { isSet.load(ordering: .relaxed) }

  /// Throws `cancelled` if so: for loops of long work, between two steps that are each whole.
  package static func check() throws(BlobStorageError) {
    if current?.isCancelled == true { throw cancelled }
  }

  static var cancelled: BlobStorageError { BlobStorageError(.cancelled, "The work was cancelled.") }
}
