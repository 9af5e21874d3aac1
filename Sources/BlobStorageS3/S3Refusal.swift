import BlobStorage

/// Explains a refusal of the object store in one sentence.
struct S3Refusal {
  /// The object store's error code, such as `NoSuchBucket`; empty if it sends none.
  let code: String
  let status: Int
  /// The pause that the object store requests in seconds; a date is ignored.
  let pauseAsked: Duration?
  /// The object store's time.
  let time: UTCTime?
  private let message: String
  /// The bucket's region, if the object store names it.
  private let region: String?

  init(_ answer: HTTPAnswer) {
    let body = Markup(answer.body)
    let error = body.flatMap { $0.name == "Error" ? $0 : nil }
    status = answer.status
    code = error?["Code"] ?? ""
    message = Self.printable(error?["Message"] ?? "")
    region = answer.header("x-amz-bucket-region") ?? error?["Region"]
    pauseAsked = answer.header("Retry-After").flatMap { Int($0) }.map { .seconds(max(0, $0)) }
    time = answer.header("Date").flatMap { UTCTime(httpDate: $0) }
  }

  /// Whether a retry may succeed: the object store reports overload, its own fault, damaged bytes, or a conflict with a
  /// concurrent request.
  var isTransient: Bool {
    switch code {
    case "QuotaExceeded", "XMinioStorageFull": false
    case "RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch", "OperationAborted",
      "ConditionalRequestConflict", "SlowDown":
      true
    default: [429, 500, 502, 503, 504].contains(status)
    }
  }

  var isClockSkew: Bool { code == "RequestTimeTooSkewed" }

  /// The error for the caller.
  ///
  /// - Parameter clockError: Seconds that this machine's clock is ahead of the object store's.
  func error(
    _ request: S3Client.Request, _ configuration: S3Configuration, attempts: Int, clockError: Int64?
  ) -> BlobStorageError {
    let service = configuration.authority
    let bucket = configuration.location.bucket
    switch (code, status) {
    case ("InvalidAccessKeyId", _), ("SignatureDoesNotMatch", _), (_, 401):
      return BlobStorageError(
        .permissionDenied,
        "\(service) does not accept the credentials (\(name)): check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
          + "the profile.")
    case ("ExpiredToken", _), ("InvalidToken", _):
      return BlobStorageError(
        .permissionDenied,
        "\(service) does not accept the session token any more (\(name)): get new credentials.")
    case ("RequestTimeTooSkewed", _):
      let amount =
        clockError.map { " by \(abs($0)) seconds \($0 > 0 ? "ahead of" : "behind")" } ?? " too far off"
      return BlobStorageError(
        .permissionDenied,
        "This machine's clock is\(amount) the object store's at \(service), which refused the corrected time"
          + " as well: set the clock.")
    case ("NoSuchBucket", _):
      return BlobStorageError(
        .noBucket, "There is no bucket '\(bucket)' at \(service): create it, or check its name.")
    case ("AuthorizationHeaderMalformed", _), ("IllegalLocationConstraintException", _),
      ("PermanentRedirect", _),
      ("TemporaryRedirect", _), (_, 301), (_, 302), (_, 307), (_, 308):
      guard let region, region != configuration.region else {
        return BlobStorageError(
          .invalidArgument,
          "\(service) sends requests for the bucket '\(bucket)' elsewhere: set AWS_REGION and AWS_ENDPOINT_URL to where "
            + "it is.")
      }
      return BlobStorageError(
        .invalidArgument,
        "The bucket '\(bucket)' is in the region '\(Self.printable(region))', not in '\(configuration.region)': set "
          + "AWS_REGION to that.")
    case (_, 507), ("QuotaExceeded", _), ("XMinioStorageFull", _), ("InsufficientStorage", _):
      return BlobStorageError(
        .noSpace,
        "The object store at \(service) is full (\(name)): \(request.text(configuration)) stored nothing.")
    case ("AccessDenied", _), (_, 403):
      return BlobStorageError(
        .permissionDenied,
        "\(service) refuses \(request.text(configuration)) to these credentials (\(name)): they need to read, write, "
          + "list and delete there.")
    case ("", 404):
      return BlobStorageError(
        .io,
        "\(service) answered \(request.text(configuration)) with 404, but not as an object store does: check"
          + " AWS_ENDPOINT_URL, and any proxy in front of it.")
    case (_, 429), (_, 503):
      return BlobStorageError(
        .busy,
        "The object store at \(service) is too busy (\(name)): \(request.text(configuration)) was tried"
          + " \(attempts) times."
      )
    default:
      let words = message.isEmpty ? "" : ": \(message)"
      let tries = attempts > 1 ? ", at the last of \(attempts) attempts" : ""
      return BlobStorageError(
        .io, "\(service) answered \(request.text(configuration)) with \(name)\(tries)\(words)")
    }
  }

  private var name: String { code.isEmpty ? "\(status)" : "\(status) \(Self.printable(code))" }

  /// Prepares text from the network for a message: replaces control characters, and truncates it to 200 characters.
  static func printable(_ text: String) -> String {
    String(text.unicodeScalars.prefix(200).map { $0.value < 0x20 || $0.value == 0x7F ? " " : Character($0) })
  }
}

extension TransportFailure {
  /// The error for the caller.
  func error(_ request: S3Client.Request, _ configuration: S3Configuration, attempts: Int) -> BlobStorageError
  {
    let service = configuration.endpoint.description
    switch self {
    case .refused(let reason):
      return BlobStorageError(
        .unreachable,
        "\(service) cannot be reached (\(S3Refusal.printable(reason))): check AWS_ENDPOINT_URL, the network, and that "
          + "the object store runs.")
    case .unknownHost:
      return BlobStorageError(
        .unreachable,
        "The host of \(configuration.authority) is not known: check AWS_ENDPOINT_URL and the network.")
    case .certificate(let isOtherHost):
      return BlobStorageError(
        .unreachable,
        isOtherHost
          ? "The certificate of \(service) is another host's, not \(configuration.authority)'s: check AWS_ENDPOINT_URL."
          : "The certificate of \(service) is signed by an authority that is not trusted here: AWS_CA_BUNDLE names the "
            + "certificates to trust.")
    case .proxy(let reason):
      return BlobStorageError(
        .unreachable, "The proxy on the way to \(service) refuses: \(S3Refusal.printable(reason)).")
    case .timeout:
      return BlobStorageError(
        .unreachable,
        "\(service) did not answer \(request.text(configuration)) in time, in \(attempts) attempts.")
    case .cut(let reason):
      return BlobStorageError(
        .unreachable,
        "The connection to \(service) broke in each of \(attempts) attempts at \(request.text(configuration)): "
          + "\(S3Refusal.printable(reason)).")
    case .tooLong:
      return BlobStorageError(
        .io, "\(service) answered \(request.text(configuration)) with more bytes than were asked for.")
    case .local(let error): return error
    }
  }
}

extension BlobStorageError.Code {
  /// The object store cannot be reached. A write may have taken effect.
  public static let unreachable = Self(rawValue: "unreachable")
  /// The object store has no such bucket.
  public static let noBucket = Self(rawValue: "noBucket")
}
