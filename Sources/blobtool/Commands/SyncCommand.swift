import ArgumentParser
import BlobStorage
import Foundation

/// `sync`: publishes this machine's packs and extends its catalog.
struct SyncCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "sync",
    abstract:
      "Publishes changes of ended processes of this machine, and applies those of other machines.",
    discussion: """
      Every command does so when it begins. A running process publishes what it has stored. For a store in a folder \
      there is nothing to do.
      """)

  @OptionGroup var shared: SharedOptions

  func perform(on store: BlobStore) async throws {
    let begin = ContinuousClock.now
    // Opening has extended the catalog.
    try await store.synchronize()
    let seconds = (ContinuousClock.now - begin) / .seconds(1)
    if shared.json {
      try JSONText.print(Output(store: store.information.path, seconds: seconds.roundedToMilliseconds))
    } else {
      try StandardOutput.write("Up to date with \(store.information.path.printable).\n")
    }
  }

  private struct Output: Encodable {
    var store: String
    var seconds: Double
  }
}
