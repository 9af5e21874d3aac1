import ArgumentParser
import BlobStorage

/// `init`: creates a store.
struct InitCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "init",
    abstract: "Creates an empty store in a folder, or a place in a bucket, that is empty or missing.")

  @Argument(
    help: ArgumentHelp("Where to create the store, instead of --store.", valueName: "path"),
    completion: .directory)
  var path: String?

  @Option(help: "The digest that names blobs.")
  var digest = Choice(BlobDigest.Algorithm.blake3)

  @Option(
    help: ArgumentHelp("The average size of a chunk: a power of two.", valueName: "size"))
  var chunkSize: ByteCountArgument = 65_536

  @Option(help: "The codec for chunks that it makes smaller.")
  var codec = Choice(CodecKind.zstd)

  @Option(
    help: ArgumentHelp(
      "How hard the codec tries: fast, default, max, or 1 to 19 for zstd and 1 to 9 for zlib. (default: default,"
        + " which is 4 for zstd and 6 for zlib)",
      valueName: "level"),
    completion: .list(CodecLevel.words.map(\.key)), transform: CodecLevel.init(argument:))
  var level = CodecLevel.default

  @Option(help: "Whether to encode new chunks against similar ones where that pays.")
  var similarity: Switch = .on

  @OptionGroup var shared: SharedOptions

  func validate() throws {
    guard path == nil || shared.store == nil else {
      throw ValidationError("give the place of the store as PATH or by --store, not both")
    }
    guard path != "" else { throw ValidationError("the place of the store is empty") }
  }

  func run() async throws {
    let place = try shared.place(path)
    let options = StoreOptions(
      digestAlgorithm: digest.value, averageChunkByteCount: Int(clamping: chunkSize.value),
      codec: codec.value, level: level,
      usesSimilarity: similarity == .on)
    let store = try await create(place, options)
    let information = store.information
    try await store.closeWhole()
    if shared.json {
      try JSONText.print(information)
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
}

/// An option that is on or off.
enum Switch: String, ExpressibleByArgument, CaseIterable {
  case on, off
}
