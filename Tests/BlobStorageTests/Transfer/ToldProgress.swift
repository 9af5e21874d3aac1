import BlobStorage
import Synchronization

/// Collects the progress that long work reports.
final class ToldProgress: Sendable {
  private let told = Mutex<[WorkProgress]>([])

  var all: [WorkProgress] { told.withLock { $0 } }

  func append(_ progress: WorkProgress) { told.withLock { $0.append(progress) } }
}
