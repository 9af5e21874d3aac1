/// Keeps the few largest of many elements, in bounded memory.
package struct Largest<Element> {
  private typealias Kept = (element: Element, rank: Int64, ordinal: Int)

  private let countMax: Int
  /// Fewer than twice as many as are wanted.
  private var kept: [Kept] = []
  private var ordinal = 0
  /// Nothing of this rank or a lower one can be among the largest any more.
  private var excludedRank: Int64?

  package init(countMax: Int) { self.countMax = max(0, countMax) }

  /// Among equal ranks, keeps those that came first.
  package mutating func insert(_ element: @autoclosure () -> Element, rank: Int64) {
    guard countMax > 0, excludedRank.map({ rank > $0 }) ?? true else { return }
    ordinal += 1
    kept.append((element(), rank, ordinal))
    guard kept.count / 2 >= countMax else { return }
    kept = Array(sorted.prefix(countMax))
    excludedRank = kept.last?.rank
  }

  /// The largest first.
  package var descending: [Element] { sorted.prefix(countMax).map(\.element) }

  private var sorted: [Kept] {
    kept.sorted { $0.rank != $1.rank ? $0.rank > $1.rank : $0.ordinal < $1.ordinal }
  }
}
