import BlobStorage
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import Synchronization

/// An HTTP server on loopback that does what a test says, right or wrong.
final class ScriptedServer: Sendable {
  struct Request: Sendable {
    var method: String
    var uri: String
    var headers: HTTPHeaders
    var body: [UInt8] = []

    func header(_ name: String) -> String? { headers.first(name: name) }
  }

  enum Answer: Sendable {
    case reply(Int, [(String, String)] = [], String = "")
    /// An answer whose body is no text.
    case bytes(Int, [(String, String)], [UInt8])
    /// An answer that tells a length and ends before.
    case cut(Int, byteCount: Int, String)
    /// The connection ends without an answer.
    case hangUp
    /// Nothing ever comes.
    case silence

    /// A refusal as S3 writes it.
    static func refusal(
      _ status: Int, _ code: String, _ headers: [(String, String)] = [],
      more: String = "<Message>No.</Message>"
    ) -> Answer {
      .reply(status, headers, "<?xml version=\"1.0\"?><Error><Code>\(code)</Code>\(more)</Error>")
    }
  }

  private let channel: any Channel
  private let log: Log

  /// A server whose answer to each request, the first being number 0, is what the script says.
  ///
  /// - Parameter answersEarly: Before the request's body.
  init(
    certificate: ServerCertificate? = nil, answersEarly: Bool = false,
    _ script: @escaping @Sendable (Int, Request) -> Answer
  ) throws {
    let log = Log()
    self.log = log
    let tls = try certificate.map { certificate in
      try NIOSSLContext(
        configuration: .makeServerConfiguration(
          certificateChain: try NIOSSLCertificate.fromPEMBytes(Array(certificate.chain.utf8)).map {
            .certificate($0)
          },
          privateKey: .privateKey(try NIOSSLPrivateKey(bytes: Array(certificate.key.utf8), format: .pem))))
    }
    channel = try ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          let pipeline = channel.pipeline.syncOperations
          if let tls { try pipeline.addHandler(NIOSSLServerHandler(context: tls)) }
          try pipeline.configureHTTPServerPipeline(withErrorHandling: false)
          try pipeline.addHandler(Handler(log: log, answersEarly: answersEarly, script: script))
        }
      }
      .bind(host: "127.0.0.1", port: 0).wait()
  }

  deinit { channel.close(promise: nil) }

  var port: Int { channel.localAddress?.port ?? 0 }

  /// What came so far, each request when it was answered.
  var requests: [Request] { log.requests.withLock { $0 } }
}

/// What came to a server, on all its connections.
private final class Log: Sendable {
  let requests = Mutex<[ScriptedServer.Request]>([])

  /// Notes a request and gives it its number.
  func add(_ request: ScriptedServer.Request) -> Int {
    requests.withLock {
      $0.append(request)
      return $0.count - 1
    }
  }
}

private final class Handler: ChannelInboundHandler {
  typealias InboundIn = HTTPServerRequestPart
  typealias OutboundOut = HTTPServerResponsePart

  private let log: Log
  private let answersEarly: Bool
  private let script: @Sendable (Int, ScriptedServer.Request) -> ScriptedServer.Answer
  private var request: ScriptedServer.Request?

  init(
    log: Log, answersEarly: Bool,
    script: @escaping @Sendable (Int, ScriptedServer.Request) -> ScriptedServer.Answer
  ) {
    self.log = log
    self.answersEarly = answersEarly
    self.script = script
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    switch unwrapInboundIn(data) {
    case .head(let head):
      request = .init(method: head.method.rawValue, uri: head.uri, headers: head.headers)
      if answersEarly { answer(context) }
    case .body(let buffer): request?.body.append(contentsOf: buffer.readableBytesView)
    case .end: answer(context)
    }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

  private func answer(_ context: ChannelHandlerContext) {
    guard let request else { return }
    self.request = nil
    switch script(log.add(request), request) {
    case .reply(let status, let headers, let body):
      write(context, status, headers + [("Content-Length", "\(body.utf8.count)")], ByteBuffer(string: body))
      context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    case .bytes(let status, let headers, let body):
      write(context, status, headers + [("Content-Length", "\(body.count)")], ByteBuffer(bytes: body))
      context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    case .cut(let status, let byteCount, let body):
      write(context, status, [("Content-Length", "\(byteCount)")], ByteBuffer(string: body))
      context.flush()
      context.close(promise: nil)
    case .hangUp: context.close(promise: nil)
    case .silence: break
    }
  }

  private func write(
    _ context: ChannelHandlerContext, _ status: Int, _ headers: [(String, String)], _ body: ByteBuffer
  ) {
    let head = HTTPResponseHead(
      version: .http1_1, status: .init(statusCode: status), headers: HTTPHeaders(headers))
    context.write(wrapOutboundOut(.head(head)), promise: nil)
    context.write(wrapOutboundOut(.body(.byteBuffer(body))), promise: nil)
  }
}
