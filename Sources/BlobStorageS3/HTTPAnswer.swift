import AsyncHTTPClient
import BlobStorage
import NIOCore
import NIOHTTP1
import Synchronization

/// A server's response.
package struct HTTPAnswer: Sendable {
  package var status: Int
  package var headers: HTTPHeaders
  package var body: [UInt8]

  /// The first header named `name`.
  package func header(_ name: String) -> String? { headers.first(name: name) }
}

/// Collects a response, up to a limit of bytes.
///
/// A refusal that arrives before the request's body was sent stops the upload.
final class AnswerCollector: HTTPClientResponseDelegate {
  typealias Response = HTTPAnswer

  private struct State {
    var answer = HTTPAnswer(status: 0, headers: [:], body: [])
    /// The length that the response announces.
    var byteCount: Int?

    /// Whether the body has the announced length.
    var isWhole: Bool { byteCount == answer.body.count }
  }

  private let state = Mutex(State())
  private let byteCountMax: Int

  private let upload: Upload?

  /// - Parameter upload: The body of the request.
  init(byteCountMax: Int, upload: Upload?) {
    self.byteCountMax = byteCountMax
    self.upload = upload
  }

  /// A whole refusal, even if the request then failed.
  var refusal: HTTPAnswer? { state.withLock { $0.isWhole && $0.answer.status >= 300 ? $0.answer : nil } }

  func didSendRequestPart(task: HTTPClient.Task<HTTPAnswer>, _ part: IOData) { upload?.pieceWasSent() }

  func didReceiveHead(task: HTTPClient.Task<HTTPAnswer>, _ head: HTTPResponseHead) -> EventLoopFuture<Void> {
    state.withLock { state in
      state.answer.status = Int(head.status.code)
      state.answer.headers = head.headers
      state.byteCount = head.headers.first(name: "Content-Length").flatMap { Int($0) }
      state.answer.body.reserveCapacity(min(state.byteCount ?? 0, byteCountMax))
    }
    endUploadIfRefused()
    return task.eventLoop.makeSucceededVoidFuture()
  }

  func didReceiveBodyPart(task: HTTPClient.Task<HTTPAnswer>, _ buffer: ByteBuffer) -> EventLoopFuture<Void> {
    let fits = state.withLock { state in
      guard state.answer.body.count + buffer.readableBytes <= byteCountMax else { return false }
      state.answer.body.append(contentsOf: buffer.readableBytesView)
      return true
    }
    endUploadIfRefused()
    return fits
      ? task.eventLoop.makeSucceededVoidFuture() : task.eventLoop.makeFailedFuture(TransportFailure.tooLong)
  }

  func didFinishRequest(task: HTTPClient.Task<HTTPAnswer>) throws -> HTTPAnswer {
    try state.withLock { state in
      // A response without a body may announce the length of another one.
      if let expected = state.byteCount, expected != state.answer.body.count, state.answer.status != 304 {
        throw TransportFailure.cut("it ended after \(state.answer.body.count) of \(expected) bytes")
      }
      return state.answer
    }
  }

  private func endUploadIfRefused() {
    if refusal != nil { upload?.end(TransportFailure.cut("it was answered before all of it was sent")) }
  }
}
