import ArgumentParser
import BlobStorage
import BlobStorageS3
import Foundation

/// The place of a store, as the user named it.
enum StorePlace: Sendable {
  case folder(String)
  /// A place in a bucket, and this machine's state folder.
  case bucket(S3Configuration, state: String, RemoteConfiguration)

  static func isInBucket(_ path: String) -> Bool { path.hasPrefix("s3://") }

  /// Resolves a path: `~/` means the home folder. Refuses a text that looks like another kind of place.
  ///
  /// - Throws: `ValidationError` with the right spelling.
  static func path(_ text: String) throws -> String {
    if isInBucket(text) { return text }
    let first = text.prefix { $0 != "/" }
    if first == "~", let home = ProcessInfo.processInfo.environment["HOME"], home.hasPrefix("/") {
      return home + text.dropFirst()
    }
    if first.hasPrefix("~") {
      throw ValidationError(
        "“\(text.printable)” is not a store's path: write the folder out, or ./\(text.printable) for one of that name"
      )
    }
    guard first.contains(":") else { return text }
    throw ValidationError(
      "“\(text.printable)” is not a store's path: a store in a bucket is s3://BUCKET/PREFIX, and a folder of that name"
        + " is ./\(text.printable)")
  }

  /// Parses a place in a bucket. The environment provides the access.
  ///
  /// - Parameter profile: a profile of the usual files, to use instead.
  static func bucket(
    _ path: String, state: String?, packCache: Int64?, catalogLimit: Int64? = nil, profile: String? = nil
  ) throws -> StorePlace {
    for (name, value) in [("pack-cache", packCache), ("catalog-limit", catalogLimit)] {
      guard value ?? .max >= 64 << 20 else { throw ValidationError("--\(name) is 64M or more") }
    }
    let location: S3Location
    do { location = try S3Location(path) } catch { throw ValidationError(error.message) }
    var environment = ProcessInfo.processInfo.environment
    if let profile {
      for name in namesBesideProfile { environment[name] = nil }
      environment["AWS_PROFILE"] = profile
    }
    let configuration = try S3Configuration(location: location, environment: environment)
    var remote = RemoteConfiguration()
    if let packCache { remote.cacheByteLimit = packCache }
    if let catalogLimit { remote.catalogByteLimit = catalogLimit }
    return .bucket(configuration, state: try state ?? defaultState(configuration), remote)
  }

  /// The variables about an object store that would take precedence over a profile.
  private static let namesBesideProfile = [
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE",
  ]

  /// This machine's folder: the store itself, or the state folder.
  var folder: String {
    switch self {
    case .folder(let path): path
    case .bucket(_, let state, _): state
    }
  }

  /// Opens the store. If there is none, the message says how to create one.
  func open() async throws -> BlobStore {
    try await explaining { () throws(BlobStorageError) in
      switch self {
      case .folder(let path): try await BlobStore.open(at: path)
      case .bucket(let place, let state, let remote):
        try await BlobStore.open(place, state: state, remote: remote)
      }
    }
  }

  func create(_ options: StoreOptions) async throws(BlobStorageError) -> BlobStore {
    switch self {
    case .folder(let path): try await BlobStore.create(at: path, options: options)
    case .bucket(let place, let state, let remote):
      try await BlobStore.create(in: place, state: state, options: options, remote: remote)
    }
  }

  /// Runs `body` on the place. If it has no store, the message says how to create one.
  func explaining<T>(_ body: () async throws(BlobStorageError) -> T) async throws -> T {
    do { return try await body() } catch {
      switch (error.code, self) {
      case (.noStore, .bucket(let place, _, _)):
        throw Failure(
          ExitStatus.failed,
          "There is no store at \(place.location.description.printable); `blobtool init"
            + " s3://BUCKET/PREFIX` creates one.")
      case (.noStore, .folder(let path)):
        throw Failure(
          ExitStatus.failed,
          "There is no store at \(path.printable); `blobtool init PATH` creates one.")
      case (.notAStore, .folder(let path)):
        throw Failure(
          ExitStatus.failed,
          "\(path.printable) holds something that is not a store; `blobtool init PATH` creates one in a"
            + " folder that is empty or missing.")
      default: throw error
      }
    }
  }

  /// The default state folder: one for each place of each object store.
  private static func defaultState(_ place: S3Configuration) throws -> String {
    let environment = ProcessInfo.processInfo.environment
    // The XDG Base Directory Specification says to ignore relative paths.
    let named = environment["XDG_STATE_HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil }
    guard let base = named ?? environment["HOME"].map({ "\($0)/.local/state" }) else {
      throw ValidationError("HOME is not set, so the state of the store has no place: give --state DIR")
    }
    let whole = BlobDigest.of(Array("\(place.endpoint)\n\(place.location)".utf8)).hex.prefix(16)
    let folder = "\(base)/blobtool"
    do {
      try FileManager.default.createDirectory(
        atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    } catch {
      throw Failure(
        ExitStatus.failed, "The folder \(folder.printable) cannot be created: give --state DIR.")
    }
    return "\(folder)/\(place.location.bucket)-\(whole)"
  }
}
