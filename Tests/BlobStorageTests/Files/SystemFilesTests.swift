import BlobStorage
import BlobStorageTransfer
import Foundation
import SystemPackage
import Testing

@Suite("The system's files")
struct SystemFilesTests {
  private let temporary: TemporaryFolder
  private var root: FilePath { temporary.path }
  private let files = SystemFiles()

  init() throws { temporary = try TemporaryFolder() }

  @Test("an errno becomes a code, and the sentence names path and reason")
  func mapsErrno() {
    for (errno, code) in [
      (EACCES, .permissionDenied), (EPERM, .permissionDenied), (ENOSPC, .noSpace), (EDQUOT, .noSpace),
      (EROFS, .readOnly), (ENOENT, .io), (EIO, .io),
    ] as [(Int32, BlobStorageError.Code)] {
      let error = BlobStorageError.systemCall("open", path: "/x/y", errno: errno)
      #expect(error.code == code)
      #expect(error.errno == errno)
      #expect(error.path == "/x/y")
      #expect(error.message == "cannot open /x/y: \(String(cString: strerror(errno)))")
    }
  }

  @Test("symbolic links and pipes are not opened, and never waited for")
  func refusesLinks() throws {
    try files.write([1], to: root.appending("a"))
    let link = root.appending("link")
    try FileManager.default.createSymbolicLink(atPath: link.string, withDestinationPath: "a")
    #expect(mkfifo(root.appending("pipe").string, 0o600) == 0)
    for intent in [OpenIntent.read, .readWrite, .openOrCreate] {
      let error = #expect(throws: BlobStorageError.self) { try files.open(link, intent) }
      #expect(error?.errno == ELOOP)
      #expect(throws: BlobStorageError.self) { try files.open(root.appending("pipe"), intent) }
    }
    #expect(try files.status(of: link)?.kind == .symbolicLink)
    #expect(try files.status(of: root.appending("pipe"))?.kind == .other)
  }

  @Test("a relative path becomes absolute, and DispatchIO takes it")
  func makesAbsolute() async throws {
    try files.write([1, 2], to: root.appending("a"))
    let working = FilePath(FileManager.default.currentDirectoryPath)
    #expect(try FilePath("x/y").absolute() == working.appending("x/y"))
    #expect(try FilePath("/x/y").absolute() == "/x/y")
    let up = working.components.map { _ in ".." }.joined(separator: "/")
    let file = try files.open(FilePath(up + root.appending("a").string), .read)
    #expect(file.path.isAbsolute)
    #expect(await readThroughDispatch(file, offset: 0, byteCount: 9).bytes == [1, 2])
  }

  #if os(Linux)
    @Test("descriptors do not survive exec")
    func closesOnExec() throws {
      let path = root.appending("a")
      let file = try files.open(path, .create)
      defer { file.close() }
      let numbers = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").filter {
        let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
        return target == path.string
      }.compactMap(Int32.init)
      #expect(numbers.count == 1)
      for number in numbers { #expect(fcntl(number, F_GETFD) & FD_CLOEXEC != 0) }
    }
  #endif

  @Test(
    "a lock ends with its process",
    .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/flock")))
  func locksBetweenProcesses() throws {
    let path = root.appending("a")
    let file = try files.open(path, .create)
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/flock")
    process.arguments = [path.string, "sh", "-c", "echo held; read line"]
    let (input, output) = (Pipe(), Pipe())
    (process.standardInput, process.standardOutput) = (input, output)
    try process.run()
    _ = output.fileHandleForReading.availableData
    #expect(try file.lock(.shared, wait: false) == false)
    try input.fileHandleForWriting.close()
    #expect(try file.lock(.exclusive, wait: true))
    process.waitUntilExit()
  }

  @Test("a wait for a lock gets it in time, or gives up")
  func waitsForSomeTime() throws {
    let path = root.appending("a")
    let first = try files.open(path, .create)
    let second = try files.open(path, .readWrite)
    #expect(try first.lock(.exclusive, withinSeconds: 0))
    for seconds in [0, 0.03] { #expect(try second.lock(.exclusive, withinSeconds: seconds) == false) }
    try first.unlock()
    #expect(try second.lock(.exclusive, withinSeconds: 60))
    #expect(try first.lock(.shared, wait: false) == false)
  }

  #if os(Linux)
    @Test("nothing stays open of what was closed, dropped or refused")
    func leavesNothingOpen() throws {
      func openCount() throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count { number in
          let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(number)")
          return target?.hasPrefix(root.string) == true
        }
      }
      let file = try files.open(root.appending("held"), .create)
      #expect(try openCount() == 1)
      file.close()
      #expect(try openCount() == 0)
      try files.createDirectory(root.appending("d"))
      try files.write([1], to: root.appending("d/a"))
      try files.syncDirectory(root.appending("d"))
      #expect(try files.list(root) == ["d", "held"])
      #expect(try files.allocatedByteCount(below: root) > 0)
      #expect(try files.availableByteCount(at: root) > 0)
      #expect(throws: BlobStorageError.self) { try files.open(root.appending("d"), .read) }
      #expect(throws: BlobStorageError.self) { try InputFile(root.appending("d")) }
      do {
        var walker = try DirectoryWalker(root: root)
        var count = 0
        while walker.next() != nil { count += 1 }
        #expect(count == 3)
      }
      do {
        let input = try InputFolder(root).open("d/a")
        #expect(input.status.byteCount == 1)
      }
      do {
        let folder = try OutputFolder(root)
        let output = try OutputFile(in: folder, relativePath: "x/y/z")
        try output.commit(overwriting: false)
        let dropped = try OutputFile(in: folder, relativePath: "x/dropped")
        #expect(dropped.path == root.appending("x/dropped"))
        #expect(throws: BlobStorageError.self) {
          try OutputFile(in: folder, relativePath: "held/z").path
        }
      }
      #expect(try files.list(root.appending("x")) == ["y"])
      #expect(try openCount() == 0)
    }
  #endif

  @Test("the boot's identity and the clock tell something")
  func tellsBootAndTime() throws {
    #expect(try !BootIdentity.current().isEmpty)
    #expect(try BootIdentity.current() == BootIdentity.current())
    #expect(try BootIdentity.current().allSatisfy { $0.isHexDigit || $0 == "-" })
    #expect(WallClock.system.now() > 1_700_000_000_000)
    #expect(randomUInt64() != randomUInt64())
  }
}
