/// The keys that an operation affects.
public enum KeyScope: Sendable, Hashable {
  /// Every key of the store.
  case all
  /// Every key that begins with this text, which is not empty.
  case prefix(String)
  /// One key.
  case key(String)
}
