/// Carries a caller's closure or value to another thread.
///
/// Unchecked: the originals take plain closures, and programs written for them would not compile with `@Sendable` ones.
/// As with the originals, the caller must know what a closure may touch.
struct Handed<Value>: @unchecked Sendable {
  let value: Value

  init(_ value: Value) { self.value = value }
}
