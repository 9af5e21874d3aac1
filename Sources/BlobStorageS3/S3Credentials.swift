/// The keys that sign requests.
public struct S3Credentials: Hashable, Sendable {
  /// The public key, which is part of every request.
  public var accessKey: String
  /// The key that signs.
  public var secretKey: S3Secret
  /// The token of temporary credentials.
  public var sessionToken: S3Secret?

  /// Creates credentials.
  public init(accessKey: String, secretKey: S3Secret, sessionToken: S3Secret? = nil) {
    self.accessKey = accessKey
    self.secretKey = secretKey
    self.sessionToken = sessionToken
  }
}

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
