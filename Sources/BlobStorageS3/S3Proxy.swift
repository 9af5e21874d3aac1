import BlobStorage
import Foundation

/// What stands between this machine and the object store: an HTTP proxy.
public struct S3Proxy: Hashable, Sendable {
  public var host: String
  public var port: Int
  public var user: String?
  public var password: Secret?

  /// The proxy that the usual variables name for an object store: `https_proxy`, `HTTPS_PROXY`, or for one without TLS
  /// `http_proxy`; `no_proxy` and `NO_PROXY` say for which hosts there is none.
  ///
  /// `HTTP_PROXY` in upper case is not read: a web server could have put it there from a request's header.
  package init?(for endpoint: S3Endpoint, bucketHost: String, environment: [String: String])
    throws(BlobStorageError)
  {
    let names = endpoint.isSecure ? ["https_proxy", "HTTPS_PROXY"] : ["http_proxy"]
    guard let text = names.lazy.compactMap({ environment[$0] }).first, !text.isEmpty,
      !Self.isExempt(bucketHost, by: environment["no_proxy"] ?? environment["NO_PROXY"] ?? "")
    else { return nil }
    try self.init(text, variable: names.last ?? "")
  }

  /// The proxy that `text` names: `http://USER:PASSWORD@HOST:PORT`, all but the host optional.
  private init(_ text: String, variable: String) throws(BlobStorageError) {
    // What was wrong may hold a password: it is not repeated.
    let wrong = BlobStorageError(
      .invalidArgument, "The proxy (\(variable)) is not one: it is written http://HOST:PORT.")
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
        self.password = Secret(password)
      }
      rest = rest[rest.index(after: at)...]
    }
    let endpoint: S3Endpoint
    do { endpoint = try S3Endpoint("http://\(rest)") } catch { throw wrong }
    host = endpoint.host
    port = endpoint.port ?? 80
  }

  /// Whether a list such as `localhost,.example.com,10.0.0.1` says that a host is reached without the proxy.
  package static func isExempt(_ host: String, by list: String) -> Bool {
    let host = host.lowercased()
    return list.lowercased().split(whereSeparator: { $0 == "," || $0 == " " }).contains { entry in
      if entry == "*" { return true }
      let name = entry.first == "." ? entry.dropFirst() : entry
      return host == name || host.hasSuffix(".\(name)")
    }
  }
}
