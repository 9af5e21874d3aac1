import AsyncHTTPClient
import BlobStorage
import BlobStorageSharing
import Dispatch
import NIOCore
import Synchronization
import SystemPackage

/// Passes a body from the caller's thread to the event loop that sends it. The loop sends one piece while the thread
/// reads the next.
///
/// It counts the pieces that the client reports as sent. The futures of the client's writer are no use: if a connection
/// ends while the body waits for room, they are never fulfilled (async-http-client 1.37).
final class Upload: Sendable {
  /// The length of a piece.
  static let pieceByteCount = 512 << 10

  private struct State {
    /// The client's writer, once there is a connection.
    var writer: HTTPClient.Body.StreamWriter?
    var isOver = false
  }

  private let state = Mutex(State())
  /// Signalled on connection, after each sent piece, and at the end.
  private let progress = DispatchSemaphore(value: 0)
  /// Fulfilled at the end of the body.
  private let end: EventLoopPromise<Void>

  init(on loop: any EventLoop) { end = loop.makePromise() }

  /// The body for the client.
  func requestBody(byteCount: Int64) -> HTTPClient.Body {
    .stream(contentLength: byteCount) { [self] writer in
      state.withLock { $0.writer = writer }
      progress.signal()
      return end.futureResult
    }
  }

  /// Records that the client has sent a piece.
  func pieceWasSent() { progress.signal() }

  /// Ends the body, after its last byte or because the request has ended. Idempotent.
  func end(_ failure: (any Error)?) {
    state.withLock { $0.isOver = true }
    if let failure { end.fail(failure) } else { end.succeed(()) }
    progress.signal()
  }

  /// Sends the body. Returns early if the server wants no more.
  ///
  /// - Throws: errors of the file. The response reports network errors.
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

  /// Waits until the next piece can be sent; nil if the transfer has ended.
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

  /// Calls `body` with each piece in order, until it asks to stop.
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
            .corrupted, "'\(file.path)' is shorter than the \(byteCount) bytes to send.",
            path: file.path.string)
        }
        guard try body(UnsafeRawBufferPointer(piece)) else { return }
        offset += Int64(piece.count)
      }
    }
  }
}
