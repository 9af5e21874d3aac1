/// Who asks: what requests are signed with.
public struct S3Credentials: Hashable, Sendable {
  /// The public half, which stands in every request.
  public var accessKey: String
  /// The half that signs.
  public var secretKey: Secret
  /// What temporary credentials come with.
  public var sessionToken: Secret?

  /// Credentials of those parts.
  public init(accessKey: String, secretKey: Secret, sessionToken: Secret? = nil) {
    self.accessKey = accessKey
    self.secretKey = secretKey
    self.sessionToken = sessionToken
  }
}
