import ArgumentParser
import BlobStorage

/// `verify`: checks that everything is present and undamaged.
struct VerifyCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "verify", abstract: "Reads everything back and checks each checksum and digest.",
    discussion: """
      With --share K/N it reads one of N parts of the packs: N runs with K from 1 to N read all. Each run looks for \
      missing packs.

      --max-age DURATION reads only packs that no verify on this machine found undamaged within that time, and packs \
      that have changed since. An interrupted verify --max-age goes on where it ended.
      """,
    aliases: ["check"])

  @Flag(help: "Check the structure only; this does not find damage within chunks of data.")
  var quick = false

  @Flag(help: "Also compare each blob with its own digest; this reads blobs of several chunks again.")
  var blobs = false

  @Option(help: ArgumentHelp("Read one of N parts of the store only.", valueName: "k/n"))
  var share: ShareArgument?

  @Option(
    help: ArgumentHelp(
      "Read only packs that were not verified within this time: 12h, 30d.", valueName: "duration"))
  var maxAge: DurationArgument?

  @OptionGroup var shared: SharedOptions

  func validate() throws {
    guard !quick || !blobs else {
      throw ValidationError("--quick reads no blobs: leave out --quick or --blobs")
    }
    guard maxAge == nil || !(quick || blobs) else {
      throw ValidationError("--max-age reads the packs that are due: leave out --quick and --blobs")
    }
  }

  func perform(on store: BlobStore) async throws {
    let report = try await shared.withProgress { meter in
      try await store.verify(
        quick ? .structure : blobs ? .blobs : .chunks, share: share?.value, maximumAge: maxAge?.value,
        progress: meter.handler)
    }
    try StandardOutput.unlessEnded { try print(report) }
    if let summary = report.losses.summary {
      throw Failure(
        ExitStatus.damaged,
        "The store has lost something (\(summary.printable)); run `blobtool repair`, and"
          + " `blobtool repair --accept-loss` if it cannot be brought back.")
    }
    if !report.damaged.isEmpty {
      throw Failure(
        ExitStatus.damaged,
        "The store is damaged in \(HumanText.count(report.damaged.count, "place")); `blobtool repair` saves the rest."
      )
    }
  }

  private func print(_ report: VerificationReport) throws {
    if shared.json { return try JSONText.print(report) }
    try StandardOutput.write(report.damaged.map { $0.text + "\n" }.joined())
    for ahead in report.versionsAhead {
      try StandardOutput.write(
        "ahead of the clock: “\(ahead.key.printable)” version \(ahead.version) "
          + "has a time more than a day from now\n")
    }
    var facts = FactTable()
    facts.add("blobs", report.blobCount)
    facts.add("chunks", report.chunkCount)
    if quick {
      facts.add("checked", "structure only; no chunk was read")
    } else {
      facts.add("checked", byteCount: report.byteCount)
    }
    if let share = report.share { facts.add("share", "\(share.number) of \(share.count)") }
    if let count = report.duePackCount {
      facts.add("due", "\(HumanText.grouped(count)) of \(HumanText.count(report.packCount, "pack"))")
    }
    facts.add("damaged", report.damaged.count)
    if let count = report.damagedCensusLineCount {
      facts.add("census", "\(HumanText.count(count, "damaged line")), which gc writes again")
    }
    facts.add("time", HumanText.duration(report.duration))
    try facts.print()
  }
}
