import ArgumentParser
import BlobStorage

/// `init`: creates a store.
struct InitCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "init",
    abstract: "Creates an empty store in a folder, or a place in a bucket, that is empty or missing.")

  @Option(help: "The digest that names blobs: blake3 or sha256.")
  var digest = Choice(BlobDigest.Algorithm.blake3)

  @Option(
    help: ArgumentHelp("The average length of a chunk: a power of two.", valueName: "bytes"))
  var chunkSize: Int = 64 << 10

  @Option(help: "The codec for chunks that it makes smaller: zstd, zlib or none.")
  var codec = Choice(CodecKind.zstd)

  @Option(
    help: ArgumentHelp(
      "How hard the codec tries: fast, default, max, or 1 to 19 for zstd and 1 to 9 for zlib. (default: default,"
        + " which is 4 for zstd, 6 for zlib)",
      valueName: "level"),
    completion: .list(CodecLevel.words.map(\.key)), transform: CodecLevel.init(argument:))
  var level = CodecLevel.default

  @Option(help: "Whether new chunks are encoded against similar ones where that pays: on or off.")
  var similarity: Switch = .on

  @OptionGroup var shared: SharedOptions

  func run() async throws {
    let place = try shared.place()
    let options = StoreOptions(
      digestAlgorithm: digest.value, averageChunkByteCount: chunkSize, codec: codec.value, level: level,
      usesSimilarity: similarity == .on)
    let store = try await create(place, options)
    let information = store.information
    try await store.closeWhole()
    if shared.json {
      try JSONText.print(Output(information))
    } else {
      try StandardOutput.write("Created a store in \(information.path.printable).\n")
      if information.collectingMachine != nil {
        try StandardOutput.write(
          "The object store lacks conditional put: `blobtool gc` runs on this machine only, with the state folder"
            + " \(place.folder.printable), so keep that.\n")
      }
    }
  }

  private func create(_ place: StorePlace, _ options: StoreOptions) async throws -> BlobStore {
    do { return try await place.create(options) } catch {
      guard error.code == .invalidArgument else { throw error }
      throw Failure(ExitStatus.wrongUsage, error.message)
    }
  }

  private struct Output: Encodable {
    var path: String
    var id: String
    var digest: String
    var chunkSize: Int
    var codec: String
    var level: Int
    var similarity: String
    var collectingMachine: String?

    init(_ information: StoreInformation) {
      path = information.path
      id = information.id
      digest = information.digestAlgorithm.name
      chunkSize = information.chunkSizes.average
      codec = information.codec.name
      level = information.level
      similarity = information.usesSimilarity ? "on" : "off"
      collectingMachine = information.collectingMachine
    }
  }
}

/// An option that is on or off.
enum Switch: String, ExpressibleByArgument, CaseIterable {
  case on, off
}
