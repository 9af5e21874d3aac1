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
      try await store.report(keyLimit: limit, progress: meter.handler)
    }
    let page = { ReportPage(report, store: store.information, made: Date()).html }
    if let output {
      let target = try OutputTarget.file(output, outside: try shared.place().folder)
      do {
        var html = page()
        try html.withUTF8 { try target.write(UnsafeRawBufferPointer($0)) }
      } catch {
        target.abandon()
        throw error
      }
      try target.finish()
    }
    try StandardOutput.unlessEnded {
      if shared.json {
        try JSONText.print(report)
      } else if output == nil {
        try StandardOutput.write(page())
      }
    }
    if let first = report.unreadable.first {
      throw Failure(ExitStatus.damaged, "The report is incomplete (\(first.clause)); run `blobtool verify`.")
    }
  }
}
