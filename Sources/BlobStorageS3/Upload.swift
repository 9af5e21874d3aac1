import AsyncHTTPClient
import BlobStorage
import NIOCore
import SystemPackage

/// Hands a body over from the caller's thread to the event loop that sends it: one piece is sent while the next is
/// read.
final class Upload: Sendable {
  /// Bytes of a piece.
  static let pieceByteCount = 512 << 10

  /// What takes the pieces, as soon as there is a connection; a failure when there will be none.
  private let writer: EventLoopPromise<HTTPClient.Body.StreamWriter>
  /// The end of the body.
  private let end: EventLoopPromise<Void>

  init(on loop: any EventLoop) {
    writer = loop.makePromise()
    end = loop.makePromise()
  }

  /// The body as the client takes it.
  func requestBody(byteCount: Int64) -> HTTPClient.Body {
    .stream(contentLength: byteCount) { [writer, end] in
      writer.succeed($0)
      return end.futureResult
    }
  }

  /// Says that there is nothing more to send, be it because the request is done with; a second call does nothing.
  func end(_ failure: (any Error)?) {
    writer.fail(failure ?? TransportFailure.cut("the request is over"))
    if let failure { end.fail(failure) } else { end.succeed(()) }
  }

  /// Sends the body; returns early when the server wants no more of it.
  ///
  /// - Throws: what the file threw. What the network has to say, the answer says.
  func run(_ content: ObjectContent) throws(BlobStorageError) {
    guard let writer = try? writer.futureResult.wait() else { return }
    var sending: EventLoopFuture<Void>?
    do throws(BlobStorageError) {
      try content.forEachPiece(byteCount: Self.pieceByteCount) { (piece) throws(BlobStorageError) -> Bool in
        if let sending, (try? sending.wait()) == nil { return false }
        sending = writer.write(.byteBuffer(ByteBuffer(bytes: piece)))
        return true
      }
    } catch {
      end(TransportFailure.source(error))
      throw error
    }
    if let sending, (try? sending.wait()) == nil { return }
    end(nil)
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
