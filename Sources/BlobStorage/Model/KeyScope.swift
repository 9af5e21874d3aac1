/// The keys that an operation affects.
public enum KeyScope: Sendable, Hashable {
  /// Every key of the store.
  case all
  /// The keys of a prefix, which is not empty.
  case prefix(KeyPrefix)
  /// One key.
  case key(String)
}
