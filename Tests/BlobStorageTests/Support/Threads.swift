import BlobStorage
import Dispatch
import Foundation
import Synchronization

/// Runs each of them on a thread of its own, and throws the first error of any once all have ended.
func together(_ bodies: [@Sendable () throws -> Void]) throws {
  let failures = Mutex<[any Error]>([])
  let group = DispatchGroup()
  for body in bodies {
    group.enter()
    Thread.detachNewThread {
      do { try body() } catch { failures.withLock { $0.append(error) } }
      group.leave()
    }
  }
  group.wait()
  if let failure = failures.withLock({ $0.first }) { throw failure }
}

/// What `body` comes to on a thread of its own; nil if it would go on for ever.
func ending<T: Sendable>(_ body: @escaping @Sendable () throws -> T) throws -> T? {
  let outcome = Mutex<Result<T, any Error>?>(nil)
  let done = DispatchSemaphore(value: 0)
  Thread.detachNewThread {
    let result = Result { try body() }
    outcome.withLock { $0 = result }
    done.signal()
  }
  guard done.wait(timeout: .now() + 60) == .success else { return nil }
  return try outcome.withLock { $0 }?.get()
}

/// What a thread has seen and should not have.
struct Unexpected: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}
