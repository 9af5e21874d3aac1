/// One or more elements. The first is stored inline, so that a single element costs no allocation.
package struct OneOrMore<Element> {
  package var head: Element
  package var rest: [Element]

  package init(_ head: Element, _ rest: [Element] = []) {
    self.head = head
    self.rest = rest
  }

  /// The elements of an array; nil if it is empty.
  package init?(contentsOf elements: [Element]) {
    guard let head = elements.first else { return nil }
    self.init(head, elements.count == 1 ? [] : Array(elements.dropFirst()))
  }

  /// Transforms each element, in order.
  package func mapped<Other>(
    _ transform: (Element) throws(BlobStorageError) -> Other
  ) throws(BlobStorageError) -> OneOrMore<Other> {
    var other = OneOrMore<Other>(try transform(head))
    other.rest.reserveCapacity(rest.count)
    for element in rest { other.rest.append(try transform(element)) }
    return other
  }
}

extension OneOrMore: RandomAccessCollection, MutableCollection {
  package var startIndex: Int { 0 }
  package var endIndex: Int { rest.count + 1 }

  package subscript(index: Int) -> Element {
    get { index == 0 ? head : rest[index - 1] }
    _modify {
      if index == 0 { yield &head } else { yield &rest[index - 1] }
    }
  }
}

extension OneOrMore: Sendable where Element: Sendable {}
