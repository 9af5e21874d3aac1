import BlobStorage
import BlobStorageSharing

/// Stores objects in a bucket, below the location's prefix. Each call is one S3 request.
///
/// A single PUT stores an object whole or not at all, so an interruption leaves no parts behind. A put reads a file
/// twice, to sign and to send it, and never holds all of it in memory. Requests use only widely supported features:
/// `If-None-Match: *` on a PUT, ranges, and listings after a name.
package final class S3ObjectStore: ObjectStore {
  /// The longest object. All object stores accept five times as much in one PUT.
  package static let objectByteCountMax = BlobLimits.packByteCountMax

  /// The longest page: an encoded name takes up to 3 KiB, and its entry half a KiB more.
  private static let pageByteCountMax = 8 << 20

  package var place: String { client.configuration.location.description }

  package let client: S3Client

  private let pageCountMax: Int

  /// - Parameter pageCountMax: The most names in a page; object stores return at most 1,000.
  package init(_ client: S3Client, pageCountMax: Int = 1000) {
    self.client = client
    self.pageCountMax = pageCountMax
  }

  package func put(
    _ name: String, _ content: ObjectContent, ifAbsent: Bool
  ) throws(BlobStorageError) -> ObjectPutOutcome {
    guard content.byteCount <= Self.objectByteCountMax else {
      throw BlobStorageError(
        .limitExceeded,
        "'\(name)' has \(content.byteCount) bytes: an object has at most \(Self.objectByteCountMax).")
    }
    var request = S3Client.Request("PUT", name)
    request.body = content
    if ifAbsent { request.headers.append((name: "If-None-Match", value: "*")) }
    let answer = try client.send(request, accepts: { ifAbsent && $0.status == 412 })
    return answer.status == 412 ? .exists : .stored
  }

  package func get(_ name: String, _ range: Range<Int64>) throws(BlobStorageError) -> [UInt8]? {
    precondition(range.lowerBound >= 0, "a range begins at or after the object's first byte")
    // HTTP has no empty ranges.
    let asked = range.isEmpty ? range.lowerBound..<(range.lowerBound + 1) : range
    let text = "bytes=\(asked.lowerBound)-\(asked.upperBound - 1)"
    guard let part = try read(name, text, byteCountMax: Int(asked.count)) else { return nil }
    guard part.start == asked.lowerBound || part.bytes.isEmpty,
      part.bytes.count == Int(min(max(0, part.byteCount - asked.lowerBound), Int64(asked.count)))
    else { throw unfit(name) }
    return range.isEmpty ? [] : part.bytes
  }

  package func tail(
    _ name: String, byteCount: Int
  ) throws(BlobStorageError) -> (bytes: [UInt8], byteCount: Int64)? {
    precondition(byteCount > 0, "the last bytes of an object are at least one")
    guard let part = try read(name, "bytes=-\(byteCount)", byteCountMax: byteCount) else { return nil }
    guard part.bytes.count == Int(min(part.byteCount, Int64(byteCount))),
      part.start + Int64(part.bytes.count) == part.byteCount
    else { throw unfit(name) }
    return (part.bytes, part.byteCount)
  }

  package func list(_ prefix: String, after name: String?) throws(BlobStorageError) -> ObjectPage {
    let location = client.configuration.location
    var request = S3Client.Request("GET", nil)
    request.answerByteCountMax = Self.pageByteCountMax
    request.query = [
      (name: "list-type", value: "2"), (name: "encoding-type", value: "url"),
      (name: "max-keys", value: "\(pageCountMax)"), (name: "prefix", value: location.key(prefix)),
    ]
    if let name { request.query.append((name: "start-after", value: location.key(name))) }
    let answer = try client.send(request)
    guard
      let listing = ObjectListing(answer.body, keyPrefix: location.key(""), prefix: prefix, after: name)
    else {
      throw BlobStorageError(
        .io,
        "\(client.configuration.authority) answered \(request.text(client.configuration)) without a listing.")
    }
    return listing.page
  }

  package func delete(_ name: String) throws(BlobStorageError) {
    _ = try client.send(S3Client.Request("DELETE", name), accepts: Self.isMissing)
  }

  /// A part of an object, from a response.
  private struct Part {
    var bytes: [UInt8]
    var start: Int64
    /// The length of the whole object.
    var byteCount: Int64
  }

  private func read(_ name: String, _ range: String, byteCountMax: Int) throws(BlobStorageError) -> Part? {
    var request = S3Client.Request("GET", name)
    request.headers = [(name: "Range", value: range)]
    request.answerByteCountMax = byteCountMax
    let answer = try client.send(request, accepts: { $0.status == 416 || Self.isMissing($0) })
    switch answer.status {
    case 404: return nil
    // The object ends before the range, and its length is unknown. For a suffix range, the object is empty.
    case 416: return Part(bytes: [], start: 0, byteCount: 0)
    case 206:
      guard let text = answer.header("Content-Range"), let content = ContentRange(text),
        content.range.count == answer.body.count
      else { throw unfit(name) }
      return Part(bytes: answer.body, start: content.range.lowerBound, byteCount: content.byteCount)
    // The whole object: object stores send it for a range that covers all of it.
    case 200: return Part(bytes: answer.body, start: 0, byteCount: Int64(answer.body.count))
    default: throw unfit(name)
    }
  }

  private func unfit(_ name: String) -> BlobStorageError {
    BlobStorageError(
      .io,
      "\(client.configuration.authority) answered with another part of '\(client.configuration.location.key(name))' "
        + "than was asked for.")
  }

  /// Whether the object is missing, rather than the bucket. A proxy's own 404 has no code, and says nothing about it.
  private static func isMissing(_ answer: HTTPAnswer) -> Bool {
    answer.status == 404 && !["", "NoSuchBucket"].contains(S3Refusal(answer).code)
  }
}

/// Parses the header that says which part of an object a response holds: `Content-Range: bytes 0-9/443` (RFC 9110,
/// 14.4).
package struct ContentRange: Hashable, Sendable {
  package let range: Range<Int64>
  /// The length of the object.
  package let byteCount: Int64

  package init?(_ text: String) {
    guard text.hasPrefix("bytes ") else { return nil }
    let parts = text.dropFirst(6).split(whereSeparator: { $0 == "-" || $0 == "/" })
    guard parts.count == 3, let first = Int64(parts[0]), let last = Int64(parts[1]),
      let count = Int64(parts[2]),
      first >= 0, first <= last, last < count
    else { return nil }
    range = first..<(last + 1)
    byteCount = count
  }
}
