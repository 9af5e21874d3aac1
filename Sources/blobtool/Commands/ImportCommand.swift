import ArgumentParser
import BlobStorage
import BlobStorageTransfer

/// `import`: stores files and trees of files under keys.
struct ImportCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "import", abstract: "Stores files and every regular file below folders.",
    discussion: """
      A file below PATH gets the key PREFIX + its path relative to PATH; a PATH that is a file gets PREFIX + its name. \
      If two files would get the same key, nothing is imported, and the exit code is 64.

      A file with the size, times and inode of its last import is not read again, unless its key is known to be \
      unreadable. Start an interrupted import again to continue it. The store's own folder is left out.

      --dry-run reads, looks up and encodes everything and stores nothing. It says how many files there are, how much \
      of them is new, and how much that would take on disk. It ignores similarity among new files, so the import may \
      take less.
      """)

  @Argument(help: "Files and folders.", completion: .file())
  var paths: [String]

  @Option(help: "The prefix of all keys.")
  var prefix: String = ""

  @Flag(help: "Keep the current versions in their keys' history.")
  var archive = false

  @Flag(help: "Read and compare everything, and change nothing.")
  var dryRun = false

  @Option(
    help: ArgumentHelp(
      "Leave out what a shell pattern matches: the name, or the path if it has a /.", valueName: "glob"))
  var exclude: [String] = []

  @Flag(help: "Read files again that seem unchanged.")
  var force = false

  @Option(help: "Use this codec instead of the store's: zstd, zlib or none.")
  var codec: Choice<CodecKind>?

  @OptionGroup var shared: SharedOptions

  private static let shownCountMax = 10

  func validate() throws {
    guard paths.allSatisfy({ !$0.isEmpty }) else { throw ValidationError("a path is empty") }
  }

  func perform(on store: BlobStore) async throws {
    let options = ImportOptions(
      prefix: prefix, replacement: archive ? .archiveCurrent : .replaceCurrent, codec: codec?.value,
      isDryRun: dryRun, excluded: exclude, readsUnchanged: force)
    let report = try await shared.withProgress { meter in
      try await store.importFiles(paths, options: options, progress: meter.handler)
    }
    if !dryRun { try await CacheCommand.hold(store) }
    if shared.json {
      try JSONText.print(report)
    } else {
      try print(report)
    }
    let failedCount = report.skipped.count { $0.isFailure }
    if failedCount > 0 {
      throw Failure(ExitStatus.failed, "\(HumanText.count(failedCount, "file")) could not be imported.")
    }
  }

  private func print(_ report: ImportReport) throws {
    for skipped in report.skipped where skipped.isFailure {
      StandardError.say("skipped \(skipped.path.printable): \(skipped.reason)")
    }
    // Skipped links are not a failure, and a library may have thousands.
    let others = report.skipped.filter { !$0.isFailure }
    for skipped in others.prefix(Self.shownCountMax) {
      StandardError.say("skipped \(skipped.path.printable): \(skipped.reason)")
    }
    if others.count > Self.shownCountMax {
      let rest = HumanText.grouped(others.count - Self.shownCountMax)
      StandardError.say("skipped \(rest) more that are not regular files; --json lists them")
    }
    var facts = FactTable()
    facts.add(
      dryRun ? "would import" : "imported",
      "\(HumanText.count(report.fileCount, "file")), \(HumanText.size(report.byteCount))")
    facts.add("new or changed", report.newFileCount)
    facts.add("unchanged", report.unchangedFileCount)
    if !report.skipped.isEmpty { facts.add("skipped", report.skipped.count) }
    if report.evictedFileCount > 0 {
      facts.add("evicted again", report.evictedFileCount)
      StandardError.say(
        "\(HumanText.grouped(report.evictedFileCount)) of \(HumanText.count(report.fileCount, "file")) are no longer in"
          + " the cache: its limit has no room for all; `blobtool cache set-limit` raises it")
    }
    facts.add("new bytes", byteCount: report.newByteCount)
    facts.add("already stored", byteCount: report.duplicateByteCount)
    facts.add(dryRun ? "would take on disk" : "added to packs", byteCount: report.storedByteCount)
    facts.add("time", HumanText.duration(report.duration))
    try facts.print()
  }
}
