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
      A file below PATH gets the key PREFIX/ + its path relative to PATH; a PATH that is a file gets PREFIX/ + its name. \
      Links, empty folders, modes, times, extended attributes and hard links are kept, and owners if you are root. \
      Devices, sockets and pipes are named and skipped; the exit code is 1 if you have named one yourself.

      Each import records a state: which files, links and folders it found. `blobtool states` lists them, and `export --at` \
      brings one back. What an import replaces is kept for the states that have it, until `blobtool keep` drops these.

      If two files would get the same key, nothing is imported, and the exit code is 64.

      If size, times and inode of a file match its last import, import skips the file. Pass --force to reread it. On \
      file systems whose change times cannot be trusted, such as tmpfs, overlays and network file systems, import reads \
      and compares each file. Start an interrupted import again to continue it. The store's own folder is left out.

      A file that changes while it is read is stored as it was read, and named as uncertain: a file that only grew with \
      the bytes that it had at first. The exit code stays 0, and the next import reads the file again.

      --files-from reads a list of files and folders, one a line, such as `find -type f` prints. Each file gets the key \
      PREFIX/ + its path as it is in the list, without ./ and / in front. Folders are imported with all that is in them.

      --exclude follows the rules of gitignore: the last pattern that matches decides, and ! in front of it brings back. \
      `*.o` and `build/` match in every folder, `/build` and `src/*.o` from PATH on. `*` does not match a /, `**` does. \
      A trailing / stands for folders only. A pattern may begin with PATH. Patterns that cannot match are named.

      If an import finds no files where the last one found some, it fails and changes nothing, because a disk that is \
      not mounted looks like that. Pass --allow-empty if the folder is meant to be empty.

      --delete drops the keys of files that are gone. It drops keys with the prefix that imports have stored, unless \
      the last state of another PATH has them. States keep their files. Keys below folders that cannot be read stay, and \
      so do keys of excluded files.

      --dry-run reads, looks up and encodes everything and stores nothing. It says how many files there are, how much \
      of them is new, and how much that would take on disk. It ignores similarity among new files, so the import may \
      take less.
      """)

  @Argument(help: "Files and folders.", completion: .file())
  var paths: [PathArgument] = []

  @Option(
    help: ArgumentHelp(
      "Import the files and folders that FILE lists, one a line; - is standard input.", valueName: "file"),
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

  @OptionGroup var prefixes: PrefixOptions

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
      "Leave out what a pattern matches, by the rules of gitignore.", valueName: "pattern"))
  var exclude: [String] = []

  @Option(
    help: ArgumentHelp(
      "Leave out what the patterns in FILE match, which is like a .gitignore.",
      valueName: "file"),
    completion: .file())
  var excludeFrom: [String] = []

  @Flag(help: "Read files again that seem unchanged.")
  var force = false

  @Flag(help: "Drop the keys of files that are gone; states keep them.")
  var delete = false

  @Flag(help: "Accept that there are no files where the last import found some.")
  var allowEmpty = false

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
      guard !delete, !allowEmpty else {
        throw ValidationError("--from cannot be combined with --delete and --allow-empty")
      }
    }
    guard !isNullTerminated || filesFrom != nil else { throw ValidationError("--null is for --files-from") }
    guard !owners || !noAttributes else {
      throw ValidationError("--owners and --no-attributes exclude each other")
    }
    guard name == nil || !noState else { throw ValidationError("--name and --no-state exclude each other") }
    guard name != "" else { throw ValidationError("the name of a state is empty") }
    try RawText.check([name ?? "", from ?? ""])
  }

  func perform(on store: BlobStore) async throws {
    let paths =
      try filesFrom.map { (file) in
        let list = try TextList(file)
        return (isNullTerminated ? list.terminatedItems() : list.lines()).map(RawText.path)
      } ?? paths.map(\.path)
    if let filesFrom, paths.isEmpty, !allowEmpty {
      throw Failure(
        ExitStatus.failed,
        "\(filesFrom == "-" ? "The list" : filesFrom.printable) names no files: pass --allow-empty to import nothing."
      )
    }
    let patterns = try exclude.map(RawText.bytes) + excludeFrom.flatMap { try TextList($0).patterns() }
    let options = ImportOptions(
      prefix: prefixes.value ?? .all, replacement: archive ? .archiveCurrent : .replaceCurrent,
      codec: codec?.value,
      isDryRun: dryRun, excluded: patterns.map { EscapedName.key(of: $0).text }, readsUnchanged: force,
      keepsAttributes: !noAttributes,
      keepsOwners: owners ? true : nil, staysOnFileSystem: oneFileSystem, excludesCaches: excludeCaches,
      recordsState: !noState, stateName: name, keepsPaths: filesFrom != nil, allowsEmpty: allowEmpty,
      dropsMissing: delete, maximumByteRate: bandwidth.maximumByteRate)
    if let repository = from.flatMap({ SnapshotRepository($0) }) {
      return try await importSnapshots(of: repository, options, to: store)
    }
    let report: ImportReport
    do {
      report = try await shared.outputOptions.withProgress(
        of: "import", in: shared.place(), "the store"
      ) { (meter, progress) in
        try await store.importFiles(
          paths, options: options, progress: progress,
          onFile: verbose.handler(shared.outputOptions, meter, dryRun ? "would store" : "stored"))
      }
    } catch let error as BlobStorageError where error.code == .sourceEmpty {
      throw Failure(ExitStatus.failed, "\(error.message) Pass --allow-empty.")
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

  private func nameSkipped(_ report: ImportReport) {
    for useless in report.uselessPatterns {
      StandardError.say("the pattern “\(useless.pattern.printable)” has no effect: \(useless.reason)")
    }
    for skipped in report.skipped where skipped.isFailure {
      StandardError.say("skipped \(skipped.path.printable): \(skipped.reason)")
    }
    for file in report.uncertain { StandardError.say("uncertain \(file.path.printable): \(file.reason)") }
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
    if delete { facts.add(dryRun ? "would drop keys" : "keys dropped", report.droppedKeyCount) }
    if !report.skipped.isEmpty { facts.add("skipped", report.skipped.count) }
    if !report.uncertain.isEmpty { facts.add("uncertain", report.uncertain.count) }
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
