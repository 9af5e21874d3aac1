/// A text that must not leak into logs: every way of printing it says that it is hidden.
///
/// ``text`` is for what signs or sends it. An error or a log that is given a value with a secret inside shows none.
public struct Secret: Hashable, Sendable, CustomStringConvertible, CustomDebugStringConvertible,
  CustomReflectable
{
  package let text: String

  /// Hides a text.
  public init(_ text: String) { self.text = text }

  public var description: String { "(hidden)" }
  public var debugDescription: String { description }
  public var customMirror: Mirror { Mirror(self, children: []) }
}
