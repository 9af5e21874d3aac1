import BlobStorage

/// The address of an object store.
public struct S3Endpoint: Hashable, Sendable, CustomStringConvertible {
  /// How a request names the bucket.
  public enum Addressing: String, Hashable, Sendable {
    /// `https://HOST/BUCKET/NAME`, for self-hosted object stores.
    case path
    /// `https://BUCKET.HOST/NAME`, for AWS.
    case virtualHost
  }

  /// Whether requests use TLS.
  public let isSecure: Bool
  /// The host's name or address. An IPv6 address has no brackets.
  public let host: String
  /// The port, unless it is the scheme's default.
  public let port: Int?

  /// Parses an endpoint: `http://` or `https://`, a host, and optionally a port.
  ///
  /// - Throws: `invalidArgument` for anything else, such as a path, a user or a password.
  public init(_ text: String) throws(BlobStorageError) {
    let schemes = ["https://": true, "http://": false]
    guard let scheme = schemes.first(where: { text.lowercased().hasPrefix($0.key) }) else {
      throw Self.notOne(text)
    }
    var rest = text.dropFirst(scheme.key.count)
    if rest.last == "/" { rest.removeLast() }
    var host = rest
    var port: Substring?
    if rest.first == "[" {
      guard let end = rest.firstIndex(of: "]") else { throw Self.notOne(text) }
      host = rest[rest.index(after: rest.startIndex)..<end]
      let behind = rest[rest.index(after: end)...]
      guard behind.isEmpty || behind.first == ":" else { throw Self.notOne(text) }
      port = behind.isEmpty ? nil : behind.dropFirst()
    } else if let colon = rest.firstIndex(of: ":") {
      host = rest[..<colon]
      port = rest[rest.index(after: colon)...]
    }
    let others = rest.first == "[" ? "-._:" : "-._"
    guard !host.isEmpty, host.utf8.allSatisfy({ $0.isLetterOrDigit(or: others) }) else {
      throw Self.notOne(text)
    }
    isSecure = scheme.value
    self.host = String(host)
    if let port {
      guard let number = UInt16(port), number > 0 else { throw Self.notOne(text) }
      self.port = Int(number) == (scheme.value ? 443 : 80) ? nil : Int(number)
    } else {
      self.port = nil
    }
  }

  public var description: String { "\(isSecure ? "https" : "http")://\(authority(of: nil))" }

  /// Host and port for a URL and the `Host` header, with the bucket as a virtual host if there is one.
  package func authority(of bucket: String?) -> String {
    let name = host.contains(":") ? "[\(host)]" : host
    return (bucket.map { "\($0).\(name)" } ?? name) + (port.map { ":\($0)" } ?? "")
  }

  // Never quote the text: it may hold a password.
  private static func notOne(_ text: String) -> BlobStorageError {
    BlobStorageError(
      .invalidArgument,
      "The address of the object store (AWS_ENDPOINT_URL) is not valid: write https://HOST or http://HOST:PORT, "
        + "without a path, a user or a password.")
  }
}
