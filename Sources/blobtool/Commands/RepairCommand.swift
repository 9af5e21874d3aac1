import ArgumentParser
import BlobStorage

/// `repair`: saves the undamaged parts of a damaged store.
struct RepairCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "repair", abstract: "Rebuilds the catalog and sets damaged chunks aside.",
    discussion: """
      The next put of the same bytes restores lost data. The exit code is 4 if damage was found or versions cannot be \
      read. While packs are missing or damaged, every command that reads warns and ends with 4, and gc removes \
      nothing. --accept-loss ends that: it drops and names the versions that cannot be read. \
      Their keys then answer with the version before, if there is one.
      """)

  @Flag(help: "Accept what stays lost: drop the versions that cannot be read, and stop warning.")
  var acceptLoss = false

  @OptionGroup var shared: SharedOptions

  func run() async throws {
    if case .folder(let path) = try shared.place(),
      try await shared.place().explaining({ () throws(BlobStorageError) in
        try await BlobStore.restoreStoreFile(at: path)
      })
    {
      shared.mention("the file “store” of \(path.printable) was restored.")
    }
    try await runOpened()
  }

  func perform(on store: BlobStore) async throws {
    let report = try await shared.withProgress { meter in
      try await store.repair(acceptsLosses: acceptLoss, progress: meter.handler)
    }
    try StandardOutput.unlessEnded { try print(report) }
    if report.hasLaterRecords {
      throw Failure(
        ExitStatus.damaged, "Damaged packs have records of a later build: repair the store with that build.")
    }
    if !report.unreadableHolds.isEmpty {
      let names = report.unreadableHolds.map { "“\($0.printable)”" }.joined(separator: ", ")
      throw Failure(
        ExitStatus.damaged,
        "The blobs of these holds cannot be read until the same bytes are put again: \(names).")
    }
    if !report.unreadable.isEmpty {
      throw Failure(
        ExitStatus.damaged,
        "\(HumanText.count(report.unreadable.count, "version")) cannot be read until the same bytes are put again."
      )
    }
    if !acceptLoss, let summary = report.losses.summary {
      throw Failure(
        ExitStatus.damaged,
        "The store has lost something (\(summary.printable)); bring it back, or accept that with"
          + " `blobtool repair --accept-loss`.")
    }
    if !acceptLoss, !report.damaged.isEmpty {
      throw Failure(ExitStatus.damaged, "Damage was found and set aside; every version can be read.")
    }
  }

  private func print(_ report: RepairReport) throws {
    if shared.json { return try JSONText.print(report) }
    var lines = LineOutput()
    for damage in report.damaged { try lines.add(damage.text) }
    for pack in report.losses.lostPacks { try lines.add("missing: pack \(pack)") }
    for path in report.setAside { try lines.add("set aside: \(path.printable)") }
    for version in report.unreadable {
      try lines.add(
        "cannot be read: “\(version.key.printable)” version \(version.version), \(version.digest)")
    }
    for version in report.dropped {
      try lines.add("dropped: “\(version.key.printable)” version \(version.version), \(version.digest)")
    }
    try lines.flush()
    var facts = FactTable()
    facts.add("keys", report.keyCount)
    facts.add("packs", report.packCount)
    facts.add("damaged", report.damaged.count)
    facts.add("unreadable versions", report.unreadable.count)
    facts.add("time", HumanText.duration(report.duration))
    try facts.print()
  }
}
