import BlobStorage
import Foundation

// An HTTP handler that serves ranges: entity tags, media types, 206 and 416, and bodies that stream part by part. What a
// web framework would give and take is in Request and Response.

struct Request: Sendable {
  var path: String
  var headers: [String: String] = [:]
}

struct Response: Sendable {
  var status: Int
  var headers: [String: String] = [:]
  /// Reads the body part by part, at the pace of the client.
  var body: @Sendable (_ send: (Data) async throws -> Void) async throws -> Void = { _ in }
}

struct FileHandler: Sendable {
  let store: BlobStore

  func response(to request: Request) async throws -> Response {
    guard let version = try await store.currentVersion(of: request.path) else { return Response(status: 404) }
    var headers = [
      "ETag": version.entityTag, "Accept-Ranges": "bytes",
      "Content-Type": version.mediaType ?? "application/octet-stream",
    ]
    if request.headers["If-None-Match"] == version.entityTag {
      return Response(status: 304, headers: headers)
    }
    let range: Range<Int64>
    switch Self.range(request.headers["Range"], of: version.byteCount) {
    case .whole: range = 0..<version.byteCount
    case .part(let part):
      range = part
      headers["Content-Range"] = "bytes \(part.lowerBound)-\(part.upperBound - 1)/\(version.byteCount)"
    case .unsatisfiable:
      headers["Content-Range"] = "bytes */\(version.byteCount)"
      return Response(status: 416, headers: headers)
    }
    headers["Content-Length"] = "\(range.count)"
    // Opened before the headers go out: it reads the version that they describe, even if that is dropped meanwhile.
    guard let reader = try await store.reader(forKey: request.path, version: version.id) else {
      return Response(status: 404)
    }
    let isPart = headers["Content-Range"] != nil
    return Response(status: isPart ? 206 : 200, headers: headers) { send in
      defer { reader.close() }
      for try await part in reader.chunks(in: range) { try await send(part) }
    }
  }

  enum RequestedRange { case whole, part(Range<Int64>), unsatisfiable }

  /// What one range of bytes asks for: `bytes=0-99`, `bytes=100-` or `bytes=-100`.
  static func range(_ header: String?, of byteCount: Int64) -> RequestedRange {
    guard let header, header.hasPrefix("bytes="), !header.contains(",") else { return .whole }
    let ends = header.dropFirst(6).split(separator: "-", maxSplits: 1, omittingEmptySubsequences: false)
    guard ends.count == 2 else { return .whole }
    switch (Int64(ends[0]), Int64(ends[1])) {
    case (let first?, let last):
      guard first < byteCount else { return .unsatisfiable }
      let end = min(last.map { $0 < byteCount ? $0 + 1 : byteCount } ?? byteCount, byteCount)
      return first < end ? .part(first..<end) : .whole
    case (nil, let count?): return count > 0 ? .part(max(0, byteCount - count)..<byteCount) : .unsatisfiable
    case (nil, nil): return .whole
    }
  }
}

@Sendable func serveRanges(in folder: URL) async throws {
  let store = try await BlobStore.openOrCreate(at: folder.appending(path: "files.store"))
  let film = Data((0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 9) })
  try await store.put(.data(film), forKey: "/film.mp4", options: PutOptions(mediaType: "video/mp4"))
  let handler = FileHandler(store: store)
  for (range, expected) in [
    (nil, film), ("bytes=100-199", film[100..<200]), ("bytes=2999000-", film[2_999_000...]),
    ("bytes=-500", film.suffix(500)), ("bytes=3000000-", Data()),
  ] as [(String?, Data)] {
    let response = try await handler.response(
      to: Request(path: "/film.mp4", headers: range.map { ["Range": $0] } ?? [:]))
    var body = Data()
    try await response.body { body += $0 }
    print(range ?? "whole", response.status, response.headers["Content-Type"] ?? "", body == expected)
  }
  let tag = try await store.currentVersion(of: "/film.mp4")!.entityTag
  let cached = try await handler.response(to: Request(path: "/film.mp4", headers: ["If-None-Match": tag]))
  print("cached", cached.status)
  print("missing", try await handler.response(to: Request(path: "/nothing")).status)
  try await store.close()
}
