import BlobStorage
import BlobStorageSharing
import CCurl

/// A request in flight: sends its body, and collects the response up to a limit of bytes.
///
/// curl calls it on the thread that performs the request. A refusal that arrives before the whole body was sent stops
/// the upload.
final class Transfer {
  private(set) var answer = HTTPAnswer(status: 0, headers: [:], body: [])
  /// Why this side ended the transfer.
  private(set) var failure: TransportFailure?
  /// The handle that performs the request; nil before and after.
  var handle: EasyHandle?

  /// The most bytes of headers, including those of interim responses.
  private static let headerByteCountMax = 64 << 10
  /// The bytes that must move within `silence`, so that a server cannot hold a connection with single bytes. At 60 s
  /// this is 70 bytes a second, far below the slowest uplink.
  private static let movedByteCountMin: Int64 = 4 << 10

  private let body: ObjectContent?
  private var sentByteCount: Int64 = 0
  private let answerByteCountMax: Int
  private var headerByteCount = 0
  private let silence: Duration
  /// The bytes moved at the last count, and the time of that count.
  private var moved: (byteCount: Int64, time: ContinuousClock.Instant) = (0, .now)

  /// - Parameter silence: The longest time in which next to nothing moves in either direction.
  init(body: ObjectContent?, answerByteCountMax: Int, silence: Duration) {
    self.body = body
    self.answerByteCountMax = answerByteCountMax
    self.silence = silence
  }

  /// A complete response that refuses the request, even if the request then failed.
  var refusal: HTTPAnswer? { answer.status >= 300 && answer.byteCount == answer.body.count ? answer : nil }

  /// Puts the next bytes of the body into curl's buffer. Returns their number, 0 at the end.
  private func send(_ buffer: UnsafeMutableRawBufferPointer) -> Int {
    guard let body, refusal == nil else { return Int(CURL_READFUNC_ABORT) }
    do throws(BlobStorageError) {
      let count = try body.read(into: buffer, at: sentByteCount)
      sentByteCount += Int64(count)
      return count
    } catch {
      // Close the connection, so that the server does not mistake half a request for a whole one.
      failure = .local(error)
      return Int(CURL_READFUNC_ABORT)
    }
  }

  /// Continues the body at `offset`: the server had closed an idle connection, and curl opens another.
  private func seek(to offset: Int64) -> Bool {
    guard let body, (0...body.byteCount).contains(offset) else { return false }
    sentByteCount = offset
    return true
  }

  private func receiveHeader(_ bytes: UnsafeRawBufferPointer) -> Bool {
    headerByteCount += bytes.count
    guard headerByteCount <= Self.headerByteCountMax else {
      failure = .tooLong
      return false
    }
    let line = String(decoding: bytes, as: UTF8.self)
    if line.hasPrefix("HTTP/") {
      // Each response begins with a status line. Interim responses (1xx) precede the final one.
      let status = line.split(separator: " ").dropFirst().first.flatMap { Int($0) }
      answer = HTTPAnswer(status: status ?? 0, headers: [:], body: [])
      moved.time = .now
    } else if let colon = line.firstIndex(of: ":") {
      let name = line[..<colon].lowercased()
      let value = line[line.index(after: colon)...].trimmingPrefix { $0.isWhitespace }
      let end = value.lastIndex { !$0.isWhitespace }.map { value.index(after: $0) } ?? value.startIndex
      if answer.headers[name] == nil { answer.headers[name] = String(value[..<end]) }
    } else {
      // The empty line after the headers.
      handle?.acknowledge()
    }
    return true
  }

  private func receive(_ bytes: UnsafeRawBufferPointer) -> Bool {
    if answer.body.isEmpty { answer.body.reserveCapacity(min(answer.byteCount ?? 0, answerByteCountMax)) }
    guard answer.body.count + bytes.count <= answerByteCountMax else {
      failure = .tooLong
      return false
    }
    answer.body.append(contentsOf: bytes)
    return true
  }

  /// Whether to end the transfer, because nothing moves or the task was cancelled. curl calls it every second or more
  /// often.
  private func isOver(movedByteCount: Int64) -> Bool {
    if abs(movedByteCount - moved.byteCount) >= Self.movedByteCountMin { moved = (movedByteCount, .now) }
    if ContinuousClock.now - moved.time > silence { failure = .timeout }
    do throws(BlobStorageError) { try CancellationFlag.check() } catch { failure = .local(error) }
    return failure != nil
  }

  // MARK: Callbacks

  /// The functions that curl calls, with a transfer as the context.
  static let callbacks = bs_curl_callbacks(
    header: { bytes, _, count, context in
      of(context)?.receiveHeader(UnsafeRawBufferPointer(start: bytes, count: count)) == true ? count : 0
    },
    write: { bytes, _, count, context in
      of(context)?.receive(UnsafeRawBufferPointer(start: bytes, count: count)) == true ? count : 0
    },
    read: { buffer, size, count, context in
      of(context)?.send(UnsafeMutableRawBufferPointer(start: buffer, count: size * count)) ?? 0
    },
    seek: { context, offset, origin in
      origin == SEEK_SET && of(context)?.seek(to: Int64(offset)) == true
        ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL
    },
    progress: { context, _, received, _, sent in
      of(context)?.isOver(movedByteCount: Int64(received) + Int64(sent)) == false ? 0 : 1
    })

  private static func of(_ context: UnsafeMutableRawPointer?) -> Transfer? {
    context.map { Unmanaged<Transfer>.fromOpaque($0).takeUnretainedValue() }
  }
}
