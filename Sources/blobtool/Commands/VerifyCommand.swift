import ArgumentParser
import BlobStorage

/// `verify`: is everything there and as it was?
struct VerifyCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "verify", abstract: "Reads everything back and checks each checksum and digest.")

  @Flag(help: "Look at the structure only, and read no chunks.")
  var quick = false

  @OptionGroup var shared: SharedOptions

  func perform(on store: BlobStore) async throws {
    let report = try await shared.withProgress { meter in
      try await store.verify(isQuick: quick, progress: meter.handler)
    }
    if shared.json {
      try JSONText.print(Output(report))
    } else {
      try StandardOutput.write(report.damaged.map { DamageOutput($0).text }.joined())
      var facts = FactTable()
      facts.add("blobs", report.blobCount)
      facts.add("chunks", report.chunkCount)
      facts.add("checked", byteCount: report.byteCount)
      facts.add("damaged", report.damaged.count)
      facts.add("time", HumanText.duration(report.seconds))
      try facts.print()
    }
    if !report.damaged.isEmpty {
      throw Failure(
        ExitStatus.damaged,
        "The store is damaged in \(HumanText.count(report.damaged.count, "place")); `blobtool repair` saves the rest.")
    }
  }

  private struct Output: Encodable {
    var blobs: Int
    var chunks: Int
    var byteCount: Int64
    var damaged: [DamageOutput]
    var seconds: Double

    init(_ report: VerificationReport) {
      blobs = report.blobCount
      chunks = report.chunkCount
      byteCount = report.byteCount
      damaged = report.damaged.map(DamageOutput.init)
      seconds = report.seconds.roundedToMilliseconds
    }
  }
}
