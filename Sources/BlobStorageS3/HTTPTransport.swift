import BlobStorage
import BlobStorageSharing
import CCurl
import Dispatch
import Foundation
import Synchronization
import SystemPackage

/// Sends requests with libcurl on the callers' threads, and waits for the responses.
///
/// Each connection serves one request at a time and is then kept for another, so a slow request delays no other.
/// Redirects are not followed.
package final class HTTPTransport: Sendable {
  /// Timeouts.
  package struct Patience: Sendable {
    package var connecting: Duration
    /// The longest time in which less than 4 KiB move, and the longest between request and response. Detected up to a
    /// second late.
    package var silence: Duration

    package init(connecting: Duration = .seconds(10), silence: Duration = .seconds(60)) {
      self.connecting = connecting
      self.silence = silence
    }
  }

  /// The most connections; more requests wait.
  private static let connectionCountMax = 32
  /// The longest idle time of a connection, checked when a request ends. Object stores close idle connections, too.
  private static let idleMax = Duration.seconds(60)
  /// The length of curl's buffers, one for each direction.
  private static let bufferByteCount = 256 << 10

  private let isSecure: Bool
  private let certificates: FilePath?
  private let proxy: S3Proxy?
  private let patience: Patience
  /// Idle handles, the most recently used last.
  private let idle = Mutex<[EasyHandle]>([])
  private let room = DispatchSemaphore(value: connectionCountMax)

  /// A transport for one object store.
  ///
  /// - Parameter isSecure: Whether it uses HTTPS. Otherwise it uses HTTP, and never any other protocol.
  /// - Throws: `invalidArgument` if the certificates cannot be read.
  package init(
    isSecure: Bool, certificates: FilePath?, proxy: S3Proxy?, patience: Patience
  ) throws(BlobStorageError) {
    if let certificates {
      let text = FileManager.default.contents(atPath: certificates.string)
      guard let text, text.range(of: Data("-----BEGIN ".utf8)) != nil else {
        throw BlobStorageError(
          .invalidArgument, "Cannot read certificates at '\(certificates)' (AWS_CA_BUNDLE).",
          path: certificates.string)
      }
    }
    self.isSecure = isSecure
    self.certificates = certificates
    self.proxy = proxy
    self.patience = patience
  }

  /// Sends one request, and returns its response for any status.
  ///
  /// - Parameter answerByteCountMax: The longest response body; a longer one fails.
  package func send(
    method: String, url: String, headers: [(name: String, value: String)], body: ObjectContent?,
    answerByteCountMax: Int
  ) throws(TransportFailure) -> HTTPAnswer {
    guard headers.allSatisfy({ $0.value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F } }) else {
      throw .local(
        BlobStorageError(
          .invalidArgument,
          "The access key or the session token has a line break or another control character in it: check "
            + "AWS_ACCESS_KEY_ID and AWS_SESSION_TOKEN, or the profile."))
    }
    room.wait()
    defer { room.signal() }
    let handle = try idleHandle()
    handle.reset()
    setConnection(handle)
    handle.set(CURLOPT_URL, url)
    // Send the path unchanged, because the signature covers it.
    handle.set(CURLOPT_PATH_AS_IS, 1)
    if let body {
      handle.set(CURLOPT_UPLOAD, 1)
      handle.setBodyByteCount(body.byteCount)
      // Do not wait for `100 Continue`, which not every object store sends.
      handle.addHeader("Expect:")
    }
    handle.set(CURLOPT_CUSTOMREQUEST, method)
    // curl expects a semicolon after a header without a value.
    for header in headers {
      handle.addHeader(header.value.isEmpty ? "\(header.name);" : "\(header.name): \(header.value)")
    }
    let transfer = Transfer(
      body: body, answerByteCountMax: answerByteCountMax, silence: patience.silence)
    let code = handle.perform(transfer)
    if code == CURLE_OK {
      keep(handle)
      return transfer.answer
    }
    // The connection is closed, and curl may keep other state of the failed request: drop the handle.
    if let refusal = transfer.refusal { return refusal }
    if let failure = transfer.failure { throw failure }
    if code == CURLE_PARTIAL_FILE, let byteCount = transfer.answer.byteCount {
      throw .cut("it ended after \(transfer.answer.body.count) of \(byteCount) bytes")
    }
    throw TransportFailure(
      code, text: handle.text(code), errorNumber: handle.information(CURLINFO_OS_ERRNO),
      proxyStatus: handle.information(CURLINFO_HTTP_CONNECTCODE))
  }

  private func idleHandle() throws(TransportFailure) -> EasyHandle {
    if let handle = idle.withLock({ $0.popLast() }) { return handle }
    do throws(BlobStorageError) { return try EasyHandle() } catch { throw .local(error) }
  }

  private func setConnection(_ handle: EasyHandle) {
    handle.set(CURLOPT_NOSIGNAL, 1)
    handle.set(CURLOPT_PROTOCOLS, Int(isSecure ? CURLPROTO_HTTPS : CURLPROTO_HTTP))
    handle.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1)
    // Refuse older versions, even if the system's TLS library accepts them.
    handle.set(CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))
    handle.set(CURLOPT_CONNECTTIMEOUT_MS, max(1, Int(patience.connecting / .milliseconds(1))))
    handle.set(CURLOPT_BUFFERSIZE, Self.bufferByteCount)
    handle.set(CURLOPT_UPLOAD_BUFFERSIZE, Self.bufferByteCount)
    // Every connection has its own handle.
    handle.set(CURLOPT_MAXCONNECTS, 1)
    if let certificates {
      handle.set(CURLOPT_CAINFO, certificates.string)
      handle.clear(CURLOPT_CAPATH)
    }
    // The configuration has read the proxy variables, so curl must not.
    handle.set(CURLOPT_NOPROXY, "")
    guard let proxy else { return handle.set(CURLOPT_PROXY, "") }
    let host = proxy.host.contains(":") ? "[\(proxy.host)]" : proxy.host
    handle.set(CURLOPT_PROXY, "http://\(host):\(proxy.port)")
    handle.set(CURLOPT_HTTPPROXYTUNNEL, 1)
    handle.set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
    if let user = proxy.user {
      handle.set(CURLOPT_PROXYUSERNAME, user)
      handle.set(CURLOPT_PROXYPASSWORD, proxy.password?.text ?? "")
    }
  }

  /// Returns a handle to the pool, and frees handles that were idle for too long.
  private func keep(_ handle: EasyHandle) {
    // Free them outside the lock, because that may wait for the network.
    _ = idle.withLock { idle in
      let stale = Array(idle.prefix { ContinuousClock.now - $0.lastUse > Self.idleMax })
      idle.removeFirst(stale.count)
      idle.append(handle)
      return stale
    }
  }
}

/// A server's response.
package struct HTTPAnswer: Sendable {
  package var status: Int
  /// The first value of each header, by its name in lower case.
  package var headers: [String: String]
  package var body: [UInt8]

  /// The first header named `name`.
  package func header(_ name: String) -> String? { headers[name.lowercased()] }

  /// The length that the response announces for its body.
  var byteCount: Int? { header("Content-Length").flatMap { Int($0) } }
}
