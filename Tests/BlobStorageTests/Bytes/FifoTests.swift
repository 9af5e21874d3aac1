import BlobStorage
import Testing

@Suite("A queue")
struct FifoTests {
  @Test("gives its elements back in their order, also while others arrive")
  func order() {
    var queue = Fifo<Int>()
    var (next, expected) = (0, 0)
    for (added, removed) in [(5_000, 3_000), (2_000, 1_500), (0, 2_500), (10, 10)] {
      for _ in 0..<added {
        queue.append(next)
        next += 1
      }
      for _ in 0..<removed {
        #expect(queue.popFirst() == expected)
        expected += 1
      }
      #expect(queue.count == next - expected)
    }
    #expect(queue.isEmpty && queue.popFirst() == nil)
  }
}
