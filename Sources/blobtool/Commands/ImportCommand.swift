import ArgumentParser
import BlobStorage
import BlobStorageMigration
import BlobStorageTransfer
import BlobStorageTrees
import Foundation
import SystemPackage

/// `import`: stores files and trees of files under keys.
struct ImportCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "import", abstract: "Stores files and whole folders.",
    discussion: """
      A file below PATH gets the key PREFIX + its path relative to PATH; a PATH that is a file gets PREFIX + its name. \
      If a PATH is a folder and PREFIX ends in a letter or digit, a / follows: --prefix backup means backup/. \
      Links, empty folders, modes, times, extended attributes and hard links are kept, and owners if you are root. \
      Devices, sockets and pipes are named and skipped.

      Each import records a state: which files, links and folders it found. `blobtool states` lists them, and `export --at` \
      brings one back. What an import replaces is kept for the states that have it, until `blobtool keep` drops these.

      If two files would get the same key, nothing is imported, and the exit code is 64.

      A file with the size, times and inode of its last import is not read again, unless its key is known to be \
      unreadable. Start an interrupted import again to continue it. The store's own folder is left out.

      --files-from reads a list of files, such as `find` prints. Each gets the key PREFIX + its path as it is in the \
      list, without ./ and / in front. Folders of the list are skipped.

      --dry-run reads, looks up and encodes everything and stores nothing. It says how many files there are, how much \
      of them is new, and how much that would take on disk. It ignores similarity among new files, so the import may \
      take less.
      """)

  @Argument(help: "Files and folders.", completion: .file())
  var paths: [PathArgument] = []

  @Option(
    help: ArgumentHelp(
      "Import the files that FILE lists, one a line; - is standard input.", valueName: "file"),
    completion: .file())
  var filesFrom: String?

  @Option(
    help: ArgumentHelp(
      "Import all snapshots of restic:REPOSITORY or borg:REPOSITORY, oldest first, each as a state.",
      valueName: "repository"))
  var from: String?

  @Flag(
    name: [.customShort("0"), .customLong("null")],
    help: "The list has a NUL after each path, as from `find -print0`.")
  var isNullTerminated = false

  @Option(help: "The prefix of all keys.")
  var prefix: String = ""

  @Flag(help: "Keep the current versions in their keys' history.")
  var archive = false

  @Option(help: ArgumentHelp("The name of the state that the import records.", valueName: "name"))
  var name: String?

  @Flag(help: "Record no state, and keep nothing that is replaced.")
  var noState = false

  @Flag(help: "Keep owners, which is the default for root.")
  var owners = false

  @Flag(help: "Keep regular files with their bytes and times alone.")
  var noAttributes = false

  @Flag(help: "Leave out what is on other file systems than the paths.")
  var oneFileSystem = false

  @Flag(help: "Leave out what is in folders with a CACHEDIR.TAG.")
  var excludeCaches = false

  @OptionGroup var dry: DryRunOption

  @Option(
    help: ArgumentHelp(
      "Leave out what a shell pattern matches: the name, or the path if it has a /.", valueName: "glob"))
  var exclude: [String] = []

  @Option(
    help: ArgumentHelp(
      "Leave out what the patterns in FILE match, one a line; lines with # in front are comments.",
      valueName: "file"),
    completion: .file())
  var excludeFrom: [String] = []

  @Flag(help: "Read files again that seem unchanged.")
  var force = false

  @Option(help: "Use this codec instead of the store's.")
  var codec: Choice<CodecKind>?

  @OptionGroup var bandwidth: BandwidthOption

  @OptionGroup var verbose: VerboseOption

  @OptionGroup var shared: SharedOptions

  private static let shownCountMax = 10

  private var dryRun: Bool { dry.isDryRun }

  func validate() throws {
    let waysCount = (paths.isEmpty ? 0 : 1) + (filesFrom == nil ? 0 : 1) + (from == nil ? 0 : 1)
    guard waysCount == 1 else {
      throw ValidationError("give one of these: files and folders, --files-from, --from")
    }
    if let from {
      guard SnapshotRepository(from) != nil else {
        throw ValidationError("--from is restic:REPOSITORY or borg:REPOSITORY")
      }
      guard !dryRun, !noState, name == nil else {
        throw ValidationError("--from cannot be combined with --dry-run, --no-state and --name")
      }
    }
    guard !isNullTerminated || filesFrom != nil else { throw ValidationError("--null is for --files-from") }
    guard !owners || !noAttributes else {
      throw ValidationError("--owners and --no-attributes exclude each other")
    }
    guard name == nil || !noState else { throw ValidationError("--name and --no-state exclude each other") }
    guard name != "" else { throw ValidationError("the name of a state is empty") }
    try RawText.check([prefix, name ?? "", from ?? ""])
  }

  func perform(on store: BlobStore) async throws {
    let paths =
      try filesFrom.map {
        try TextList($0).items(endedBy: isNullTerminated ? 0 : UInt8(ascii: "\n")).map(RawText.path)
      } ?? paths.map(\.path)
    let patterns = try exclude.map(RawText.bytes) + excludeFrom.flatMap { try TextList($0).patterns() }
    let options = ImportOptions(
      prefix: wholePrefix(paths), replacement: archive ? .archiveCurrent : .replaceCurrent,
      codec: codec?.value,
      isDryRun: dryRun, excluded: patterns.map { EscapedName.key(of: $0).text }, readsUnchanged: force,
      keepsAttributes: !noAttributes,
      keepsOwners: owners ? true : nil, staysOnFileSystem: oneFileSystem, excludesCaches: excludeCaches,
      recordsState: !noState, stateName: name, keepsPaths: filesFrom != nil,
      maximumByteRate: bandwidth.maximumByteRate)
    if let repository = from.flatMap({ SnapshotRepository($0) }) {
      return try await importSnapshots(of: repository, options, to: store)
    }
    let report = try await shared.outputOptions.withProgress(
      of: "import", in: shared.place(), "the store"
    ) { (meter, progress) in
      try await store.importFiles(
        paths, options: options, progress: progress,
        onFile: verbose.handler(shared.outputOptions, meter, dryRun ? "would store" : "stored"))
    }
    if !dryRun { try await CacheCommand.hold(store) }
    if let name, let state = report.state, !state.isNamed(name) {
      shared.mention(
        "another import has recorded a state “\(name.printable)” meanwhile: this one is \(state.text.printable)"
      )
    }
    if !shared.json || verbose.isVerbose { nameSkipped(report) }
    try StandardOutput.unlessEnded { try print(report) }
    try Self.checkFailures(report.skipped)
  }

  private static func checkFailures(_ skipped: [SkippedFile]) throws {
    let failedCount = skipped.count { $0.isFailure }
    if failedCount > 0 {
      throw Failure(ExitStatus.failed, "\(HumanText.count(failedCount, "file")) could not be imported.")
    }
  }

  private func importSnapshots(
    of repository: SnapshotRepository, _ options: ImportOptions, to store: BlobStore
  ) async throws {
    let report = try await shared.withProgress { meter in
      try await store.importSnapshots(of: repository, options: options) { [shared] snapshot in
        meter.clear()
        shared.mention(
          "importing \(snapshot.id.printable) of \(snapshot.created.localText) (\(snapshot.notes.joined(separator: "; ").printable))"
        )
      } progress: { progress in
        meter.update(progress)
      }
    }
    let skipped = report.snapshots.flatMap(\.skipped)
    if !shared.json {
      for skipped in skipped { StandardError.say("skipped \(skipped.path.printable): \(skipped.reason)") }
    }
    try StandardOutput.unlessEnded { try print(report) }
    try Self.checkFailures(skipped)
  }

  private func print(_ report: MigrationReport) throws {
    if shared.json { return try JSONText.print(report) }
    var facts = FactTable()
    facts.add("snapshots imported", report.snapshots.count)
    if report.knownCount > 0 { facts.add("imported before", report.knownCount) }
    facts.add("new bytes", byteCount: report.newByteCount)
    facts.add("added to packs", byteCount: report.storedByteCount)
    try facts.print()
  }

  /// The prefix, with a `/` behind the name of a folder.
  private func wholePrefix(_ paths: [FilePath]) -> String {
    guard let last = prefix.last, last.isLetter || last.isNumber,
      filesFrom != nil || from != nil || paths.contains(where: \.isFolder)
    else { return prefix }
    shared.mention("the keys begin with “\(prefix.printable)/”")
    return prefix + "/"
  }

  private func nameSkipped(_ report: ImportReport) {
    for skipped in report.skipped where skipped.isFailure {
      StandardError.say("skipped \(skipped.path.printable): \(skipped.reason)")
    }
    // Skipped links are not a failure, and a library may have thousands.
    let others = report.skipped.filter { !$0.isFailure }
    let shownCount = verbose.isVerbose ? others.count : min(others.count, Self.shownCountMax)
    for skipped in others.prefix(shownCount) {
      shared.mention("skipped \(skipped.path.printable): \(skipped.reason)")
    }
    if others.count > shownCount {
      let rest = HumanText.grouped(others.count - shownCount)
      shared.mention("skipped \(rest) more that are no files, links or folders; --json lists them")
    }
  }

  private func print(_ report: ImportReport) throws {
    if shared.json { return try JSONText.print(report) }
    var facts = FactTable()
    facts.add(
      dryRun ? "would import" : "imported",
      "\(HumanText.count(report.fileCount, "file")), \(HumanText.size(report.byteCount))")
    facts.add("new or changed", report.newFileCount)
    facts.add("unchanged", report.unchangedFileCount)
    if report.linkCount > 0 { facts.add("links", report.linkCount) }
    if report.folderCount > 0 { facts.add("folders", report.folderCount) }
    if !report.skipped.isEmpty { facts.add("skipped", report.skipped.count) }
    if report.evictedFileCount > 0 {
      facts.add("evicted again", report.evictedFileCount)
      shared.mention(
        "\(HumanText.grouped(report.evictedFileCount)) of \(HumanText.count(report.fileCount, "file")) are no longer in"
          + " the cache: its limit has no room for all; `blobtool cache set-limit` raises it")
    }
    facts.add("new bytes", byteCount: report.newByteCount)
    facts.add("already stored", byteCount: report.duplicateByteCount)
    facts.add(dryRun ? "would take on disk" : "added to packs", byteCount: report.storedByteCount)
    facts.add("time", HumanText.duration(report.duration))
    if let state = report.state { facts.add("state", state.text.printable) }
    try facts.print()
  }
}

extension FilePath {
  /// Whether it is a folder that can be read, or a link to one.
  fileprivate var isFolder: Bool {
    guard let folder = try? FileDescriptor.open(self, .readOnly, options: [.directory, .closeOnExec]) else {
      return false
    }
    try? folder.close()  // it was only opened
    return true
  }
}
