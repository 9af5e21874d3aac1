import BlobStorage
import SystemPackage

/// Where the objects of a store are and how they are reached.
///
/// It may be printed: what is secret in it says so instead of itself.
public struct S3Configuration: Sendable {
  /// The bucket, and what all names begin with.
  public var location: S3Location
  /// Where the object store answers.
  public var endpoint: S3Endpoint
  /// How requests name the bucket.
  public var addressing: S3Endpoint.Addressing
  /// The region that requests are signed for. A self-hosted object store takes any.
  public var region: String
  /// Who asks.
  public var credentials: S3Credentials
  /// Certificates in PEM that the object store's is checked against, instead of the system's.
  public var certificates: FilePath?
  /// What stands between.
  public var proxy: S3Proxy?

  /// A configuration of those parts.
  public init(
    location: S3Location, endpoint: S3Endpoint, addressing: S3Endpoint.Addressing = .path,
    region: String = Self.regionDefault, credentials: S3Credentials, certificates: FilePath? = nil,
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

  /// The region of object stores that have none.
  public static let regionDefault = "us-east-1"

  /// The host that requests go to.
  package var authority: String { endpoint.authority(of: addressing == .virtualHost ? location.bucket : nil) }

  /// The path of an object, or without a name of the bucket, encoded.
  package func path(of name: String?) -> String {
    let key = name.map { PercentEncoding.encode(location.key($0), keepingSlashes: true) } ?? ""
    return addressing == .virtualHost ? "/\(key)" : "/\(location.bucket)" + (name == nil ? "" : "/\(key)")
  }
}
