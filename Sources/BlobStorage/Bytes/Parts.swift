extension Array {
  /// Splits the array into slices of at most `countMax` elements, in order.
  package func parts(of countMax: Int) -> some Sequence<ArraySlice<Element>> {
    stride(from: 0, to: count, by: countMax).lazy.map { self[$0..<Swift.min($0 + countMax, count)] }
  }
}
