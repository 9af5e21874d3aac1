import ArgumentParser
import BlobStorage
import BlobStorageTransfer

/// `copy`: copies keys and versions from one store into another.
struct CopyCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "copy", abstract: "Copies keys with all their versions from one store into another.",
    discussion: """
      SOURCE and TARGET are folders, or s3://BUCKET/PREFIX; both stores exist. Afterwards the target shows every \
      version that the source shows, with the same ID, time and bytes. It drops what the source has dropped. What only \
      the target has stays, unless --mirror is given. The copy sends only chunks that the target lacks, as they are \
      stored. Start an interrupted copy again to continue it.

      A mirror of a damaged source, or one that would drop more than a tenth of the target's keys, is refused without \
      --force. --dry-run says what would be copied and dropped.

      A version that the target had dropped and the source shows comes back under a new ID. gc erases the source's \
      record of what was dropped: without --mirror, such versions stay in the target.

      The environment says how to reach both object stores. --source-profile or --target-profile names a profile of \
      ~/.aws/config for one of them.
      """)

  @Argument(help: "The store to copy from.", completion: .directory)
  var source: String

  @Argument(help: "The store to copy into.", completion: .directory)
  var target: String

  @OptionGroup var prefixes: PrefixOptions

  @Flag(
    help:
      "Drop keys and versions of the target that the source lacks, if the prefix has them."
  )
  var mirror = false

  @OptionGroup var dry: DryRunOption

  @OptionGroup var bandwidth: BandwidthOption

  @Flag(help: "Mirror a source that is damaged or lacks many keys.")
  var force = false

  @Option(
    help: ArgumentHelp("Where this machine keeps the state of a source in a bucket.", valueName: "path"),
    completion: .directory)
  var sourceState: String?

  @Option(
    help: ArgumentHelp("Where this machine keeps the state of a target in a bucket.", valueName: "path"),
    completion: .directory)
  var targetState: String?

  @Option(help: ArgumentHelp("The profile that reaches a source in a bucket.", valueName: "name"))
  var sourceProfile: String?

  @Option(help: ArgumentHelp("The profile that reaches a target in a bucket.", valueName: "name"))
  var targetProfile: String?

  @Option(
    help: ArgumentHelp(
      "How much of its packs this machine caches for each store in a bucket (default: 4G).", valueName: "size"
    ))
  var packCache: ByteCountArgument?

  @OptionGroup var shared: OutputOptions

  private var dryRun: Bool { dry.isDryRun }

  private static let shownKeyCountMax = 10

  func validate() throws {
    guard !source.isEmpty, !target.isEmpty else { throw ValidationError("the place of a store is empty") }
    guard mirror || !force else { throw ValidationError("--force is for --mirror") }
    for (name, place, state, profile) in [
      ("source", source, sourceState, sourceProfile), ("target", target, targetState, targetProfile),
    ] where !StorePlace.isInBucket(place) {
      guard state == nil, profile == nil else {
        throw ValidationError(
          "--\(name)-state and --\(name)-profile are for a \(name) in a bucket, s3://BUCKET/PREFIX")
      }
    }
    guard packCache == nil || StorePlace.isInBucket(source) || StorePlace.isInBucket(target) else {
      throw ValidationError("--pack-cache is for a store in a bucket, s3://BUCKET/PREFIX")
    }
  }

  func run() async throws {
    let places = (
      source: try place(self.source, sourceState, sourceProfile),
      target: try place(self.target, targetState, targetProfile)
    )
    let source = try await places.source.open()
    var target: BlobStore?
    do {
      try await source.tellingLosses {
        let opened = try await places.target.open()
        target = opened
        let report = try await copy(source, to: opened, places.target)
        if !dryRun { try await CacheCommand.hold(opened) }
        try tell(report)
      }
    } catch {
      // Report the first error.
      try? await target?.closeWhole()
      try? await source.closeWhole()
      throw error
    }
    try await target?.closeWhole()
    try await source.closeWhole()
  }

  private func copy(
    _ source: BlobStore, to target: BlobStore, _ place: StorePlace
  ) async throws -> CopyReport {
    let options = CopyOptions(
      prefix: prefixes.value ?? .all, isMirror: mirror, isForced: force, isDryRun: dryRun,
      maximumByteRate: bandwidth.maximumByteRate)
    return try await shared.withProgress(
      of: "copy", in: place, target.information.path.printable, isOfKeys: true
    ) { (_, progress) in
      try await source.copy(to: target, options: options, progress: progress)
    }
  }

  private func place(_ path: String, _ state: String?, _ profile: String?) throws -> StorePlace {
    let path = try StorePlace.path(path)
    guard StorePlace.isInBucket(path) else { return .folder(path) }
    return try StorePlace.bucket(
      path, state: try state.map(StorePlace.path), packCache: packCache?.value, profile: profile)
  }

  private func tell(_ report: CopyReport) throws {
    if !shared.json {
      for version in report.damaged {
        StandardError.say(
          "not copied: “\(version.key.printable)” version \(version.version): \(version.reason.printable)")
      }
      for key in report.droppedKeys.prefix(Self.shownKeyCountMax) {
        shared.mention("would be dropped: “\(key.printable)”")
      }
      if report.droppedKeyCount > Self.shownKeyCountMax, dryRun {
        let rest = HumanText.count(report.droppedKeyCount - Self.shownKeyCountMax, "more key")
        shared.mention("would be dropped: \(rest)")
      }
    }
    try StandardOutput.unlessEnded { try print(report) }
    if let refusal = report.refusal { shared.mention("it would be refused: \(refusal.printable)") }
    guard report.damaged.isEmpty else {
      throw Failure(
        ExitStatus.damaged,
        "\(HumanText.count(report.damaged.count, "version")) could not be copied; the others \(dryRun ? "can be" : "were")\(mirror && !force ? ", and only keys that the source has dropped go" : "");"
          + " run `blobtool verify` there.")
    }
  }

  private func print(_ report: CopyReport) throws {
    if shared.json { return try JSONText.print(report) }
    var facts = FactTable()
    facts.add(
      "source",
      "\(HumanText.count(report.keyCount, "key")), \(HumanText.count(report.versionCount, "version")), "
        + HumanText.size(report.byteCount))
    facts.add(dryRun ? "versions to copy" : "versions copied", report.newVersionCount)
    facts.add("versions there before", report.unchangedVersionCount)
    facts.add(dryRun ? "versions to drop" : "versions dropped", report.droppedVersionCount)
    if mirror || report.droppedKeyCount > 0 {
      facts.add(dryRun ? "keys to drop" : "keys dropped", report.droppedKeyCount)
    }
    facts.add(dryRun ? "chunks to send" : "chunks sent", report.chunkCount)
    facts.add("new bytes", byteCount: report.newByteCount)
    facts.add(dryRun ? "would take on disk" : "added to packs", byteCount: report.storedByteCount)
    facts.add("time", HumanText.duration(report.duration))
    try facts.print()
  }
}
