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

  @OptionGroup var times: TimeOptions

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
    let found = try await shared.withProgress { try await usage(in: store, $0.handler) }
    guard let usage = found else {
      throw Failure(
        ExitStatus.notFound,
        "There is neither a key nor a blob nor a chunk “\(text.text.printable)” in the store.")
    }
    try StandardOutput.unlessEnded {
      if shared.json { try JSONText.print(Output(asked: text.text, usage: usage)) } else { try print(usage) }
    }
    try Failure.check(notFollowed: usage.unreadable)
  }

  private func usage(in store: BlobStore, _ progress: ProgressHandler?) async throws -> BlobUsage? {
    if !digest, let usage = try await store.usage(of: .key(text.text), limit: limit, progress: progress) {
      return usage
    }
    guard let digest = DigestArgument(argument: text.text)?.digest(in: store) else { return nil }
    return try await store.usage(of: .digest(digest), limit: limit, progress: progress)
  }

  private func print(_ usage: BlobUsage) throws {
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
        "  \(holder.version.key.printable)  version \(holder.version.id)  \(times.text(holder.version.created))"
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

  /// The subject of the question, and the answer.
  private struct Output: Encodable {
    let asked: String
    let usage: BlobUsage

    private enum CodingKeys: String, CodingKey { case asked }

    func encode(to encoder: any Encoder) throws {
      try usage.encode(to: encoder)
      var container = encoder.container(keyedBy: CodingKeys.self)
      try container.encode(asked, forKey: .asked)
    }
  }
}
