import BlobStorage
import BlobStorageTransfer
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("Users' files")
struct InputOutputFileTests {
  private let temporary: TemporaryFolder
  private var root: FilePath { temporary.path }
  private let files = SystemFiles()

  init() throws { temporary = try TemporaryFolder() }

  private func makeLink(_ name: String, to target: FilePath) throws {
    try FileManager.default.createSymbolicLink(
      atPath: root.appending(name).string, withDestinationPath: target.string)
  }

  private func write(
    _ bytes: [UInt8], to path: String, in folder: OutputFolder, overwriting: Bool = false,
    modified: FileTime? = nil
  ) throws {
    var file = try OutputFile(in: folder, relativePath: path)
    let outcome = bytes.withUnsafeBytes { buffer in Result { try file.write(buffer) } }
    try outcome.get()
    try file.commit(overwriting: overwriting, modified: modified)
  }

  private func readAll(_ file: InputFile) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: 100)
    let outcome = bytes.withUnsafeMutableBytes { buffer in Result { try file.read(into: buffer) } }
    return Array(bytes.prefix(try outcome.get()))
  }

  @Test("an input file is read from front to back")
  func reads() throws {
    try files.write([1, 2, 3], to: root.appending("a"))
    let input = try InputFile(root.appending("a"))
    #expect(input.status.byteCount == 3)
    #expect(try readAll(input) == [1, 2, 3])
    #expect(try readAll(input) == [])
    try input.checkUnchanged()
  }

  @Test("a change while reading is noticed")
  func noticesChange() throws {
    try files.write([1, 2, 3], to: root.appending("a"))
    let input = try InputFile(root.appending("a"))
    try files.open(root.appending("a"), .readWrite).write([4], at: 3)
    let error = #expect(throws: BlobStorageError.self) { try input.checkUnchanged() }
    #expect(error?.code == .sourceFailed)
  }

  @Test("a file that grows is read as far as it reached at first, and others as they come")
  func changes() throws {
    let path = root.appending("a")
    try files.write([1, 2, 3], to: path)
    let input = try InputFile(path)
    #expect(try input.change() == nil)
    try files.open(path, .readWrite).write([4], at: 3)
    #expect(try readAll(input) == [1, 2, 3])
    #expect(try readAll(input) == [])
    #expect(try input.change() == .grown)
    let shorter = try InputFile(path)
    try files.open(path, .readWrite).truncate(to: 2)
    #expect(try readAll(shorter) == [1, 2])
    #expect(try shorter.change() == .rewritten)
    // One that was removed is as it was.
    let removed = try InputFile(path)
    try files.remove(path)
    #expect(try removed.change() == nil)
    #expect(try readAll(removed) == [1, 2])
  }

  @Test("holes are zeros, wherever a file has them", arguments: [1, 4_096, 100_000, 1 << 20])
  func holes(_ bufferByteCount: Int) throws {
    let path = root.appending("a")
    let size: Int64 = 3 << 20
    let file = try files.open(path, .openOrCreate)
    var expected = [UInt8](repeating: 0, count: Int(size))
    for offset in [0, 4_095, 300_000, 1 << 20, (2 << 20) - 5] {
      let bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: offset / 7 + 1), count: 9_000)
      try file.write(bytes, at: Int64(offset))
      expected.replaceSubrange(offset..<offset + bytes.count, with: bytes)
    }
    try file.truncate(to: size)
    file.close()
    let input = try InputFile(path)
    var read: [UInt8] = []
    var buffer = [UInt8](repeating: 0xff, count: bufferByteCount)
    while read.count < expected.count {
      let outcome = buffer.withUnsafeMutableBytes { buffer in Result { try input.read(into: buffer) } }
      let count = try outcome.get()
      if count == 0 { break }
      read += buffer[..<count]
      for index in buffer.indices.prefix(100) { buffer[index] = 0xff }
      if bufferByteCount == 1, read.count > 20_000 { break }
    }
    #expect(read == Array(expected[..<read.count]))
    #expect(bufferByteCount == 1 || read.count == expected.count)
    #expect(try input.change() == nil)
  }

  @Test("only regular files are input files, and a named pipe does not make it wait")
  func refusesOthers() throws {
    try files.createDirectory(root.appending("folder"))
    try files.write([1], to: root.appending("a"))
    try makeLink("link", to: "a")
    #expect(mkfifo(root.appending("pipe").string, 0o600) == 0)
    for name in ["folder", "link", "pipe"] {
      let error = #expect(throws: BlobStorageError.self) { try InputFile(root.appending(name)) }
      #expect(error?.code == .invalidArgument, "\(name)")
    }
    let error = #expect(throws: BlobStorageError.self) { try InputFile(root.appending("missing")) }
    #expect(error?.errno == ENOENT)
  }

  @Test("an input file that is refused closes its own descriptor, and no other")
  func refusesOnce() throws {
    try files.createDirectory(root.appending("folder"))
    let path = root.appending("folder")
    let lostCount = Atomic<Int>(0)
    // A number that is closed twice may belong to another file the second time. Where it does not, debug builds stop.
    try together([
      { for _ in 0..<2_000 { _ = try? InputFile(path) } },
      {
        for _ in 0..<2_000 {
          let descriptor = open("/dev/null", O_RDONLY)
          if fcntl(descriptor, F_GETFD) < 0 { lostCount.add(1, ordering: .relaxed) }
          if close(descriptor) != 0 { lostCount.add(1, ordering: .relaxed) }
        }
      },
    ])
    #expect(lostCount.load(ordering: .relaxed) == 0)
  }

  @Test(
    "a pipe is read to its end, however it arrives in pieces, also one that does not block",
    arguments: [true, false])
  func readsPipe(blocks: Bool) throws {
    let pipe = Pipe()
    if !blocks { #expect(fcntl(pipe.fileHandleForReading.fileDescriptor, F_SETFL, O_NONBLOCK) == 0) }
    let input = try InputFile(borrowing: pipe.fileHandleForReading.fileDescriptor, name: "standard input")
    DispatchQueue.global().async {
      for byte: UInt8 in 0..<50 { pipe.fileHandleForWriting.write(Data([byte])) }
      try? pipe.fileHandleForWriting.close()
    }
    #expect(try readAll(input) == Array(0..<50))
    try input.checkUnchanged()
  }

  @Test("an output file comes with its folders, its time and nothing else")
  func writes() throws {
    let folder = try OutputFolder(root)
    let time = FileTime(seconds: 1_234_567_890, nanoseconds: 123_456_000)
    try write([1, 2], to: "x/y/a", in: folder, modified: time)
    #expect(try files.bytes(of: root.appending("x/y/a")) == [1, 2])
    #expect(try files.status(of: root.appending("x/y/a"))?.modified == time)
    #expect(try files.list(root.appending("x/y")) == ["a"])
  }

  @Test("an output file and its folders are their owner's alone")
  func permissions() throws {
    let folder = try OutputFolder(root)
    try write([1], to: "x/a", in: folder)
    for (name, permissions) in [("x", 0o700), ("x/a", 0o600)] as [(String, UInt16)] {
      #expect(try files.status(of: root.appending(name)).map { $0.permissions & 0o777 } == permissions)
    }
  }

  @Test("a taken name is kept unless overwriting is asked for")
  func keepsTakenName() throws {
    let folder = try OutputFolder(root)
    try write([1], to: "a", in: folder)
    let error = #expect(throws: BlobStorageError.self) { try write([2], to: "a", in: folder) }
    #expect(error?.errno == EEXIST)
    #expect(try files.bytes(of: root.appending("a")) == [1])
    #expect(try files.list(root) == ["a"], "the temporary file is gone")
    try write([3], to: "a", in: folder, overwriting: true)
    #expect(try files.bytes(of: root.appending("a")) == [3])
  }

  @Test("a file that replaces another is on the medium before it has the name")
  func syncsBeforeReplacing() throws {
    let steps = Mutex<[OutputFile.Step]>([])
    let folder = try OutputFolder(root) { step in steps.withLock { $0.append(step) } }
    try write([1], to: "a", in: folder, overwriting: true)
    #expect(steps.withLock { $0 } == [.named], "what replaces nothing can be written again")
    try write([2], to: "a", in: folder, overwriting: true)
    #expect(steps.withLock { $0 } == [.named, .synced, .named])
  }

  @Test("a file below a folder is reached through folders alone")
  func neverThroughLinks() throws {
    for name in ["in", "in/sub", "out", "out/sub"] { try files.createDirectory(root.appending(name)) }
    try files.write([1], to: root.appending("in/sub/a"))
    try files.write([2], to: root.appending("out/sub/a"))
    try makeLink("in/away", to: root.appending("out"))
    try makeLink("in/file", to: root.appending("out/sub/a"))
    try makeLink("named", to: "in")
    // The folder itself may be a link; the user has named it.
    let folder = try InputFolder(root.appending("named"))
    #expect(try readAll(folder.open("sub/a")) == [1])
    for path in ["away/sub/a", "file", "../out/sub/a", "/etc/passwd", "", "sub/.."] {
      #expect(throws: BlobStorageError.self, "\(path)") { try folder.open(path) }
    }
    // What the folder was stays what it is.
    try FileManager.default.removeItem(atPath: root.appending("named").string)
    try makeLink("named", to: "out")
    #expect(try readAll(folder.open("sub/a")) == [1])
    #expect(folder.identity.contains(root.appending("in/sub/a")))
    #expect(folder.identity.contains(root.appending("in/sub/new")))
    #expect(!folder.identity.contains(root.appending("out/sub")))
    #expect(!folder.identity.contains(root))
  }

  @Test("one trail leads to each file in its own folder, whatever the order")
  func trail() throws {
    let paths = ["a/b/f", "a/b/g", "a/bc/f", "a/f", "f", "a/b/c/f", "a/b/f.d/f", ".a/..b/...", "b/b/f"]
    try files.createDirectory(root.appending("tree"))
    let output = try OutputFolder(root.appending("tree"))
    let orders = [paths, paths.reversed(), paths.sorted()]
    do {
      var trail = FolderTrail()
      for (number, path) in paths.enumerated() {
        var file = try OutputFile(in: output, relativePath: Array(path.utf8), through: &trail)
        let outcome = [UInt8(number)].withUnsafeBytes { buffer in Result { try file.write(buffer) } }
        try outcome.get()
        try file.commit(overwriting: false)
      }
    }
    let input = try InputFolder(root.appending("tree"))
    for order in orders {
      var trail = FolderTrail()
      for path in order {
        #expect(
          try files.bytes(of: root.appending("tree/" + path)) == [UInt8(paths.firstIndex(of: path) ?? 99)])
        let file = try input.open(Array(path.utf8), through: &trail)
        #expect(try readAll(file) == files.bytes(of: root.appending("tree/" + path)))
        #expect(file.path == root.appending("tree/" + path))
      }
    }
  }

  @Test("a trail whose next folder is missing goes on with the others")
  func trailWithGap() throws {
    for name in ["a", "a/b"] { try files.createDirectory(root.appending(name)) }
    for name in ["a/f", "a/b/f"] { try files.write(Array(name.utf8), to: root.appending(name)) }
    let input = try InputFolder(root)
    var trail = FolderTrail()
    for (path, isThere) in [
      ("a/b/f", true), ("a/c/d/f", false), ("a/f", true), ("a/c/f", false), ("a/b/f", true),
    ] {
      let file: InputFile?
      do { file = try input.open(Array(path.utf8), through: &trail) } catch { file = nil }
      #expect(try file.map { try readAll($0) } == (isThere ? Array(path.utf8) : nil), "\(path)")
    }
  }

  @Test("a change while reading is noticed, also one that puts the time back")
  func noticesRestoredTime() throws {
    try files.write([1, 2, 3], to: root.appending("a"))
    let input = try InputFile(root.appending("a"))
    var changed = input.status.changed
    // Until the file system's clock has gone on.
    while changed == input.status.changed {
      try files.open(root.appending("a"), .readWrite).write([9], at: 1)
      let time = timespec(
        tv_sec: Int(input.status.modified.seconds), tv_nsec: Int(input.status.modified.nanoseconds))
      #expect(utimensat(AT_FDCWD, root.appending("a").string, [time, time], 0) == 0)
      changed = try #require(try files.status(of: root.appending("a"))).changed
    }
    #expect(throws: BlobStorageError.self) { try input.checkUnchanged() }
  }

  @Test("an output file that is not committed leaves nothing")
  func leavesNothing() throws {
    do {
      let file = try OutputFile(in: OutputFolder(root), relativePath: "a")
      #expect(file.path == root.appending("a"))
    }
    #expect(try files.list(root) == [])
  }

  @Test("a planted symbolic link never leads outside")
  func staysInside() throws {
    for name in ["inside", "outside"] { try files.createDirectory(root.appending(name)) }
    try files.write([7], to: root.appending("outside/victim"))
    try makeLink("inside/folder", to: root.appending("outside"))
    try makeLink("inside/file", to: root.appending("outside/victim"))
    let folder = try OutputFolder(root.appending("inside"))
    for path in ["folder/a", "folder/victim", "folder/sub/a"] {
      #expect(throws: BlobStorageError.self, "\(path)") {
        try write([1], to: path, in: folder, overwriting: true)
      }
    }
    // Overwriting a link replaces the link itself.
    try write([1], to: "file", in: folder, overwriting: true)
    #expect(try files.status(of: root.appending("inside/file"))?.kind == .regular)
    #expect(try files.list(root.appending("outside")) == ["victim"])
    #expect(try files.bytes(of: root.appending("outside/victim")) == [7])
  }

  @Test(
    "paths that lead away are refused",
    arguments: ["/etc/a", "../a", "x/../../a", "..", ".", "", "x/.", "x/", "x//a", "./a", "x\0/a"])
  func refusesPaths(_ path: String) throws {
    try files.createDirectory(root.appending("inside"))
    let folder = try OutputFolder(root.appending("inside"))
    #expect(throws: BlobStorageError.self) {
      try write([1], to: path, in: folder)
    }
    #expect(try files.list(root) == ["inside"])
  }
}
