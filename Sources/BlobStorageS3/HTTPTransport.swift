import AsyncHTTPClient
import BlobStorage
import BlobStorageSharing
import Dispatch
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import SystemPackage

/// Sends a request and waits for the answer on the caller's thread: the one place where blocking callers meet the
/// event loops.
///
/// The caller's thread reads what is sent and waits for what comes; event loops wait for nothing but the network. It is
/// never one of theirs, nor a thread of the concurrency runtime.
package final class HTTPTransport: Sendable {
  /// How long nothing may happen.
  package struct Patience: Sendable {
    package var connecting: Duration
    /// Between two bytes, and between the request and its answer.
    package var silence: Duration

    package init(connecting: Duration = .seconds(10), silence: Duration = .seconds(60)) {
      self.connecting = connecting
      self.silence = silence
    }
  }

  /// More connections wait in line for one of these.
  private static let connectionCountMax = 32

  private let client: HTTPClient

  /// A transport for one object store.
  ///
  /// - Throws: when the certificates cannot be read.
  package init(
    certificates: FilePath?, proxy: S3Proxy?, patience: Patience
  ) throws(BlobStorageError) {
    var configuration = HTTPClient.Configuration(
      redirectConfiguration: .disallow,
      timeout: .init(
        connect: TimeAmount(patience.connecting), read: TimeAmount(patience.silence),
        write: TimeAmount(patience.silence)),
      decompression: .disabled)
    // Several requests at once go by several connections: one that is slow holds none of the others up.
    configuration.httpVersion = .http1Only
    configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = Self.connectionCountMax
    configuration.connectionPool.retryConnectionEstablishment = false
    if let certificates {
      var tls = TLSConfiguration.makeClientConfiguration()
      do {
        tls.trustRoots = .certificates(try NIOSSLCertificate.fromPEMFile(certificates.string))
      } catch {
        throw BlobStorageError(
          .invalidArgument, "There are no certificates to be read at '\(certificates)' (AWS_CA_BUNDLE).",
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

  // The client must be ended before it goes; it holds itself until that is done.
  deinit { client.shutdown { _ in } }

  /// One request and its answer, whatever its status.
  ///
  /// - Parameter answerByteCountMax: Bytes of an answer's body; a longer one is a failure.
  package func send(
    method: String, url: String, headers: HTTPHeaders, body: ObjectContent?, answerByteCountMax: Int
  ) throws(TransportFailure) -> HTTPAnswer {
    var headers = headers
    // An object store may answer before it has all of a body, and then go away. The client (1.37) would give a
    // connection back that its pool has forgotten, which ends the process. One that is to be closed is never given
    // back.
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
        // Closes the connection with the request, so that the server does not take half of it for the whole.
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
