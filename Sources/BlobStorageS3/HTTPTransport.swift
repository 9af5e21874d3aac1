import AsyncHTTPClient
import BlobStorage
import BlobStorageSharing
import Dispatch
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import SystemPackage

/// Sends a request and waits for the response on the caller's thread: the one place where blocking callers meet event
/// loops.
///
/// The caller's thread reads the body and waits; event loops wait for the network only. The caller's thread is never an
/// event loop's or the concurrency runtime's.
package final class HTTPTransport: Sendable {
  /// Timeouts.
  package struct Patience: Sendable {
    package var connecting: Duration
    /// The longest silence between two bytes, and between request and response.
    package var silence: Duration

    package init(connecting: Duration = .seconds(10), silence: Duration = .seconds(60)) {
      self.connecting = connecting
      self.silence = silence
    }
  }

  /// The most connections; more requests wait.
  private static let connectionCountMax = 32

  private let client: HTTPClient

  /// A transport for one object store.
  ///
  /// - Throws: if the certificates cannot be read.
  package init(
    certificates: FilePath?, proxy: S3Proxy?, patience: Patience
  ) throws(BlobStorageError) {
    var configuration = HTTPClient.Configuration(
      redirectConfiguration: .disallow,
      timeout: .init(
        connect: TimeAmount(patience.connecting), read: TimeAmount(patience.silence),
        write: TimeAmount(patience.silence)),
      decompression: .disabled)
    // Concurrent requests use separate connections, so a slow one delays no other.
    configuration.httpVersion = .http1Only
    configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = Self.connectionCountMax
    configuration.connectionPool.retryConnectionEstablishment = false
    if let certificates {
      var tls = TLSConfiguration.makeClientConfiguration()
      do {
        tls.trustRoots = .certificates(try NIOSSLCertificate.fromPEMFile(certificates.string))
      } catch {
        throw BlobStorageError(
          .invalidArgument, "Cannot read certificates at '\(certificates)' (AWS_CA_BUNDLE).",
          path: certificates.string)
      }
      configuration.tlsConfiguration = tls
    }
    if let proxy {
      let authorization = proxy.user.map {
        HTTPClient.Authorization.basic(username: $0, password: proxy.password?.text ?? "")
      }
      configuration.proxy = .server(host: proxy.host, port: proxy.port, authorization: authorization)
    }
    client = HTTPClient(
      eventLoopGroupProvider: .shared(MultiThreadedEventLoopGroup.singleton), configuration: configuration)
  }

  // The client must be shut down before it is freed; it keeps itself alive until then.
  deinit { client.shutdown { _ in } }

  /// Sends one request and returns its response, whatever its status.
  ///
  /// - Parameter answerByteCountMax: The longest response body; a longer one fails.
  package func send(
    method: String, url: String, headers: HTTPHeaders, body: ObjectContent?, answerByteCountMax: Int
  ) throws(TransportFailure) -> HTTPAnswer {
    var headers = headers
    // An object store may respond before it has the whole body, and disconnect. The client (1.37) would then return a
    // connection that its pool has forgotten, which ends the process. A connection marked `close` is never returned.
    if body != nil { headers.replaceOrAdd(name: "Connection", value: "close") }
    let upload = body.map { _ in Upload(on: client.eventLoopGroup.any()) }
    let collector = AnswerCollector(byteCountMax: answerByteCountMax, upload: upload)
    let task: HTTPClient.Task<HTTPAnswer>
    do {
      let request = try HTTPClient.Request(
        url: url, method: HTTPMethod(rawValue: method), headers: headers,
        body: upload.flatMap { upload in body.map { upload.requestBody(byteCount: $0.bodyByteCount) } })
      task = client.execute(request: request, delegate: collector)
    } catch {
      upload?.end(nil)
      throw TransportFailure(error)
    }
    if let upload, let body {
      task.futureResult.whenComplete { _ in upload.end(nil) }
      do { try upload.run(body) } catch {
        // Close the connection, so that the server does not take half a request for a whole one.
        task.fail(reason: TransportFailure.source(error))
      }
    }
    do { return try task.futureResult.wait() } catch {
      if let refusal = collector.refusal { return refusal }
      throw TransportFailure(error)
    }
  }
}

extension TimeAmount {
  fileprivate init(_ duration: Duration) {
    let (seconds, attoseconds) = duration.components
    self = .nanoseconds(seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
  }
}
