import BlobStorage
import BlobStorageSharing
import Foundation
import Synchronization

/// Sends S3 requests. Signs each attempt, and retries failures that may pass.
package final class S3Client: Sendable {
  /// A request before it is signed.
  package struct Request: Sendable {
    package var method: String
    /// The object's name below the location's prefix; nil for the bucket itself.
    package var name: String?
    package var query: [(name: String, value: String)] = []
    package var headers: [(name: String, value: String)] = []
    package var body: ObjectContent?
    /// The longest body of a response. Less than 1 MiB counts as 1 MiB, because the response may be a refusal.
    package var answerByteCountMax = 1 << 20

    package init(_ method: String, _ name: String?) {
      self.method = method
      self.name = name
    }

    func text(_ configuration: S3Configuration) -> String {
      let place = name.map { "s3://\(configuration.location.bucket)/\(configuration.location.key($0))" }
      return "\(method) \(place ?? configuration.location.description)"
    }
  }

  private struct State {
    /// Seconds to add to this machine's time.
    var clockOffset: Int64 = 0
    var wasAnswered = false
  }

  /// Every response may have a body of this length, because it may be a refusal.
  private static let refusalByteCountMax = 1 << 20

  package let configuration: S3Configuration
  private let transport: HTTPTransport
  private let policy: RetryPolicy
  private let surroundings: S3Surroundings
  private let signature: SignatureV4
  private let state = Mutex(State())

  /// Creates a client. Sends nothing.
  ///
  /// - Throws: `invalidArgument` if the certificates cannot be read.
  package init(
    _ configuration: S3Configuration, policy: RetryPolicy = RetryPolicy(),
    patience: HTTPTransport.Patience = .init(), surroundings: S3Surroundings = .system
  ) throws(BlobStorageError) {
    self.configuration = configuration
    self.policy = policy
    self.surroundings = surroundings
    signature = SignatureV4(credentials: configuration.credentials, region: configuration.region)
    transport = try HTTPTransport(
      isSecure: configuration.endpoint.isSecure, certificates: configuration.certificates,
      proxy: configuration.proxy, patience: patience)
  }

  /// Sends a request, with retries. Returns a response with a status below 300 or one that `accepts` allows.
  ///
  /// A retried request may have taken effect the first time.
  ///
  /// - Throws: The object store's refusal or the network's failure in one sentence, after all attempts; `cancelled` if
  ///   the task was; or the error of reading the body. The request may have taken effect.
  package func send(
    _ request: Request, accepts: (HTTPAnswer) -> Bool = { _ in false }
  ) throws(BlobStorageError) -> HTTPAnswer {
    let bodyDigest = try request.body?.sha256() ?? SignatureV4.emptyBodyDigest
    var attempt = 0
    var clockError: Int64?
    while true {
      attempt += 1
      let pauseAsked: Duration?
      let failure: BlobStorageError
      switch attemptOnce(request, bodyDigest: bodyDigest) {
      case .success(let answer) where answer.status < 300 || accepts(answer): return answer
      case .success(let answer):
        let refusal = S3Refusal(answer)
        if refusal.isClockSkew, clockError == nil, let time = refusal.time {
          clockError = correctClock(by: time)
          continue
        }
        failure = refusal.error(request, configuration, attempts: attempt, clockError: clockError)
        guard refusal.isTransient, attempt < policy.attemptCountMax else { throw withoutSecrets(failure) }
        pauseAsked = refusal.pauseAsked
      case .failure(let reason):
        failure = reason.error(request, configuration, attempts: attempt)
        let isFirst = reason.isBeforeContact && !state.withLock { $0.wasAnswered }
        let attemptCountMax = isFirst ? policy.firstContactCountMax : policy.attemptCountMax
        guard reason.isTransient, attempt < attemptCountMax else { throw withoutSecrets(failure) }
        pauseAsked = nil
      }
      surroundings.sleep(policy.pause(after: attempt, asked: pauseAsked, chance: surroundings.chance()))
      try CancellationFlag.check()
    }
  }

  private func attemptOnce(_ request: Request, bodyDigest: String) -> Result<HTTPAnswer, TransportFailure> {
    let authority = configuration.authority
    let time = UTCTime(secondsSince1970: surroundings.now() + state.withLock { $0.clockOffset })
    var headers = request.headers
    headers.append((name: "Host", value: authority))
    headers.append((name: "x-amz-date", value: time.basicText))
    headers.append((name: "x-amz-content-sha256", value: bodyDigest))
    if let token = configuration.credentials.sessionToken {
      headers.append((name: "x-amz-security-token", value: token.text))
    }
    let signed = SignatureV4.Request(
      method: request.method, path: configuration.path(of: request.name), query: request.query,
      headers: headers,
      bodyDigest: bodyDigest)
    headers.append((name: "Authorization", value: signature.authorization(for: signed, at: time)))
    let query = signed.queryText
    let scheme = configuration.endpoint.isSecure ? "https" : "http"
    do {
      let answer = try transport.send(
        method: request.method,
        url: "\(scheme)://\(authority)\(signed.path)\(query.isEmpty ? "" : "?\(query)")",
        headers: headers, body: request.body,
        answerByteCountMax: max(request.answerByteCountMax, Self.refusalByteCountMax))
      state.withLock { $0.wasAnswered = true }
      return .success(answer)
    } catch {
      return .failure(error)
    }
  }

  /// Adopts the object store's time. Returns the seconds by which this machine's clock is ahead.
  private func correctClock(by time: UTCTime) -> Int64 {
    let offset = time.secondsSince1970 - surroundings.now()
    state.withLock { $0.clockOffset = offset }
    return -offset
  }

  /// Removes secrets from an error, which may quote the object store's response.
  private func withoutSecrets(_ error: BlobStorageError) -> BlobStorageError {
    let secrets = [
      configuration.credentials.secretKey, configuration.credentials.sessionToken,
      configuration.proxy?.password,
    ]
    var message = error.message
    // Ignores secrets of up to three bytes: they are no secrets, and occur in every sentence.
    for case let secret? in secrets where secret.text.utf8.count > 3 {
      message = message.replacingOccurrences(of: secret.text, with: "(hidden)")
    }
    return BlobStorageError(
      error.code, message, key: error.key, digest: error.digest, pack: error.pack, offset: error.offset,
      path: error.path, errno: error.errno)
  }
}

extension S3Surroundings {
  /// The machine's clock and random numbers.
  package static let system = S3Surroundings(
    now: { Int64(WallClock.system.now() / 1000) },
    sleep: { pause in
      let end = ContinuousClock.now + pause
      while CancellationFlag.current?.isCancelled != true {
        let left = (end - ContinuousClock.now) / .seconds(1)
        if left <= 0 { return }
        Thread.sleep(forTimeInterval: min(left, lookSeconds))
      }
    },
    chance: { Double.random(in: 0..<1) })

  /// The pause between checks for cancellation.
  private static let lookSeconds = 0.2
}
