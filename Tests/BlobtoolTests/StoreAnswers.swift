import BlobStorage
import Foundation
import Testing

/// What a command answered: its exit code, and of what it wrote all that does not change unless the store does.
struct StoreAnswer: Equatable, Sendable, CustomStringConvertible {
  var status: Int32
  var content: Data

  var description: String {
    "exit code \(status), \(content.count) bytes: \(String(decoding: content.prefix(300), as: UTF8.self))"
  }
}

/// A question to a store: a command that changes nothing, or two where one alone shows nothing.
struct StoreQuestion: Sendable {
  /// All questions whose answers are known of an undamaged store.
  static let all =
    ["replaced", "long", "open", "kept"].map { get($0) }
    + ["deleted", "deleted later", "files/a", "never"].map { get($0) }
    + [
      Self("list") { try lines($0, ["key", "byteCount", "digest", "version", "versionCount", "created"]) },
      Self("versions", "archived") { try lines($0, ["byteCount", "digest", "version", "created"]) },
      Self("versions", "kept") { try lines($0, ["byteCount", "digest", "version", "created"]) },
      Self("versions", "deleted") { try lines($0, ["byteCount", "digest", "version", "created"]) },
      Self("info", "replaced") {
        try lines($0, ["key", "version", "digest", "byteCount", "created", "chunks"])
      },
      Self("why", "long") { try lines($0, ["key", "byteCount"]) },
      Self("stats") { try lines($0, ["keys", "versions", "blobs", "plainByteCount", "uniqueByteCount"]) },
      Self("report") { try report($0) },
      Self("verify") { try lines($0, ["damaged", "losses", "versionsAhead"]) },
      export, copy,
    ]

  /// The fewest that show every key, its current bytes and how many versions it has.
  static let short = [export] + all.filter { $0.name == "list" }

  let name: String
  private let ask: @Sendable (Workshop, StoreHistory) async throws -> StoreAnswer

  private init(_ words: String..., content: @escaping @Sendable (Outcome) throws -> Data) {
    name = words.joined(separator: " ")
    ask = { workshop, _ in
      let outcome = try await workshop.run(words + ["--json"])
      return StoreAnswer(status: outcome.status, content: try content(outcome))
    }
  }

  private init(named: String, ask: @escaping @Sendable (Workshop, StoreHistory) async throws -> StoreAnswer) {
    name = named
    self.ask = ask
  }

  func answer(_ workshop: Workshop, _ history: StoreHistory) async throws -> StoreAnswer {
    try await ask(workshop, history)
  }

  // MARK: Questions

  static func get(_ key: String) -> Self {
    Self(named: "get \(key)") { workshop, _ in
      let outcome = try await workshop.run(["get", key])
      return StoreAnswer(status: outcome.status, content: outcome.bytes)
    }
  }

  /// Every key's current bytes, as files.
  static let export = Self(named: "export") { workshop, _ in try await exported(workshop, workshop.storePath)
  }

  /// The same of a copy of the store, and all its versions.
  private static let copy = Self(named: "copy") { workshop, history in
    let target = workshop.folder.appending(path: "copied")
    try? FileManager.default.removeItem(at: target)
    try FileManager.default.copyItem(at: history.empty, to: target)
    let outcome = try await workshop.run(["copy", workshop.storePath, target.path])
    guard outcome.status == 0 else { return StoreAnswer(status: outcome.status, content: Data()) }
    let list = try await workshop.run(["list", "--json", "--store", target.path])
    let versions = try await workshop.run(["versions", "archived", "--json", "--store", target.path])
    let tree = try await exported(workshop, target.path)
    return StoreAnswer(
      status: max(list.status, versions.status, tree.status),
      content: list.bytes + versions.bytes + tree.content)
  }

  private static func exported(_ workshop: Workshop, _ store: String) async throws -> StoreAnswer {
    let folder = workshop.folder.appending(path: "exported")
    try? FileManager.default.removeItem(at: folder)
    let outcome = try await workshop.run(["export", folder.path, "--store", store])
    return StoreAnswer(status: outcome.status, content: tree(try StoreFiles(folder).bytes))
  }

  /// Files as bytes that can be compared and read.
  static func tree(_ files: [String: Data]) -> Data {
    var whole = Data()
    for (path, bytes) in files.sorted(by: { $0.key < $1.key }) {
      whole += Data("\(path) \(bytes.count) \(BlobDigest.of(Array(bytes)))\n".utf8)
    }
    return whole
  }

  // MARK: What does not change

  /// Of each line of JSON these fields.
  private static func lines(_ outcome: Outcome, _ fields: Set<String>) throws -> Data {
    var whole = Data()
    for line in outcome.lines {
      whole += try chosen(JSONSerialization.jsonObject(with: Data(line.utf8)), fields) + Data("\n".utf8)
    }
    return whole
  }

  private static func chosen(_ object: Any?, _ fields: Set<String>) throws -> Data {
    let object = object as? [String: Any] ?? [:]
    let chosen = object.filter { fields.contains($0.key) }
    return try JSONSerialization.data(withJSONObject: chosen, options: .sortedKeys)
  }

  private static func report(_ outcome: Outcome) throws -> Data {
    guard !outcome.bytes.isEmpty else { return Data() }
    let whole = try JSONSerialization.jsonObject(with: outcome.bytes) as? [String: Any] ?? [:]
    var content = try chosen(
      whole["statistics"], ["keys", "versions", "blobs", "plainByteCount", "uniqueByteCount"])
    for name in ["largestKeys", "busiestKeys"] {
      for key in whole[name] as? [Any] ?? [] { content += try chosen(key, ["key", "versions", "byteCount"]) }
    }
    content += try chosen(whole, ["history", "unreadable"])
    return content
  }
}
