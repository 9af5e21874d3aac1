import BlobStorage
import Synchronization

/// What long work has said of how far it is.
final class ToldProgress: Sendable {
  private let told = Mutex<[WorkProgress]>([])

  var all: [WorkProgress] { told.withLock { $0 } }

  func note(_ progress: WorkProgress) { told.withLock { $0.append(progress) } }
}
