import ArgumentParser
import BlobStorage
import BlobStorageCache
import Foundation
import Synchronization

/// `get`: writes a version's bytes, or a range of them.
struct GetCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "get", abstract: "Writes the bytes of a version, or a range of them.",
    usage: """
      blobtool get KEY [--version ID] [--offset N] [--length M] [-o FILE]
      blobtool get --digest DIGEST [--offset N] [--length M] [-o FILE]
      """)

  @Argument(help: "The key whose version is read.")
  var key: KeyArgument?

  @Option(help: "Read the blob with this digest, whatever its key.")
  var digest: DigestArgument?

  @Option(
    name: .customLong("version"),
    help: ArgumentHelp(
      "A version other than the current one, by the first digits of its ID.", valueName: "id"))
  var versionText: String?

  @Option(help: ArgumentHelp("Where to begin: a number of bytes, or one with K, M, G or T.", valueName: "n"))
  var offset: ByteCountArgument = 0

  @Option(help: ArgumentHelp("How much at most, in the same units (default: to the end).", valueName: "m"))
  var length: ByteCountArgument?

  @Option(
    name: [.customShort("o"), .customLong("output")],
    help: ArgumentHelp(
      "The file to write, complete or not at all (default: standard output).", valueName: "file"),
    completion: .file())
  var output: String?

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func validate() throws {
    guard (key == nil) != (digest == nil) else { throw ValidationError("give either a key or --digest") }
    guard digest == nil || versionText == nil else {
      throw ValidationError("--version goes with a key: a digest names the bytes already")
    }
    guard output != "" else { throw ValidationError("the name after -o is empty") }
    _ = try key?.checked()
  }

  func perform(on store: BlobStore) async throws {
    let (reader, name) = try await open(store)
    defer { reader.close() }
    let offset = offset.value
    guard offset <= reader.byteCount else {
      throw Failure(
        ExitStatus.failed,
        "The offset \(offset) is past the end of \(name), which has \(reader.byteCount) bytes.")
    }
    let rest = reader.byteCount - offset
    let range = offset..<offset + min(length?.value ?? rest, rest)
    let file = output == "-" ? nil : output
    let target =
      try file.map { try OutputTarget.file($0, outside: try shared.place().folder) }
      ?? OutputTarget.standardOutput
    do {
      try await shared.withProgress { try await copy(range, of: reader, to: target, $0) }
    } catch {
      target.abandon()
      throw error
    }
    try target.finish()
    if let key = key?.text, let reads = try await store.cacheReads() {
      reads.use(key)
      reads.write()
    }
    if shared.json, let file {
      try JSONText.print(
        Output(
          key: key?.text, digest: reader.digest.description, offset: offset, byteCount: Int64(range.count),
          path: file))
    }
  }

  private func open(_ store: BlobStore) async throws -> (BlobReader, name: String) {
    if let key = key?.text {
      let id = try await VersionArgument.id(versionText, of: key, in: store)
      // A version that takes its place meanwhile is newer, and so has not expired.
      guard try await store.validVersion(id, of: key) != nil,
        let reader = try await store.reader(forKey: key, version: id)
      else {
        throw try await VersionArgument.missing(versionText, of: key, in: store)
      }
      return (reader, "“\(key.printable)”")
    }
    guard let digest = digest?.digest(in: store) else { throw ValidationError("the digest is not valid") }
    guard digest.algorithm == store.information.digestAlgorithm,
      let reader = try await store.reader(for: digest)
    else {
      throw Failure(ExitStatus.notFound, "There is no blob \(digest) in the store.")
    }
    return (reader, digest.description)
  }

  private func copy(
    _ range: Range<Int64>, of reader: BlobReader, to target: OutputTarget, _ meter: ProgressMeter
  ) async throws {
    guard !range.isEmpty else { return }
    // The sink runs on another thread.
    let state = Mutex<(byteCount: Int64, failure: (any Error)?)>((0, nil))
    do {
      try await reader.stream(range) { bytes in
        do { try target.write(bytes) } catch {
          state.withLock { $0.failure = error }
          throw error
        }
        let done = state.withLock { state in
          state.byteCount += Int64(bytes.count)
          return state.byteCount
        }
        meter.update(WorkProgress(phase: "reading", doneByteCount: done, totalByteCount: Int64(range.count)))
      }
    } catch {
      // The store's error says that the sink failed; the sink has the reason.
      throw state.withLock { $0.failure } ?? error
    }
  }

  private struct Output: Encodable {
    var key: String?
    var digest: String
    var offset: Int64
    var byteCount: Int64
    var path: String
  }
}
