import ArgumentParser
import Foundation

/// `manual`: makes manual pages from the texts of `--help`, for `tools/install` and packagers.
struct ManualCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "manual", abstract: "Writes a manual page for each command into a folder.",
    shouldDisplay: false)

  @Argument(help: "An existing folder.", completion: .directory)
  var folder: String

  func run() async throws {
    let help = try JSONDecoder().decode(ToolHelp.self, from: Data(Blobtool._dumpHelp().utf8))
    for page in ManualPage.pages(help.command, version: Blobtool.configuration.version) {
      let url = URL(fileURLWithPath: folder).appendingPathComponent(page.fileName)
      do { try Data(page.text.utf8).write(to: url) } catch {
        throw Failure(
          ExitStatus.failed, "Cannot write \(url.path.printable): \(error.localizedDescription.clause).")
      }
    }
  }
}
