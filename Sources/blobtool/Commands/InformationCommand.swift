import ArgumentParser
import BlobStorage
import BlobStorageReports

/// `info`: shows how a version is stored.
struct InformationCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "info", abstract: "Shows how a version is stored and what dropping it would free.")

  @Argument(help: "The key.")
  var key: KeyArgument

  @Option(
    name: .customLong("version"),
    help: ArgumentHelp(
      "A version other than the current one, by the first digits of its ID.", valueName: "id"))
  var versionText: String?

  @OptionGroup var times: TimeOptions

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func validate() throws { _ = try key.checked() }

  func perform(on store: BlobStore) async throws {
    let id = try await VersionArgument.id(versionText, of: key.text, in: store)
    let found = try await shared.withProgress { meter -> BlobInformation? in
      guard try await store.validVersion(id, of: key.text) != nil else { return nil }
      return try await store.blobInformation(forKey: key.text, version: id, progress: meter.handler)
    }
    guard let information = found else {
      throw try await VersionArgument.missing(versionText, of: key.text, in: store)
    }
    try StandardOutput.unlessEnded {
      if shared.json { try JSONText.print(information) } else { try print(information) }
    }
    try Failure.check(notFollowed: information.unreadable)
  }

  private func print(_ information: BlobInformation) throws {
    let version = information.version
    var facts = FactTable()
    facts.add("key", version.key.printable)
    facts.add("version", version.id.description)
    facts.add("digest", version.digest.description)
    facts.add("size", byteCount: version.byteCount)
    facts.add("put", times.text(version.created))
    facts.add("chunks", information.chunkCount)
    let codecs = information.codecs.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
    facts.add("codecs", codecs.joined(separator: ", "))
    facts.add("encoded against a base", information.basedChunkCount)
    facts.add("as stored", byteCount: information.storedByteCount)
    facts.add("freed by dropping it", byteCount: information.exclusiveByteCount)
    try facts.print()
  }
}
