import AsyncHTTPClient
import BlobStorage
import BlobStorageSharing
import Dispatch
import NIOCore
import Synchronization
import SystemPackage

/// Hands a body over from the caller's thread to the event loop that sends it: one piece is sent while the next is
/// read.
///
/// What is sent is counted by what the client says it has sent, not by the futures that its writer returns: where a
/// connection ends while a body waits for room in it, these are never fulfilled (async-http-client 1.37).
final class Upload: Sendable {
  /// Bytes of a piece.
  static let pieceByteCount = 512 << 10

  private struct State {
    /// What takes the pieces, as soon as there is a connection.
    var writer: HTTPClient.Body.StreamWriter?
    var isOver = false
  }

  private let state = Mutex(State())
  /// Rises when there is a connection, when a piece has been sent, and when it is over.
  private let progress = DispatchSemaphore(value: 0)
  /// The end of the body.
  private let end: EventLoopPromise<Void>

  init(on loop: any EventLoop) { end = loop.makePromise() }

  /// The body as the client takes it.
  func requestBody(byteCount: Int64) -> HTTPClient.Body {
    .stream(contentLength: byteCount) { [self] writer in
      state.withLock { $0.writer = writer }
      progress.signal()
      return end.futureResult
    }
  }

  /// The client has sent a piece.
  func pieceWasSent() { progress.signal() }

  /// Says that there is nothing more to send, be it because the request is done with; a second call does nothing.
  func end(_ failure: (any Error)?) {
    state.withLock { $0.isOver = true }
    if let failure { end.fail(failure) } else { end.succeed(()) }
    progress.signal()
  }

  /// Sends the body; returns early when the server wants no more of it.
  ///
  /// - Throws: what the file threw. What the network has to say, the answer says.
  func run(_ content: ObjectContent) throws(BlobStorageError) {
    guard let writer = nextTurn() else { return }
    var isSending = false
    var isWanted = true
    do throws(BlobStorageError) {
      try content.forEachPiece(byteCount: Self.pieceByteCount) { (piece) throws(BlobStorageError) -> Bool in
        isWanted = !isSending || nextTurn() != nil
        guard isWanted else { return false }
        _ = writer.write(.byteBuffer(ByteBuffer(bytes: piece)))
        isSending = true
        return true
      }
    } catch {
      end(TransportFailure.source(error))
      throw error
    }
    guard isWanted, !isSending || nextTurn() != nil else { return }
    end(nil)
  }

  /// Waits until another piece can be sent; nil when the transfer has ended.
  private func nextTurn() -> HTTPClient.Body.StreamWriter? {
    progress.wait()
    return state.withLock { $0.isOver ? nil : $0.writer }
  }
}

extension ObjectContent {
  var bodyByteCount: Int64 {
    switch self {
    case .bytes(let bytes): Int64(bytes.count)
    case .file(_, let byteCount): byteCount
    }
  }

  /// Calls `body` with one piece after another, until it says that it is enough.
  func forEachPiece(
    byteCount pieceByteCount: Int, _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    switch self {
    case .bytes(let bytes):
      for start in stride(from: 0, to: bytes.count, by: pieceByteCount) {
        let piece = start..<min(start + pieceByteCount, bytes.count)
        let goesOn = bytes.withUnsafeBytes { bytes in
          Result { () throws(BlobStorageError) in try body(UnsafeRawBufferPointer(rebasing: bytes[piece])) }
        }
        guard try goesOn.get() else { return }
      }
    case .file(let file, let byteCount):
      let buffer = UnsafeMutableRawBufferPointer.allocate(
        byteCount: max(1, Int(min(Int64(pieceByteCount), byteCount))), alignment: 16)
      defer { buffer.deallocate() }
      var offset: Int64 = 0
      while offset < byteCount {
        let piece = UnsafeMutableRawBufferPointer(
          rebasing: buffer[..<Int(min(Int64(pieceByteCount), byteCount - offset))])
        guard try file.read(into: piece, at: offset) == piece.count else {
          throw BlobStorageError(
            .corrupted, "'\(file.path)' is shorter than the \(byteCount) bytes that were to be sent of it.",
            path: file.path.string)
        }
        guard try body(UnsafeRawBufferPointer(piece)) else { return }
        offset += Int64(piece.count)
      }
    }
  }
}
