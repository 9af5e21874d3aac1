import BlobStorage
import Foundation
import Synchronization

/// An HTTP server on loopback that does what a test says, right or wrong.
final class ScriptedServer: Sendable {
  struct Request: Sendable {
    var method: String
    var uri: String
    var body: [UInt8] = []
    private var headers: [(name: String, value: String)]

    /// A request from its first line and its headers.
    init?(_ head: [UInt8]) {
      let lines = String(decoding: head, as: UTF8.self).split(separator: "\r\n")
      let words = lines.first?.split(separator: " ") ?? []
      guard words.count == 3 else { return nil }
      method = String(words[0])
      uri = String(words[1])
      headers = lines.dropFirst().map { line in
        let name = line.prefix { $0 != ":" }
        return (name.lowercased(), line.dropFirst(name.count + 1).trimmingCharacters(in: .whitespaces))
      }
    }

    /// The first header named `name`.
    func header(_ name: String) -> String? { headers.first { $0.name == name.lowercased() }?.value }
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
    /// A response of that many bytes, one every 20 ms.
    case drip(byteCount: Int)

    /// A refusal as S3 writes it.
    static func refusal(
      _ status: Int, _ code: String, _ headers: [(String, String)] = [],
      more: String = "<Message>No.</Message>"
    ) -> Answer {
      .reply(status, headers, "<?xml version=\"1.0\"?><Error><Code>\(code)</Code>\(more)</Error>")
    }
  }

  private let socket: ServerSocket
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
    socket = try ServerSocket(certificate: certificate) { connection in
      log.connectionCount.withLock { $0 += 1 }
      while Self.serveOne(connection, log, answersEarly: answersEarly, script) {}
    }
  }

  var port: Int { socket.port }

  /// What came so far, each request when it was answered.
  var requests: [Request] { log.requests.withLock { $0 } }

  /// How many connections have been made so far.
  var connectionCount: Int { log.connectionCount.withLock { $0 } }

  /// Answers one request. Returns whether the connection goes on.
  private static func serveOne(
    _ connection: ServerConnection, _ log: Log, answersEarly: Bool, _ script: (Int, Request) -> Answer
  ) -> Bool {
    guard let head = connection.read(through: Array("\r\n\r\n".utf8)), var request = Request(head) else {
      return false
    }
    let byteCount = request.header("Content-Length").flatMap { Int($0) } ?? 0
    if answersEarly {
      guard answer(script(log.add(request), request), on: connection) else { return false }
      return connection.read(count: byteCount) != nil
    }
    guard let body = connection.read(count: byteCount) else { return false }
    request.body = body
    return answer(script(log.add(request), request), on: connection)
  }

  private static func answer(_ answer: Answer, on connection: ServerConnection) -> Bool {
    func write(_ status: Int, _ headers: [(String, String)], _ body: [UInt8]) {
      let lines = ["HTTP/1.1 \(status) Scripted"] + headers.map { "\($0.0): \($0.1)" } + ["", ""]
      connection.write(Array(lines.joined(separator: "\r\n").utf8) + body)
    }
    switch answer {
    case .reply(let status, let headers, let body):
      write(status, headers + [("Content-Length", "\(body.utf8.count)")], Array(body.utf8))
    case .bytes(let status, let headers, let body):
      write(status, headers + [("Content-Length", "\(body.count)")], body)
    case .cut(let status, let byteCount, let body):
      write(status, [("Content-Length", "\(byteCount)")], Array(body.utf8))
      return false
    case .hangUp: return false
    case .silence: break
    case .drip(let byteCount):
      write(200, [("Content-Length", "\(byteCount)")], [])
      for _ in 0..<byteCount {
        guard connection.write([7]) else { return false }
        Thread.sleep(forTimeInterval: 0.02)
      }
    }
    return true
  }
}

/// What came to a server, on all its connections.
private final class Log: Sendable {
  let requests = Mutex<[ScriptedServer.Request]>([])
  let connectionCount = Mutex(0)

  /// Notes a request and gives it its number.
  func add(_ request: ScriptedServer.Request) -> Int {
    requests.withLock {
      $0.append(request)
      return $0.count - 1
    }
  }
}
