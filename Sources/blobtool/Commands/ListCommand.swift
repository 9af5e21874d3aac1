import ArgumentParser
import BlobStorage
import BlobStorageCache
import BlobStorageTransfer
import BlobStorageTrees
import Synchronization

/// `list`: lists keys in byte order.
struct ListCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "list", abstract: "Lists keys, or those of a prefix, in byte order.",
    discussion: """
      Columns: size, when put, versions, key.

      With --at, lists a state instead, with its folders, which end in /. If a file's version was deleted since, the command \
      names the file and ends with exit code 1.
      """, aliases: ["ls"])

  @Argument(
    help: "The key PREFIX and the keys below it, which begin with PREFIX/ (default: all keys).",
    completion: KeyCompletion.kind)
  var prefix: String = ""

  @OptionGroup var prefixBytes: PrefixBytesOption

  @OptionGroup var globs: GlobOptions

  @Option(help: ArgumentHelp("List a state, or the last one until a time.", valueName: "state"))
  var at: StateArgument?

  @Option(help: ArgumentHelp("List at most N keys.", valueName: "n"))
  var limit: Int?

  @Flag(
    name: [.customShort("0"), .customLong("null")],
    help: "Print keys alone, each as it is and with a NUL after it, for `xargs -0`.")
  var isNullTerminated = false

  @OptionGroup var times: TimeOptions

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func validate() throws {
    guard limit ?? 0 >= 0 else { throw ValidationError("--limit is 0 or more") }
    _ = try prefixBytes.value(or: prefix)
    guard !isNullTerminated || !shared.json else {
      throw ValidationError("--null and --json exclude each other")
    }
  }

  func perform(on store: BlobStore) async throws {
    let encoder = JSONText()
    var lines = LineOutput()
    var count = 0
    if limit == 0 { return }
    let prefix = try prefixBytes.value(or: prefix)
    if let at { return try await list(at.state(in: store, prefix: prefix), prefix, of: store) }
    let matches = globs.filter
    let reads = try await store.cacheReads()
    for try await entry in store.keys(prefix: globs.prefix(within: prefix))
    where prefix.contains(entry.key) && matches(entry.key) && reads?.isExpired(entry.current) != true {
      if isNullTerminated {
        try lines.add(raw: entry.key + "\0")
      } else {
        try lines.add(shared.json ? encoder.line(entry) : text(entry))
      }
      count += 1
      if count == limit { break }
    }
    try lines.flush()
  }

  /// Lists what a state has.
  private func list(_ state: TreeState, _ prefix: KeyPrefix, of store: BlobStore) async throws {
    let globs = globs
    let matches = globs.filter
    // A thread of the store's delivers the pages, one after the other.
    let listed = Mutex<(count: Int, missing: [String])>((0, []))
    let (limit, isNullTerminated, json, times) = (limit ?? .max, isNullTerminated, shared.json, times)
    try await store.forEachEntry(of: state, prefix: prefix) { page in
      let encoder = JSONText()
      var lines = LineOutput()
      var missing: [String] = []
      var count = listed.withLock { $0.count }
      for entry in page where count < limit && matches(entry.key) {
        count += 1
        if entry.isMissing {
          missing.append(entry.key)
        } else if isNullTerminated {
          try lines.add(raw: entry.key + "\0")
        } else if json {
          try lines.add(
            encoder.line(StateLine(key: entry.key, version: entry.version, isFolder: entry.version == nil)))
        } else if let version = entry.version {
          try lines.add(
            "\(HumanText.size(version.byteCount).padded(9))  \(times.text(version.created))  \(entry.key.printable)"
          )
        } else {
          try lines.add("\("–".padded(9))  \("".padded(30))  \(entry.key.printable)")
        }
      }
      try lines.flush()
      listed.withLock { [count, missing] in
        $0.count = count
        $0.missing += missing
      }
    }
    let missing = listed.withLock { $0.missing }
    guard let first = missing.first else { return }
    throw Failure(
      ExitStatus.failed,
      "\(HumanText.count(missing.count, "file")) of state \(state.text.printable) \(missing.count == 1 ? "was" : "were")"
        + " deleted since, “\(first.printable)” among them.")
  }

  /// A line of a state in JSON: the fields of the version, or only the key of a folder.
  private struct StateLine: Encodable {
    var key: String
    var version: BlobVersion?
    var isFolder: Bool

    private enum CodingKeys: String, CodingKey { case key, isFolder = "folder" }

    func encode(to encoder: any Encoder) throws {
      if let version { return try version.encode(to: encoder) }
      var container = encoder.container(keyedBy: CodingKeys.self)
      try container.encode(key, forKey: .key)
      try container.encode(isFolder, forKey: .isFolder)
    }
  }

  private func text(_ entry: KeyEntry) -> String {
    let version = entry.current
    return "\(HumanText.size(version.byteCount).padded(9))  \(times.text(version.created))"
      + "  \(String(entry.versionCount).padded(3))  \(entry.key.printable)"
  }
}
