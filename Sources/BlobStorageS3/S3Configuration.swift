import BlobStorage
import Foundation
import SystemPackage

/// The place of a store's objects, and how to reach it.
///
/// Printing it shows no secrets.
public struct S3Configuration: Sendable {
  /// The bucket, and the prefix of all names.
  public var location: S3Location
  /// The object store's address.
  public var endpoint: S3Endpoint
  /// How requests name the bucket.
  public var addressing: S3Endpoint.Addressing
  /// The region that requests are signed for. Most self-hosted object stores accept any.
  public var region: String
  /// The keys that sign requests.
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

  /// The region to sign for if none is set.
  public static let defaultRegion = "us-east-1"

  /// The host that requests go to.
  package var authority: String { endpoint.authority(of: addressing == .virtualHost ? location.bucket : nil) }

  /// The encoded path of an object, or of the bucket if `name` is nil.
  package func path(of name: String?) -> String {
    let key = name.map { PercentEncoding.encode(location.key($0), keepingSlashes: true) } ?? ""
    return addressing == .virtualHost ? "/\(key)" : "/\(location.bucket)" + (name == nil ? "" : "/\(key)")
  }
}

extension S3Configuration {
  /// Reads the settings for a place from the usual environment variables and files.
  ///
  /// | what | variable, in this order | in a profile |
  /// |---|---|---|
  /// | credentials | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN` | the same, in lower case |
  /// | region | `AWS_REGION`, `AWS_DEFAULT_REGION` | `region` |
  /// | endpoint | `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` | `endpoint_url` |
  /// | certificates | `AWS_CA_BUNDLE` | `ca_bundle` |
  /// | proxy | `https_proxy`, `HTTPS_PROXY`, or `http_proxy` for an endpoint without TLS; `no_proxy`, `NO_PROXY` | |
  /// | addressing | | `addressing_style` below `s3` |
  ///
  /// The profile is `AWS_PROFILE` or `default`. Its files are `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE`, or
  /// else `~/.aws/credentials` and `~/.aws/config`. Without an endpoint, requests go to AWS. With one, they name the
  /// bucket in the path, unless the profile says otherwise.
  ///
  /// - Throws: `permissionDenied` without credentials; `invalidArgument` for malformed settings, or if no file has the
  ///   profile that `AWS_PROFILE` names.
  public init(
    location: S3Location, environment: [String: String] = ProcessInfo.processInfo.environment
  ) throws(BlobStorageError) {
    let profile = try Self.profile(environment)
    func setting(_ variables: [String], _ name: String) -> String? {
      (variables.lazy.compactMap { environment[$0] }.first { !$0.isEmpty })
        ?? profile[name].flatMap { $0.isEmpty ? nil : $0 }
    }
    let credentials = try Self.credentials(environment, profile)
    let region = setting(["AWS_REGION", "AWS_DEFAULT_REGION"], "region") ?? Self.defaultRegion
    guard region.utf8.allSatisfy({ $0.isLetterOrDigit(or: "-_") }) else {
      throw BlobStorageError(
        .invalidArgument, "'\(region)' is not a region: a region has letters, digits and '-'.")
    }
    let service = setting(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"], "endpoint_url")
    let endpoint = try S3Endpoint(service ?? "https://s3.\(region).amazonaws.com")
    let addressing: S3Endpoint.Addressing
    switch profile["s3.addressing_style"] {
    case "path": addressing = .path
    case "virtual": addressing = .virtualHost
    // No certificate covers a bucket with a dot as a host name, because wildcards cover one level.
    default: addressing = service == nil && !location.bucket.contains(".") ? .virtualHost : .path
    }
    self.init(
      location: location, endpoint: endpoint, addressing: addressing, region: region,
      credentials: credentials,
      certificates: setting(["AWS_CA_BUNDLE"], "ca_bundle").map { FilePath($0) })
    let host = addressing == .virtualHost ? "\(location.bucket).\(endpoint.host)" : endpoint.host
    proxy = try S3Proxy(for: endpoint, bucketHost: host, environment: environment)
  }

  private static func credentials(
    _ environment: [String: String], _ profile: [String: String]
  ) throws(BlobStorageError) -> S3Credentials {
    for (values, isUpper) in [(environment, true), (profile, false)] {
      func value(_ name: String) -> String? {
        values[isUpper ? name.uppercased() : name].flatMap { $0.isEmpty ? nil : $0 }
      }
      guard let accessKey = value("aws_access_key_id"), let secretKey = value("aws_secret_access_key") else {
        continue
      }
      return S3Credentials(
        accessKey: accessKey, secretKey: S3Secret(secretKey),
        sessionToken: value("aws_session_token").map(S3Secret.init))
    }
    throw BlobStorageError(
      .permissionDenied,
      "There are no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or put them "
        + "into ~/.aws/credentials.")
  }

  /// Reads the profile's settings from both files. The credentials file takes precedence.
  private static func profile(_ environment: [String: String]) throws(BlobStorageError) -> [String: String] {
    let named = environment["AWS_PROFILE"].flatMap { $0.isEmpty ? nil : $0 }
    let home = environment["HOME"] ?? ""
    let paths = [
      environment["AWS_SHARED_CREDENTIALS_FILE"] ?? "\(home)/.aws/credentials",
      environment["AWS_CONFIG_FILE"] ?? "\(home)/.aws/config",
    ]
    var settings: [String: String]?
    for path in paths {
      // A missing file has no settings.
      guard let bytes = FileManager.default.contents(atPath: path),
        let found = ProfileFile(String(decoding: bytes, as: UTF8.self))[profile: named ?? "default"]
      else { continue }
      settings = (settings ?? [:]).merging(found) { first, _ in first }
    }
    if let named, settings == nil {
      throw BlobStorageError(
        .invalidArgument,
        "There is no profile '\(named)' (AWS_PROFILE) in \(paths.joined(separator: " or ")).")
    }
    return settings ?? [:]
  }
}
