import BlobStorage

/// Where an object store answers.
public struct S3Endpoint: Hashable, Sendable, CustomStringConvertible {
  /// How a bucket is named in a request.
  public enum Addressing: String, Hashable, Sendable {
    /// `https://ENGINE/BUCKET/NAME`, what self-hosted object stores take.
    case path
    /// `https://BUCKET.ENGINE/NAME`, what AWS takes.
    case virtualHost
  }

  /// Whether it is spoken to by TLS.
  public let isSecure: Bool
  /// Its name or address, an IPv6 address without brackets.
  public let host: String
  /// Its port, where it is not the scheme's own.
  public let port: Int?

  /// The object store that `text` names: `http://` or `https://`, host, and a port.
  ///
  /// - Throws: `invalidArgument` for anything else, a path, a user or a password included.
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
    let isAddress = rest.first == "["
    guard !host.isEmpty, host.utf8.allSatisfy({ Self.isHostByte($0, isAddress: isAddress) }) else {
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

  /// Host and port as a URL and the `Host` header have them, of a bucket by virtual host or of the object store.
  package func authority(of bucket: String?) -> String {
    let name = host.contains(":") ? "[\(host)]" : host
    return (bucket.map { "\($0).\(name)" } ?? name) + (port.map { ":\($0)" } ?? "")
  }

  // What was wrong may hold a password: it is not repeated.
  private static func notOne(_ text: String) -> BlobStorageError {
    BlobStorageError(
      .invalidArgument,
      "The address of the object store (AWS_ENDPOINT_URL) is not valid: write https://HOST or http://HOST:PORT, "
        + "without a path, a user or a password.")
  }

  private static func isHostByte(_ byte: UInt8, isAddress: Bool) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"):
      true
    case UInt8(ascii: ":"): isAddress
    default: false
    }
  }
}
