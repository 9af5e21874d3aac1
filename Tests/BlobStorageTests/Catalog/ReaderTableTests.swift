import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

#if os(Linux)
  @Suite("LMDB's table of readers")
  struct ReaderTableTests {
    private let place: StorePlace

    init() throws { place = try StorePlace() }

    private func lockPath() throws -> String {
      URL(fileURLWithPath: try place.databaseFile().path).deletingLastPathComponent()
        .appending(path: "lock.mdb").path
    }

    /// As a backup does that reads the folder of a store that this process has open.
    private func openAndClose(_ path: String) {
      let descriptor = open(path, O_RDONLY)
      #expect(descriptor >= 0 && close(descriptor) == 0)
    }

    /// The bytes that another process can lock as LMDB does.
    private func freeBytes(_ path: String, among bytes: [Int]) throws -> [Int] {
      let script = """
        import fcntl, sys
        for byte in map(int, sys.argv[2:]):
          with open(sys.argv[1], "r+b") as file:
            try:
              fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
              print(byte)
            except BlockingIOError:
              pass
        """
      let process = Process()
      let output = Pipe()
      process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
      process.arguments = ["python3", "-c", script, path] + bytes.map { "\($0)" }
      process.standardOutput = output
      try process.run()
      let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
      process.waitUntilExit()
      #expect(process.terminationStatus == 0)
      return text.split(separator: "\n").compactMap { Int($0) }
    }

    @Test("stays locked when its process opens and closes it, and is free after the store is closed")
    func closedByOthers() throws {
      let engine = try place.engine()
      _ = try engine.put("k", [1], PutOptions())
      let path = try lockPath()
      let bytes = [0, Int(getpid())]
      #expect(try freeBytes(path, among: bytes) == [])
      for _ in 0..<3 { openAndClose(path) }
      #expect(try freeBytes(path, among: bytes) == [])
      // Readers and writers of this process still get what they need.
      _ = try engine.put("l", [2], PutOptions())
      #expect(try engine.data("k", nil) == Data([1]))
      try engine.close()
      #expect(try freeBytes(path, among: bytes) == bytes)
      let again = try place.engine()
      openAndClose(path)
      #expect(try freeBytes(path, among: bytes) == [])
      #expect(try again.data("l", nil) == Data([2]))
      try again.close()
    }

    @Test("and all other files of a store are not inherited by programs that its process starts")
    func inherited() throws {
      let engine = try place.engine()
      _ = try engine.put("k", [UInt8](repeating: 1, count: 100_000), PutOptions())
      _ = try engine.data("k", nil)
      let list = place.temporary.path.appending("list").string
      var child = pid_t()
      // Without the actions by which Foundation closes everything.
      let words = ["/bin/sh", "-c", "/bin/ls -l /proc/$$/fd > \(list)"]
      let arguments: [UnsafeMutablePointer<CChar>?] = words.map { (word: String) in strdup(word) } + [nil]
      defer { for argument in arguments { free(argument) } }
      try #require(posix_spawn(&child, "/bin/sh", nil, nil, arguments, nil) == 0)
      var status: Int32 = 0
      #expect(waitpid(child, &status, 0) == child && status == 0)
      let lines = String(decoding: FileManager.default.contents(atPath: list) ?? Data(), as: UTF8.self)
        .split(separator: "\n")
      // The list itself is one.
      let inherited = lines.filter { $0.contains(place.temporary.path.string) && !$0.hasSuffix("/list") }
      #expect(!lines.isEmpty && inherited == [])
      try engine.close()
    }
  }
#endif
