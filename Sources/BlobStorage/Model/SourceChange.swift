/// How a file changed while it was read.
public enum SourceChange: String, Sendable, Hashable, Codable {
  /// It became longer: only the bytes that it had at first were read.
  case grown
  /// It was changed in another way: old and new bytes may be mixed.
  case rewritten
}
