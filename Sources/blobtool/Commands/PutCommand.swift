import ArgumentParser
import BlobStorage
import Foundation
import SystemPackage

/// `put`: a file or standard input becomes a key's current version.
struct PutCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "put", abstract: "Stores a file or standard input as a key's current version.",
    discussion: "Without --archive the version that was current is dropped.")

  @Argument(help: "The key: 1 to 4,096 bytes of UTF-8.")
  var key: KeyArgument

  @Argument(help: "The file; standard input without it, or with -.", completion: .file())
  var file: String = "-"

  @Flag(help: "Keep the version that was current in the key's history.")
  var archive = false

  @Option(help: "Another codec than the store's: zstd, zlib or none.")
  var codec: CodecKind?

  @OptionGroup var shared: SharedOptions

  func validate() throws { _ = try key.checked() }

  func perform(on store: BlobStore) async throws {
    let key = key.text
    let options = PutOptions(replacement: archive ? .archiveCurrent : .replaceCurrent, codec: codec)
    let result = try await shared.withProgress { meter in
      try await withContent(meter) { content, progress in
        try await store.put(key, content, options: options, progress: progress)
      }
    }
    try await CacheCommand.hold(store, for: key)
    if shared.json {
      try JSONText.print(Output(result))
    } else {
      let version = result.version
      try StandardOutput.write(
        """
        Stored \(HumanText.size(version.byteCount)) as “\(key.printable)”, \(HumanText.size(result.newByteCount)) of \
        it new, in \(HumanText.size(result.storedByteCount)).
        \(version.digest)  version \(version.id)

        """)
    }
  }

  /// A regular file is read by the store, which notices when it changes meanwhile; anything else is a stream.
  private func withContent<T>(
    _ meter: ProgressMeter, _ body: (BlobContent, ProgressHandler?) async throws -> T
  ) async throws -> T {
    if file == "-" {
      return try await body(DescriptorSource(.standardInput, name: "standard input").content, meter.handler)
    }
    var status = stat()
    guard stat(file, &status) == 0, ![S_IFREG, S_IFDIR].contains(status.st_mode & S_IFMT) else {
      // The store refuses links; one that the user names is meant to be followed.
      return try await body(
        .file(URL(fileURLWithPath: file).resolvingSymlinksInPath().path), meter.handler)
    }
    let descriptor: FileDescriptor
    do { descriptor = try FileDescriptor.open(FilePath(file), .readOnly) } catch let error as Errno {
      throw Failure(ExitStatus.failed, "Cannot read \(file.printable): \(error.description).")
    }
    defer { try? descriptor.close() }  // it was only read
    return try await body(DescriptorSource(descriptor, name: file).content, meter.handler)
  }

  private struct Output: Encodable {
    var key: String
    var version: String
    var digest: String
    var byteCount: Int64
    var newByteCount: Int64
    var storedByteCount: Int64

    init(_ result: PutResult) {
      key = result.version.key
      version = result.version.id.description
      digest = result.version.digest.description
      byteCount = result.version.byteCount
      newByteCount = result.newByteCount
      storedByteCount = result.storedByteCount
    }
  }
}
