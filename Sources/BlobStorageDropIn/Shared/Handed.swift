/// A caller's closure or value on its way to another thread.
///
/// Unchecked: the originals take plain closures, and programs written for them would not compile with
/// `@Sendable` ones. What a closure may touch is the caller's care, here as there.
struct Handed<Value>: @unchecked Sendable {
  let value: Value

  init(_ value: Value) { self.value = value }
}
