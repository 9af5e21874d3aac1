/// A queue: first in, first out.
///
/// - Complexity: amortised O(1) for each element. Releases a removed element at once.
package struct Fifo<Element> {
  private var elements: [Element?] = []
  private var head = 0

  package init() {}

  package var count: Int { elements.count - head }
  package var isEmpty: Bool { count == 0 }

  package mutating func append(_ element: Element) { elements.append(element) }

  package mutating func popFirst() -> Element? {
    guard !isEmpty else { return nil }
    defer {
      elements[head] = nil
      head += 1
      if isEmpty || head > 1_024 && head > elements.count / 2 {
        elements.removeFirst(head)
        head = 0
      }
    }
    return elements[head]
  }
}

extension Fifo: Sendable where Element: Sendable {}
