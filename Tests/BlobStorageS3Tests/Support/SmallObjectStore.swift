import BlobStorage
import Foundation
import Synchronization

/// As much of an object store as a store needs, in memory; its bucket is `bucket`.
final class SmallObjectStore: Sendable {
  /// Whether it honors `If-None-Match`.
  private let keepsApart: Bool
  private let objects = Mutex<[String: [UInt8]]>([:])

  init(keepsApart: Bool) { self.keepsApart = keepsApart }

  /// The names of all objects.
  var names: [String] { objects.withLock { $0.keys.sorted() } }

  func set(_ name: String, _ bytes: [UInt8]) { objects.withLock { $0[name] = bytes } }

  func answer(_ request: ScriptedServer.Request) -> ScriptedServer.Answer {
    guard let address = URLComponents(string: "http://service" + request.uri) else { return .reply(400) }
    let name = String(address.path.dropFirst("/bucket/".count))
    switch request.method {
    case "PUT":
      let isRefused = objects.withLock { objects -> Bool in
        if keepsApart, request.header("If-None-Match") == "*", objects[name] != nil { return true }
        objects[name] = request.body
        return false
      }
      return isRefused ? .refusal(412, "PreconditionFailed") : .reply(200)
    case "DELETE":
      objects.withLock { $0[name] = nil }
      return .reply(204)
    case "GET" where name.isEmpty: return list(address)
    case "GET": return get(name, request.header("Range") ?? "")
    default: return .reply(405)
    }
  }

  private func list(_ address: URLComponents) -> ScriptedServer.Answer {
    func value(_ name: String) -> String {
      address.queryItems?.first { $0.name == name }?.value ?? ""
    }
    let (prefix, after) = (value("prefix"), value("start-after"))
    let entries = objects.withLock { objects in
      objects.filter { $0.key.hasPrefix(prefix) && $0.key > after }.mapValues(\.count).sorted {
        $0.key < $1.key
      }
    }
    let text = entries.map { "<Contents><Key>\($0.key)</Key><Size>\($0.value)</Size></Contents>" }.joined()
    return .reply(
      200, [], "<ListBucketResult><IsTruncated>false</IsTruncated>\(text)</ListBucketResult>")
  }

  private func get(_ name: String, _ range: String) -> ScriptedServer.Answer {
    guard let bytes = objects.withLock({ $0[name] }) else { return .refusal(404, "NoSuchKey") }
    let numbers = range.dropFirst("bytes=".count).split(separator: "-").compactMap { Int($0) }
    // A range, or the last so many.
    let first = numbers.count == 2 ? numbers[0] : max(0, bytes.count - (numbers.first ?? 0))
    let end = numbers.count == 2 ? min(numbers[1] + 1, bytes.count) : bytes.count
    guard first < end else { return .refusal(416, "InvalidRange") }
    return .bytes(
      206, [("Content-Range", "bytes \(first)-\(end - 1)/\(bytes.count)")], Array(bytes[first..<end]))
  }
}
