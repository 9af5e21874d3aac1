import ArgumentParser
import BlobStorage
import BlobStorageReports
import Foundation

/// `report`: writes an HTML page about a store's space.
struct ReportCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "report", abstract: "Writes an HTML page about where the space went and what saved some.",
    discussion: """
      The page is one file that needs no network and no scripts. It names keys: think before you publish it. With \
      --json the numbers behind it are printed, and a page is written only where -o says.
      """)

  @Option(
    name: [.customShort("o"), .customLong("output")],
    help: ArgumentHelp("Where to write the page (default: standard output).", valueName: "file"),
    completion: .file(extensions: ["html"]))
  var output: String?

  @Option(help: ArgumentHelp("List at most N keys.", valueName: "n"))
  var limit = 20

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func validate() throws {
    guard 1...10_000 ~= limit else { throw ValidationError("--limit is from 1 to 10000") }
  }

  func perform(on store: BlobStore) async throws {
    let report = try await shared.withProgress { meter in
      try await store.report(keyCountMax: limit, progress: meter.handler)
    }
    let page = { ReportPage(report, store: store.information, made: Date()).html }
    if let output {
      let target = try OutputTarget.file(output)
      do {
        var html = page()
        try html.withUTF8 { try target.write(UnsafeRawBufferPointer($0)) }
        try target.finish()
      } catch {
        target.abandon()
        throw error
      }
    }
    if shared.json {
      try JSONText.print(ReportOutput(report))
    } else if output == nil {
      try StandardOutput.write(page())
    }
    if let first = report.unreadable.first {
      throw Failure(ExitStatus.damaged, "The report is incomplete: \(first) Run `blobtool verify`.")
    }
  }
}

/// The numbers of a report.
struct ReportOutput: Encodable {
  struct Codec: Encodable {
    var name: String
    var chunks: Int
    var plainByteCount: Int64
    var storedByteCount: Int64
  }

  struct Key: Encodable {
    var key: String
    var versions: Int
    var byteCount: Int64
    var exclusiveByteCount: Int64

    init(_ key: StoreReport.Key) {
      self.key = key.key
      versions = key.versionCount
      byteCount = key.byteCount
      exclusiveByteCount = key.exclusiveByteCount
    }
  }

  struct Span: Encodable {
    var start: String
    var end: String
    var versions: Int
    var byteCount: Int64
  }

  struct Pack: Encodable {
    var name: String
    var created: String
    var sealed: Bool
    var byteCount: Int64
    var liveByteCount: Int64
  }

  var statistics: StatisticsOutput
  var codecs: [Codec]
  var largestKeys: [Key]
  var busiestKeys: [Key]
  var history: [Span]
  var packs: [Pack]
  var unreadable: [String]
  var seconds: Double

  init(_ report: StoreReport) {
    statistics = StatisticsOutput(report.statistics)
    codecs = report.codecs.map {
      Codec(
        name: $0.name, chunks: $0.chunkCount, plainByteCount: $0.plainByteCount,
        storedByteCount: $0.storedByteCount)
    }
    largestKeys = report.largestKeys.map(Key.init)
    busiestKeys = report.busiestKeys.map(Key.init)
    history = report.history.map {
      Span(start: $0.start.text, end: $0.end.text, versions: $0.versionCount, byteCount: $0.byteCount)
    }
    packs = report.packs.map {
      Pack(
        name: $0.name, created: $0.created.text, sealed: $0.isSealed, byteCount: $0.byteCount,
        liveByteCount: $0.liveByteCount)
    }
    unreadable = report.unreadable
    seconds = report.seconds.roundedToMilliseconds
  }
}
