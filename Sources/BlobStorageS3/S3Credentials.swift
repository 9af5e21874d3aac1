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
