import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

/// A chunk that another process stores while a put from a stream looks for something to encode it against.
@Suite("A chunk that is stored by two processes at once")
struct OwnBaseTests {
  @Test("is not encoded against itself, whenever the other stores it")
  func meanwhile() throws {
    let data = prose(3, 6_000) + noise(1, 3_000) + prose(4, 6_000)
    var isOver = false
    var viewCount = 0
    while !isOver {
      viewCount += 1
      let lab = try Lab(StoreOptions(averageChunkByteCount: 1 << 10))
      let (process, other) = (lab.disk.process(), lab.disk.process())
      let engine = try lab.open(process)
      let otherEngine = try lab.open(other)
      // Both have a pack under way, so that no put waits for a lock.
      try lab.put(engine, [("a", noise(8, 200))])
      try lab.put(otherEngine, [("b", noise(9, 200))])
      let rest = Mutex(viewCount)
      let failure = Mutex<BlobStorageError?>(nil)
      lab.disk.beforeCalls { call in
        guard call.process == process.number, call.kind == .load else { return }
        let isDue = rest.withLock { rest in
          rest -= 1
          return rest == 0
        }
        guard isDue else { return }
        do throws(BlobStorageError) { _ = try otherEngine.put("other", .data(data), PutOptions()) } catch {
          failure.withLock { $0 = error }
        }
      }
      let parts = Mutex(data)
      _ = try engine.put(
        "k",
        .stream({
          parts.withLock { rest in
            let part = rest.prefix(4_000)
            rest = rest.dropFirst(4_000)
            return part.isEmpty ? nil : Data(part)
          }
        }), PutOptions())
      lab.disk.beforeCalls(nil)
      isOver = rest.withLock { $0 > 0 }
      if let error = failure.withLock({ $0 }) { throw error }
      for engine in [engine, otherEngine] {
        let read = Result { try engine.data("k", nil) }
        #expect(try read.get() == data, "stored before view \(viewCount)")
      }
      try engine.close()
      try otherEngine.close()
      try lab.forgetCatalog()
      try lab.session { engine in
        let read = Result { try engine.data("k", nil) }
        #expect(try read.get() == data, "stored before view \(viewCount)")
        let damaged = try engine.verify().damaged
        #expect(damaged == [])
      }
    }
    #expect(viewCount > 3)
  }
}
