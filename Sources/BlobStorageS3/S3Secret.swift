/// Hides a text from logs: every way to print it shows `(hidden)`.
///
/// Use `text` only to sign or send it. Printing a value that contains a secret does not show the secret.
public struct S3Secret: Hashable, Sendable, CustomStringConvertible, CustomDebugStringConvertible,
  CustomReflectable
{
  package let text: String

  /// Hides a text.
  public init(_ text: String) { self.text = text }

  public var description: String { "(hidden)" }
  public var debugDescription: String { description }
  public var customMirror: Mirror { Mirror(self, children: []) }
}
