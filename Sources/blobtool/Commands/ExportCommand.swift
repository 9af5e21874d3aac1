import ArgumentParser
import BlobStorage
import BlobStorageTransfer
import BlobStorageTrees

/// `export`: writes keys as files.
struct ExportCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "export",
    abstract: "Writes keys as files below a folder: their current versions, or those of a state.",
    usage: """
      blobtool export [PREFIX] DIRECTORY [--at STATE] [--glob GLOB] [--strip PREFIX] [--overwrite] [--dry-run] [--verbose]
      """,
    discussion: """
      The key PREFIX and each key below it is written at DIRECTORY/KEY, verified. A key that cannot be a file there is \
      reported, the others are written, and the exit code is 1. If there is no such key, the exit code is 3.

      What `import` kept is restored as far as you may: links, hard links, modes, times, extended attributes, empty \
      folders, and owners if you are root. Folders get their times last.

      A file that has the key's bytes already is left alone: start an interrupted export again to continue it.
      """)

  @Argument(
    help: ArgumentHelp(
      "The folder to write to, after an optional key prefix.",
      valueName: "directory"),
    completion: .directory)
  var places: [String]

  @OptionGroup var prefixBytes: PrefixBytesOption

  @Option(help: ArgumentHelp("Remove this prefix, and the / behind it, from each key.", valueName: "prefix"))
  var strip: String = ""

  @Option(help: ArgumentHelp("Write a state, or the last one until a time.", valueName: "state"))
  var at: StateArgument?

  @Flag(help: "Restore owners, which only root may.")
  var owners = false

  @Flag(help: "Write files with their bytes and times alone.")
  var noAttributes = false

  @Flag(help: "Replace files that exist, also by folders, empty folders by files, and attributes of folders.")
  var overwrite = false

  @OptionGroup var globs: GlobOptions

  @OptionGroup var dry: DryRunOption

  @OptionGroup var bandwidth: BandwidthOption

  @OptionGroup var verbose: VerboseOption

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func validate() throws {
    guard places.count <= 2 else {
      throw ValidationError("give a prefix and a directory, or a directory alone")
    }
    guard !owners || !noAttributes else {
      throw ValidationError("--owners and --no-attributes exclude each other")
    }
    _ = try prefix
    guard places.last != "" else { throw ValidationError("the directory is empty") }
    try RawText.check(places.dropLast() + [strip, at?.text ?? ""] + globs.glob)
  }

  private var prefix: KeyPrefix {
    get throws { try prefixBytes.value(or: places.count == 2 ? places[0] : "") }
  }

  func perform(on store: BlobStore) async throws {
    guard let directory = places.last.map({ RawText.path(of: $0) }) else { return }
    let prefix = try prefix
    let options = ExportOptions(
      prefix: prefix, stripped: strip, overwrites: overwrite, patterns: globs.glob,
      state: try await at?.state(in: store, prefix: prefix), restoresAttributes: !noAttributes,
      restoresOwners: owners ? true : nil, isDryRun: dry.isDryRun,
      maximumByteRate: bandwidth.maximumByteRate)
    let report: ExportReport
    do {
      report = try await shared.withProgress { meter in
        try await store.exportFiles(
          to: directory, options: options, progress: meter.handler,
          onFile: verbose.handler(shared.outputOptions, meter, dry.isDryRun ? "would write" : "wrote"))
      }
    } catch let error as BlobStorageError where error.code == .noSpace {
      throw Failure(
        ExitStatus.failed,
        "\(error.message.clause): free space there, or export to another disk; the same command goes on from what is"
          + " written.")
    }
    if !shared.json || verbose.isVerbose {
      for skipped in report.skipped + report.damaged {
        StandardError.say("not written: “\(skipped.path.printable)”: \(skipped.reason)")
      }
    }
    if !shared.json, report.incompleteCount > 0 {
      shared.mention(
        "not all attributes of \(HumanText.count(report.incompleteCount, "file")) could be set: some need root, or another"
          + " file system")
    }
    try StandardOutput.unlessEnded { try print(report) }
    if report.fileCount + report.linkCount + report.folderCount + report.unchangedFileCount
      + report.skipped.count
      + report.damaged.count == 0
    {
      if let glob = globs.glob.first { throw Failure.noKeys(matching: glob) }
      if !prefix.isAll { throw Failure.noKeys(of: prefix) }
    }
    if !report.damaged.isEmpty {
      throw Failure(
        ExitStatus.damaged,
        "\(HumanText.count(report.damaged.count, "key")) cannot be read because the store is damaged; run"
          + " `blobtool repair`.")
    }
    if !report.skipped.isEmpty {
      throw Failure(
        ExitStatus.failed, "\(HumanText.count(report.skipped.count, "key")) could not be written.")
    }
  }

  private func print(_ report: ExportReport) throws {
    if shared.json { return try JSONText.print(report) }
    let links = report.linkCount == 0 ? "" : " and \(HumanText.count(report.linkCount, "link"))"
    let written =
      "\(HumanText.count(report.fileCount, "file"))\(links), \(HumanText.size(report.byteCount))"
    let unchanged =
      report.unchangedFileCount == 0
      ? ""
      : "; \(HumanText.count(report.unchangedFileCount, "file")),"
        + " \(HumanText.size(report.unchangedByteCount)), \(report.unchangedFileCount == 1 ? "was" : "were")"
        + " there already"
    let time = report.isDryRun ? "" : ", in \(HumanText.duration(report.duration))"
    try StandardOutput.write(
      "\(report.isDryRun ? "Would write" : "Wrote") \(written)\(time)\(unchanged).\n")
  }
}
