import ArgumentParser
import BlobStorage
import BlobStorageCache
import Foundation
import SystemPackage

/// `put`: stores a file or standard input as a key's current version.
struct PutCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "put", abstract: "Stores a file or standard input as a key's current version.",
    discussion: """
      Without --archive, put drops the current version. It refuses an empty standard input that is neither a pipe nor \
      a file, unless you give -: a job without input would replace a value by nothing.
      """)

  @Argument(help: "The key: 1 to 4,096 bytes of UTF-8.")
  var key: KeyArgument

  @Argument(help: "The file; standard input without it, or with -.", completion: .file())
  var file: String?

  @Flag(help: "Keep the current version in the key's history.")
  var archive = false

  @Option(help: "Use this codec instead of the store's.")
  var codec: Choice<CodecKind>?

  @OptionGroup var conditions: ConditionOptions

  @OptionGroup var shared: SharedOptions

  func validate() throws { _ = try key.checked() }

  func perform(on store: BlobStore) async throws {
    let key = key.text
    let options = PutOptions(
      replacement: archive ? .archiveCurrent : .replaceCurrent,
      condition: try await conditions.condition(for: key, in: store), codec: codec?.value)
    let result = try await conditions.explaining(json: shared.json) { () async throws -> PutResult in
      if let cache = try await store.cache(), let rest = CacheCommand.key(key, in: cache) {
        return try await cache.put(rest, value(for: cache), options: options)
      }
      let result = try await stored(as: key, in: store, options)
      try await CacheCommand.hold(store, for: key)
      return result
    }
    if shared.json {
      try JSONText.print(result)
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

  private func stored(
    as key: String, in store: BlobStore, _ options: PutOptions
  ) async throws -> PutResult {
    do {
      return try await shared.withProgress { meter in
        try await withContent(meter) { content, progress in
          try await store.put(content, forKey: key, options: options, progress: progress)
        }
      }
    } catch let error as BlobStorageError where error.fullDiskMessage != nil {
      throw try NoRoom(error: error.fullDiskMessage ?? error.message)
        .failure(
          "“\(key.printable)” was not stored", then: "put it again", json: shared.json, in: shared.place())
    }
  }

  /// Lets the store read a regular file, so that it notices changes meanwhile. Anything else is a stream.
  private func withContent<T>(
    _ meter: ProgressMeter, _ body: (BlobContent, ProgressHandler?) async throws -> T
  ) async throws -> T {
    guard let file, file != "-" else {
      let source = DescriptorSource(.standardInput, name: "standard input")
      return try await body(source.content(after: try firstInput(source)), meter.handler)
    }
    var status = stat()
    guard stat(file, &status) == 0, ![S_IFREG, S_IFDIR].contains(status.st_mode & S_IFMT) else {
      // The store refuses links, but the user means to follow this one.
      return try await body(
        .file(URL(fileURLWithPath: file).resolvingSymlinksInPath().path), meter.handler)
    }
    let descriptor = try open(file)
    defer { try? descriptor.close() }  // it was only read
    return try await body(DescriptorSource(descriptor, name: file).content(), meter.handler)
  }

  /// Reads a cache's short value whole, before any change.
  private func value(for cache: BlobCache) throws -> Data {
    let byteCountMax = cache.limits.valueByteLimit
    let whole: Data?
    if let file, file != "-" {
      let descriptor = try open(file)
      defer { try? descriptor.close() }  // it was only read
      whole = try DescriptorSource(descriptor, name: file).whole(byteCountMax: byteCountMax)
    } else {
      let source = DescriptorSource(.standardInput, name: "standard input")
      let first = try firstInput(source) ?? Data()
      whole = try source.whole(byteCountMax: byteCountMax - first.count).map { first + $0 }
    }
    guard let whole else {
      throw Failure(
        ExitStatus.failed,
        "The value of “\(key.text.printable)” has more than \(HumanText.size(Int64(byteCountMax))), the most that the"
          + " cache keeps of one value; nothing was changed.")
    }
    return whole
  }

  /// Reads the first bytes of standard input, if only they can show that the input is intended.
  private func firstInput(_ source: DescriptorSource) throws -> Data? {
    guard file == nil else { return nil }
    var status = stat()
    if fstat(FileDescriptor.standardInput.rawValue, &status) == 0,
      [S_IFIFO, S_IFREG, S_IFSOCK].contains(status.st_mode & S_IFMT)
    {
      return nil
    }
    guard let first = try source.next() else {
      throw ValidationError(
        "standard input is empty, and neither a pipe nor a file: give a file, or - to store no bytes")
    }
    return first
  }

  private func open(_ file: String) throws -> FileDescriptor {
    do {
      return try FileDescriptor.open(FilePath(file), .readOnly, options: .closeOnExec)
    } catch let error as Errno {
      throw Failure(ExitStatus.failed, "Cannot read \(file.printable): \(error.description).")
    }
  }
}
