import BlobStorage
import SystemPackage

/// Says where the objects of a store are and how to reach them.
///
/// Printing it shows no secrets.
public struct S3Configuration: Sendable {
  /// The bucket, and the prefix of all names.
  public var location: S3Location
  /// The object store's address.
  public var endpoint: S3Endpoint
  /// How requests name the bucket.
  public var addressing: S3Endpoint.Addressing
  /// The region that requests are signed for. Self-hosted object stores accept any.
  public var region: String
  /// The keys that requests are signed with.
  public var credentials: S3Credentials
  /// A PEM file of trusted certificates, instead of the system's.
  public var certificates: FilePath?
  /// The HTTP proxy, if any.
  public var proxy: S3Proxy?

  /// Creates a configuration.
  public init(
    location: S3Location, endpoint: S3Endpoint, addressing: S3Endpoint.Addressing = .path,
    region: String = Self.defaultRegion, credentials: S3Credentials, certificates: FilePath? = nil,
    proxy: S3Proxy? = nil
  ) {
    self.location = location
    self.endpoint = endpoint
    self.addressing = addressing
    self.region = region
    self.credentials = credentials
    self.certificates = certificates
    self.proxy = proxy
  }

  /// The region to sign for when an object store has none.
  public static let defaultRegion = "us-east-1"

  /// The host that requests go to.
  package var authority: String { endpoint.authority(of: addressing == .virtualHost ? location.bucket : nil) }

  /// The encoded path of an object, or of the bucket if `name` is nil.
  package func path(of name: String?) -> String {
    let key = name.map { PercentEncoding.encode(location.key($0), keepingSlashes: true) } ?? ""
    return addressing == .virtualHost ? "/\(key)" : "/\(location.bucket)" + (name == nil ? "" : "/\(key)")
  }
}
