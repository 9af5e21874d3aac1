import BlobStorage

/// Keeps the few largest of many elements, in bounded memory.
package struct Largest<Element> {
  private let countMax: Int
  /// A heap: the smallest of those kept comes first.
  private var heap: [(element: Element, rank: Int64)] = []

  package init(countMax: Int) { self.countMax = max(0, countMax) }

  /// Among equal ranks, keeps those that came first.
  package mutating func insert(_ element: @autoclosure () -> Element, rank: Int64) {
    if heap.count < countMax {
      heap.append((element(), rank))
      rise()
    } else if let smallest = heap.first, smallest.rank < rank {
      heap[0] = (element(), rank)
      sink()
    }
  }

  /// The largest first.
  package var descending: [Element] { heap.sorted { $0.rank > $1.rank }.map(\.element) }

  private mutating func rise() {
    var index = heap.count - 1
    while index > 0, heap[index].rank < heap[(index - 1) / 2].rank {
      heap.swapAt(index, (index - 1) / 2)
      index = (index - 1) / 2
    }
  }

  private mutating func sink() {
    var index = 0
    while true {
      var least = index
      for child in [2 * index + 1, 2 * index + 2]
      where child < heap.count && heap[child].rank < heap[least].rank { least = child }
      if least == index { return }
      heap.swapAt(index, least)
      index = least
    }
  }
}
