import ArgumentParser
import BlobStorage
import BlobStorageReports

/// `why`: shows which versions need something, and what dropping it frees.
struct WhyCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "why",
    abstract: "Shows what holds a key's blobs, a blob or a chunk, and what dropping it frees.",
    discussion: """
      A digest is blake3:… or sha256:… with 64 digits, or the digits alone. If a key \
      has that name, the command shows the key; with --digest, the digest.
      """)

  @Argument(help: ArgumentHelp("A key, or the digest of a blob or chunk.", valueName: "key|digest"))
  var text: KeyArgument

  @Flag(help: "Look up a digest, even if a key has that name.")
  var digest = false

  @Option(help: ArgumentHelp("List at most N holders and N keys that share.", valueName: "n"))
  var limit = 20

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func validate() throws {
    _ = try text.checked()
    guard limit >= 0 else { throw ValidationError("--limit is 0 or more") }
    if digest, DigestArgument(argument: text.text) == nil {
      throw ValidationError("\(text.text.printable) is not a digest")
    }
  }

  func perform(on store: BlobStore) async throws {
    guard let usage = try await usage(in: store) else {
      throw Failure(
        ExitStatus.notFound,
        "There is neither a key nor a blob nor a chunk “\(text.text.printable)” in the store.")
    }
    if shared.json { try JSONText.print(Output(usage, text.text)) } else { try print(usage) }
    try Failure.check(notFollowed: usage.unreadable)
  }

  private func usage(in store: BlobStore) async throws -> Usage? {
    if !digest, let usage = try await store.usage(of: .key(text.text), listCountMax: limit) { return usage }
    guard let digest = DigestArgument(argument: text.text)?.digest(in: store) else { return nil }
    return try await store.usage(of: .digest(digest), listCountMax: limit)
  }

  private func print(_ usage: Usage) throws {
    var facts = FactTable()
    facts.add(usage.kind.rawValue, text.text.printable)
    facts.add(usage.kind == .key ? "size of all versions" : "size", byteCount: usage.byteCount)
    facts.add("chunks, with bases", usage.chunkCount)
    facts.add("as stored", byteCount: usage.storedByteCount)
    if usage.holderCount == 0 {
      facts.add("held by", "no version; the next gc frees what nothing else needs")
    } else {
      facts.add("held by", HumanText.count(usage.holderCount, "version"))
    }
    facts.add("shared with", HumanText.count(usage.sharerCount, usage.kind == .key ? "other key" : "key"))
    facts.add("freed by dropping it", byteCount: usage.exclusiveByteCount)
    try facts.print()
    var lines = LineOutput()
    if !usage.holders.isEmpty { try lines.add("\nheld by") }
    for holder in usage.holders {
      try lines.add(
        "  \(holder.version.key.printable)  version \(holder.version.id)  \(holder.version.created.text)"
          + (holder.isCurrent ? "" : "  archived"))
    }
    try addRest(usage.holderCount - usage.holders.count, &lines)
    if !usage.sharers.isEmpty { try lines.add("\nshares chunks with") }
    for sharer in usage.sharers {
      try lines.add("  \(HumanText.size(sharer.sharedByteCount).padded(9))  \(sharer.key.printable)")
    }
    try addRest(usage.sharerCount - usage.sharers.count, &lines)
    try lines.flush()
  }

  private func addRest(_ count: Int, _ lines: inout LineOutput) throws {
    if count > 0 { try lines.add("  and \(HumanText.grouped(count)) more; --limit shows them") }
  }

  private struct Output: Encodable {
    struct Holder: Encodable {
      var key: String
      var version: String
      var digest: String
      var current: Bool
      var created: String
    }

    struct Sharer: Encodable {
      var key: String
      var sharedByteCount: Int64
    }

    var asked: String
    var kind: String
    var byteCount: Int64
    var chunks: Int
    var storedByteCount: Int64
    var exclusiveByteCount: Int64
    var holderCount: Int
    var heldBy: [Holder]
    var sharerCount: Int
    var sharedWith: [Sharer]

    init(_ usage: Usage, _ text: String) {
      asked = text
      kind = usage.kind.rawValue
      byteCount = usage.byteCount
      chunks = usage.chunkCount
      storedByteCount = usage.storedByteCount
      exclusiveByteCount = usage.exclusiveByteCount
      holderCount = usage.holderCount
      heldBy = usage.holders.map {
        Holder(
          key: $0.version.key, version: $0.version.id.description, digest: $0.version.digest.description,
          current: $0.isCurrent, created: $0.version.created.text)
      }
      sharerCount = usage.sharerCount
      sharedWith = usage.sharers.map { Sharer(key: $0.key, sharedByteCount: $0.sharedByteCount) }
    }
  }
}
