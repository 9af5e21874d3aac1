import BlobStorage
import Foundation

/// An HTTP proxy between this machine and the object store.
public struct S3Proxy: Hashable, Sendable {
  public var host: String
  public var port: Int
  public var user: String?
  public var password: S3Secret?

  /// Reads the proxy for an object store from `https_proxy` or `HTTPS_PROXY`, or from `http_proxy` without TLS.
  ///
  /// Nil if none is set, or if `no_proxy` or `NO_PROXY` exempts the host. `HTTP_PROXY` in upper case is ignored,
  /// because a web server may set it from a request's header.
  ///
  /// - Throws: `invalidArgument` if the text is not a proxy.
  package init?(for endpoint: S3Endpoint, bucketHost: String, environment: [String: String])
    throws(BlobStorageError)
  {
    let names = endpoint.isSecure ? ["https_proxy", "HTTPS_PROXY"] : ["http_proxy"]
    guard let text = names.lazy.compactMap({ environment[$0] }).first, !text.isEmpty,
      !Self.isExempt(bucketHost, by: environment["no_proxy"] ?? environment["NO_PROXY"] ?? "")
    else { return nil }
    try self.init(text, variable: names.last ?? "")
  }

  /// Parses a proxy: `http://USER:PASSWORD@HOST:PORT`. Everything except the host is optional.
  private init(_ text: String, variable: String) throws(BlobStorageError) {
    // Never quote the text: it may hold a password.
    let wrong = BlobStorageError(
      .invalidArgument, "The proxy (\(variable)) is not valid: write http://HOST:PORT.")
    var rest = Substring(text)
    if let scheme = rest.range(of: "://") {
      guard rest[..<scheme.lowerBound].lowercased() == "http" else { throw wrong }
      rest = rest[scheme.upperBound...]
    }
    if rest.last == "/" { rest.removeLast() }
    if let at = rest.lastIndex(of: "@") {
      let parts = rest[..<at].split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
      guard let user = PercentEncoding.decode(parts[0], isForm: false) else { throw wrong }
      self.user = user
      if parts.count > 1 {
        guard let password = PercentEncoding.decode(parts[1], isForm: false) else { throw wrong }
        self.password = S3Secret(password)
      }
      rest = rest[rest.index(after: at)...]
    }
    let endpoint: S3Endpoint
    do { endpoint = try S3Endpoint("http://\(rest)") } catch { throw wrong }
    host = endpoint.host
    port = endpoint.port ?? 80
  }

  /// Whether a list such as `localhost,.example.com,10.0.0.1` exempts a host from the proxy.
  package static func isExempt(_ host: String, by list: String) -> Bool {
    let host = host.lowercased()
    return list.lowercased().split(whereSeparator: { $0 == "," || $0 == " " }).contains { entry in
      if entry == "*" { return true }
      let name = entry.first == "." ? entry.dropFirst() : entry
      return host == name || host.hasSuffix(".\(name)")
    }
  }
}
