import BlobStorage
import Testing

@Suite("One element or more")
struct OneOrMoreTests {
  @Test("are a collection like an array of them", arguments: 1...4)
  func collection(_ count: Int) throws {
    let array = Array(1...count)
    var some = try #require(OneOrMore(contentsOf: array))
    #expect(some.count == count && Array(some) == array && some.last == count)
    for index in some.indices { some[index] *= 10 }
    #expect(Array(some) == array.map { $0 * 10 })
    #expect(some.indices.map { some[$0] } == array.map { $0 * 10 })
    let texts = try some.mapped { "\($0)" }
    #expect(Array(texts) == array.map { "\($0 * 10)" })
  }

  @Test("are not none")
  func none() { #expect(OneOrMore<Int>(contentsOf: []) == nil) }

  @Test("stop at the first that cannot be mapped")
  func failing() {
    var seen: [Int] = []
    let failed = failure {
      _ = try OneOrMore(1, [2, 3]).mapped { (element) throws(BlobStorageError) in
        seen.append(element)
        if element == 2 { throw BlobStorageError(.closed, "two") }
      }
    }
    #expect(failed?.code == .closed && seen == [1, 2])
  }
}
