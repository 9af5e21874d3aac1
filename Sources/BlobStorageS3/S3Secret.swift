/// Hides a text from logs: every way of printing it shows that it is hidden.
///
/// Use `text` only to sign or send it. Errors and logs that print a value with a secret inside do not show it.
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
