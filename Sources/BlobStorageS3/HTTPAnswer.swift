import AsyncHTTPClient
import BlobStorage
import NIOCore
import NIOHTTP1
import Synchronization

/// What a server answered.
package struct HTTPAnswer: Sendable {
  package var status: Int
  package var headers: HTTPHeaders
  package var body: [UInt8]

  /// The first header of that name.
  package func header(_ name: String) -> String? { headers.first(name: name) }
}

/// Takes an answer in, at most so many bytes of it.
///
/// A refusal that comes before all of the request's body was sent ends the sending.
final class AnswerCollector: HTTPClientResponseDelegate {
  typealias Response = HTTPAnswer

  private struct State {
    var answer = HTTPAnswer(status: 0, headers: [:], body: [])
    /// What the answer says about its own length.
    var byteCount: Int?

    /// Whether all of it is there, as far as it says how long it is.
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

  /// The refusal that is there whole, though the request did not end well.
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
      // An answer without a body may tell the length of another.
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
