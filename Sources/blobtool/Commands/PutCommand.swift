import ArgumentParser
import BlobStorage
import BlobStorageCache
import BlobStorageTransfer
import Foundation
import SystemPackage

/// `put`: stores a file or standard input as a key's current version.
struct PutCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "put", abstract: "Stores a file or standard input as a key's current version.",
    discussion: """
      Without --archive, put drops the current version. An empty pipe would replace a value by nothing, so put refuses \
      it without --allow-empty. It also refuses an empty standard input that is neither a pipe nor a file, unless you \
      give -.

      A pipe does not tell whether the program before it failed. With --command, put runs the program itself, stores its \
      output if its exit code is 0, and otherwise changes nothing: blobtool put db --command -- pg_dump mydb. The \
      program's name and arguments come last.

      A FILE that changes while it is read is stored as it was read, and named as uncertain. If it only grew, the value \
      has the bytes that it had at first.
      """)

  @Argument(help: "The key: 1 to 4,096 bytes of UTF-8.")
  var key: KeyArgument

  @Argument(help: "The file; standard input without it, or with -.", completion: .file())
  var file: String?

  @Flag(help: "Keep the current version in the key's history.")
  var archive = false

  @Option(help: "Use this codec instead of the store's.")
  var codec: Choice<CodecKind>?

  @Flag(help: "Accept an empty pipe, and an empty output of --command.")
  var allowEmpty = false

  @Option(
    parsing: .remaining,
    help: ArgumentHelp("Store the output of a program, if it succeeds.", valueName: "program"))
  var command: [String] = []

  @OptionGroup var conditions: ConditionOptions

  @OptionGroup var shared: SharedOptions

  func validate() throws {
    _ = try key.checked()
    guard program.isEmpty || file == nil else {
      throw ValidationError("--command and a file exclude each other")
    }
    guard command.isEmpty || !program.isEmpty else { throw ValidationError("--command needs a program") }
  }

  /// The program to run and its arguments; empty to run none.
  private var program: [String] { command.first == "--" ? Array(command.dropFirst()) : command }

  func perform(on store: BlobStore) async throws {
    let key = key.text
    let options = PutOptions(
      replacement: archive ? .archiveCurrent : .replaceCurrent,
      condition: try await conditions.condition(for: key, in: store), codec: codec?.value,
      storesChangingFiles: true)
    let result = try await conditions.explaining(json: shared.json) { () async throws -> PutResult in
      if let cache = try await store.cache(), let rest = CacheCommand.key(key, in: cache) {
        return try await cache.put(try await value(for: cache), forKey: rest, options: options)
      }
      let result = try await stored(as: key, in: store, options)
      try await CacheCommand.hold(store, for: key)
      return result
    }
    if let file, let change = result.sourceChange {
      StandardError.say("uncertain \(file.printable): \(UncertainFile(path: file, change: change).reason)")
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
      return try await withInput { source, first in
        try await body(source.content(after: first), meter.handler)
      }
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
  private func value(for cache: BlobCache) async throws -> Data {
    let byteCountMax = cache.limits.valueByteLimit
    let whole: Data?
    if let file, file != "-" {
      let descriptor = try open(file)
      defer { try? descriptor.close() }  // it was only read
      whole = try DescriptorSource(descriptor, name: file).whole(byteCountMax: byteCountMax)
    } else {
      whole = try await withInput { source, first in
        try source.whole(byteCountMax: byteCountMax - (first?.count ?? 0)).map { (first ?? Data()) + $0 }
      }
    }
    guard let whole else {
      throw Failure(
        ExitStatus.failed,
        "The value of “\(key.text.printable)” has more than \(HumanText.size(Int64(byteCountMax))), the most that the"
          + " cache keeps of one value; nothing was changed.")
    }
    return whole
  }

  /// Calls `body` with standard input, or with the output of the program, and the first bytes of it.
  private func withInput<T>(_ body: (DescriptorSource, Data?) async throws -> T) async throws -> T {
    guard !program.isEmpty else {
      let source = DescriptorSource(.standardInput, name: "standard input")
      return try await body(source, try firstInput(source))
    }
    let running = try RunningProgram(program)
    let source = DescriptorSource(running.output, name: program[0]) { try running.checkSuccess() }
    let first = try source.next()
    guard first != nil || allowEmpty else {
      throw Failure(
        ExitStatus.failed,
        "\(program[0].printable) has put out nothing: pass --allow-empty to store no bytes.")
    }
    return try await body(source, first)
  }

  /// Reads the first bytes of standard input, if only they can show that the input is intended.
  private func firstInput(_ source: DescriptorSource) throws -> Data? {
    if allowEmpty { return nil }
    var status = stat()
    let kind =
      fstat(FileDescriptor.standardInput.rawValue, &status) == 0 ? status.st_mode & S_IFMT : mode_t(0)
    let isPipe = kind == S_IFIFO || kind == S_IFSOCK
    if kind == S_IFREG || !isPipe && file != nil { return nil }
    guard let first = try source.next() else {
      throw ValidationError(
        isPipe
          ? "the pipe is empty, perhaps because the program before it failed: pass --allow-empty to store no bytes"
          : "standard input is empty, and neither a pipe nor a file: give a file, or - to store no bytes")
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
