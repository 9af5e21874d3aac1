import BlobStorage
import Dispatch
import Foundation
import Testing

@Suite("A turn")
struct TurnTests {
  @Test("is not lost with a thread that is cancelled as it gets it")
  func cancelledAsItComes() throws {
    for _ in 0..<20 {
      let turn = Turn()
      try turn.acquire()
      let flag = CancellationFlag()
      let (cancelled, patient) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
      Thread {
        do {
          try CancellationFlag.$current.withValue(flag) { try turn.acquire() }
          turn.release()
        } catch { #expect((error as? BlobStorageError)?.code == .cancelled) }
        cancelled.signal()
      }.start()
      // It waits by now. If it does not, the round shows nothing.
      Thread.sleep(forTimeInterval: 0.01)
      Thread {
        turn.withPatience {}
        patient.signal()
      }.start()
      Thread.sleep(forTimeInterval: 0.01)
      flag.cancel()
      turn.release()
      cancelled.wait()
      // Only so that the test ends: it comes at once, or never.
      try #require(patient.wait(timeout: .now() + 30) == .success)
    }
  }
}
