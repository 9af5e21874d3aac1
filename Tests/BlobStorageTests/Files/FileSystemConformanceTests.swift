import BlobStorage
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import SystemPackage
import Testing

/// What every file system must do; the simulated disk is only worth as much as it agrees with the real one.
@Suite("Every file system")
struct FileSystemConformanceTests {
  enum Kind: String, CaseIterable, Sendable {
    case system, simulated
  }

  struct Place {
    let files: any FileSystem
    let folder: FilePath
    private let temporary: TemporaryFolder?

    init(_ kind: Kind) throws {
      switch kind {
      case .system:
        let temporary = try TemporaryFolder()
        (files, folder, self.temporary) = (SystemFiles(), temporary.path, temporary)
      case .simulated:
        (files, folder, temporary) = (SimulatedDisk(), "/folder", nil)
        try files.createDirectory(folder)
      }
    }

    /// The `errno` of the error that the body throws; nil when it throws none.
    func errno(_ body: () throws(BlobStorageError) -> Void) -> Int32? {
      do throws(BlobStorageError) {
        try body()
        return nil
      } catch {
        return error.errno
      }
    }
  }

  @Test("reads back what was written, holes as zeros, and stops at the end", arguments: Kind.allCases)
  func readsBack(_ kind: Kind) throws {
    let place = try Place(kind)
    let file = try place.files.open(place.folder.appending("a"), .create)
    try file.write([1, 2, 3], at: 0)
    try file.write([9], at: 5)
    #expect(try file.read(byteCount: 100, at: 0) == [1, 2, 3, 0, 0, 9])
    #expect(try file.read(byteCount: 2, at: 1) == [2, 3])
    #expect(try file.read(byteCount: 4, at: 6) == [])
    #expect(try file.read(byteCount: 4, at: 600) == [])
    #expect(try file.read(byteCount: 0, at: 0) == [])
    try file.synchronize()
    #expect(try file.status().byteCount == 6)
    #expect(try file.status().kind == .regular)
  }

  @Test("truncates and reserves with zeros", arguments: Kind.allCases)
  func changesLength(_ kind: Kind) throws {
    let place = try Place(kind)
    let file = try place.files.open(place.folder.appending("a"), .create)
    try file.write([1, 2, 3], at: 0)
    try file.truncate(to: 2)
    try file.truncate(to: 4)
    #expect(try file.read(byteCount: 9, at: 0) == [1, 2, 0, 0])
    try file.allocate(byteCount: 3)
    #expect(try file.status().byteCount == 4, "reserving never shortens")
    try file.allocate(byteCount: 0)
    try file.allocate(byteCount: 10_000)
    #expect(try file.status().byteCount == 10_000)
    #expect(try file.status().allocatedByteCount >= 10_000)
  }

  @Test("reserves without a change of what is read", arguments: Kind.allCases)
  func reserves(_ kind: Kind) throws {
    let place = try Place(kind)
    let file = try place.files.open(place.folder.appending("a"), .create)
    try file.write([1, 2, 3], at: 0)
    for byteCount: Int64 in [0, 2, 100_000] { try file.reserve(byteCount: byteCount) }
    #expect(try file.status().byteCount == 3)
    #expect(try file.read(byteCount: 9, at: 0) == [1, 2, 3])
  }

  @Test("appends behind what others have appended", arguments: Kind.allCases)
  func appends(_ kind: Kind) throws {
    let place = try Place(kind)
    let path = place.folder.appending("a")
    let first = try place.files.open(path, .append)
    let second = try place.files.open(path, .append)
    #expect(try place.files.status(of: path)?.permissions == 0o600)
    for (number, file) in [(1, first), (2, second), (3, first), (4, second)] as [(UInt8, any File)] {
      try bridge([number, number]) { (bytes) throws(BlobStorageError) in try file.append(bytes) }
    }
    let third = try place.files.open(path, .append)
    try third.append(UnsafeRawBufferPointer(start: nil, count: 0))
    #expect(try place.files.bytes(of: path) == [1, 1, 2, 2, 3, 3, 4, 4])
  }

  @Test("reads whole counts from the cache or nothing", arguments: Kind.allCases)
  func readsFromCache(_ kind: Kind) throws {
    let place = try Place(kind)
    let file = try place.files.open(place.folder.appending("a"), .create)
    try file.write([1, 2, 3], at: 0)
    var bytes = [UInt8](repeating: 0, count: 4)
    let tooMuch = bytes.withUnsafeMutableBytes { file.readIfCached(into: $0, at: 0) }
    #expect(tooMuch == nil)
    let some = bytes.withUnsafeMutableBytes {
      file.readIfCached(into: UnsafeMutableRawBufferPointer(rebasing: $0[..<2]), at: 1)
    }
    if some != nil { #expect(bytes[..<2] == [2, 3]) }
    #expect(some == nil || some == 2)
    file.close()
    #expect(bytes.withUnsafeMutableBytes { file.readIfCached(into: $0, at: 0) } == nil)
  }

  @Test("opens as the intent says", arguments: Kind.allCases)
  func honoursIntents(_ kind: Kind) throws {
    let place = try Place(kind)
    let path = place.folder.appending("a")
    for intent in [OpenIntent.read, .readWrite] {
      #expect(
        place.errno { () throws(BlobStorageError) in _ = try place.files.open(path, intent) } == ENOENT)
    }
    try place.files.open(path, .create).write([7], at: 0)
    #expect(place.errno { () throws(BlobStorageError) in _ = try place.files.open(path, .create) } == EEXIST)
    #expect(try place.files.open(path, .openOrCreate).read(byteCount: 9, at: 0) == [7])
    let reader = try place.files.open(path, .read)
    #expect(place.errno { () throws(BlobStorageError) in try reader.write([1], at: 0) } == EBADF)
    #expect(try place.files.status(of: path)?.permissions == 0o600)
    for intent in [OpenIntent.read, .readWrite, .openOrCreate] {
      #expect(
        place.errno { () throws(BlobStorageError) in _ = try place.files.open(place.folder, intent) }
          == EISDIR)
    }
  }

  @Test("keeps names", arguments: Kind.allCases)
  func keepsNames(_ kind: Kind) throws {
    let place = try Place(kind)
    let (files, folder) = (place.files, place.folder)
    try files.write([1], to: folder.appending("a"))
    try files.write([2], to: folder.appending("B"))
    try files.createDirectory(folder.appending("c"))
    #expect(try files.list(folder) == ["B", "a", "c"])
    #expect(try files.status(of: folder.appending("c"))?.kind == .directory)
    #expect(try files.status(of: folder.appending("c")).map { $0.permissions & 0o777 } == 0o700)
    #expect(try files.status(of: folder.appending("x")) == nil)
    #expect(try files.status(of: folder.appending("x/y")) == nil)
    #expect(
      place.errno { () throws(BlobStorageError) in _ = try files.status(of: folder.appending("a/y")) }
        == ENOTDIR)
    try files.rename(folder.appending("a"), to: folder.appending("B"))
    #expect(try files.bytes(of: folder.appending("B")) == [1])
    try files.rename(folder.appending("B"), to: folder.appending("c/d"))
    try files.syncDirectory(folder)
    #expect(try files.list(folder.appending("c")) == ["d"])
    try files.remove(folder.appending("c/d"))
    try files.removeDirectory(folder.appending("c"))
    #expect(try files.list(folder) == [])
  }

  @Test("refuses what cannot be done with a name, and says which errno", arguments: Kind.allCases)
  func refusesNames(_ kind: Kind) throws {
    let place = try Place(kind)
    let (files, folder) = (place.files, place.folder)
    try files.createDirectory(folder.appending("d"))
    try files.write([1], to: folder.appending("d/f"))
    let missing = folder.appending("missing")
    let attempts: [(Int32, () throws(BlobStorageError) -> Void)] = [
      (EEXIST, { () throws(BlobStorageError) in try files.createDirectory(folder.appending("d")) }),
      (EEXIST, { () throws(BlobStorageError) in try files.createDirectory(folder.appending("d/f")) }),
      (ENOENT, { () throws(BlobStorageError) in try files.createDirectory(missing.appending("x")) }),
      (ENOENT, { () throws(BlobStorageError) in try files.remove(missing) }),
      (ENOENT, { () throws(BlobStorageError) in try files.removeDirectory(missing) }),
      (ENOENT, { () throws(BlobStorageError) in try files.rename(missing, to: folder.appending("y")) }),
      (ENOENT, { () throws(BlobStorageError) in try files.syncDirectory(missing) }),
      (ENOENT, { () throws(BlobStorageError) in _ = try files.list(missing) }),
      (ENOTDIR, { () throws(BlobStorageError) in _ = try files.list(folder.appending("d/f")) }),
      (ENOTDIR, { () throws(BlobStorageError) in try files.syncDirectory(folder.appending("d/f")) }),
      (ENOTDIR, { () throws(BlobStorageError) in try files.removeDirectory(folder.appending("d/f")) }),
      (ENOTEMPTY, { () throws(BlobStorageError) in try files.removeDirectory(folder.appending("d")) }),
    ]
    for (index, attempt) in attempts.enumerated() {
      #expect(place.errno(attempt.1) == attempt.0, "attempt \(index)")
    }
    #expect(throws: BlobStorageError.self) { try files.remove(folder.appending("d")) }
  }

  @Test("an open file outlives its name", arguments: Kind.allCases)
  func outlivesName(_ kind: Kind) throws {
    let place = try Place(kind)
    let path = place.folder.appending("a")
    let file = try place.files.open(path, .create)
    try file.write([5], at: 0)
    #expect(try file.status().linkCount == 1)
    try place.files.remove(path)
    #expect(try file.read(byteCount: 4, at: 0) == [5])
    #expect(try file.status().linkCount == 0)
  }

  @Test("locks hold between two open files, not within one", arguments: Kind.allCases)
  func locks(_ kind: Kind) throws {
    let place = try Place(kind)
    let path = place.folder.appending("a")
    let first = try place.files.open(path, .create)
    let second = try place.files.open(path, .readWrite)
    #expect(try first.lock(.shared, wait: false))
    #expect(try second.lock(.shared, wait: false))
    #expect(try second.lock(.exclusive, wait: false) == false)
    // The refused change gave the shared lock up.
    #expect(try first.lock(.exclusive, wait: false))
    #expect(try first.lock(.exclusive, wait: false), "a second time is no conflict with oneself")
    #expect(try second.lock(.shared, wait: false) == false)
    try first.unlock()
    try first.unlock()
    #expect(try second.lock(.exclusive, wait: false))
    second.close()
    #expect(try first.lock(.exclusive, wait: false), "closing gives the lock back")
  }

  @Test("a thread that waits for a lock gets it when it is free", arguments: Kind.allCases)
  func waitsForLock(_ kind: Kind) throws {
    let place = try Place(kind)
    let path = place.folder.appending("a")
    let first = try place.files.open(path, .create)
    let second = try place.files.open(path, .readWrite)
    #expect(try first.lock(.exclusive, wait: true))
    let order = Mutex<[String]>([])
    let isDone = DispatchSemaphore(value: 0)
    let isAsking = DispatchSemaphore(value: 0)
    DispatchQueue.global().async {
      isAsking.signal()
      let isHeld = try? second.lock(.exclusive, wait: true)
      order.withLock { $0.append("second has it: \(isHeld == true)") }
      isDone.signal()
    }
    isAsking.wait()
    order.withLock { $0.append("first gives it back") }
    try first.unlock()
    isDone.wait()
    #expect(order.withLock { $0 } == ["first gives it back", "second has it: true"])
  }

  @Test("after closing every call throws closed", arguments: Kind.allCases)
  func refusesAfterClose(_ kind: Kind) async throws {
    let place = try Place(kind)
    let file = try place.files.open(place.folder.appending("a"), .create)
    file.close()
    file.close()
    let attempts: [() throws -> Void] = [
      { _ = try file.read(byteCount: 1, at: 0) }, { try file.write([1], at: 0) }, { try file.synchronize() },
      { try file.truncate(to: 0) }, { try file.allocate(byteCount: 1) }, { _ = try file.status() },
      { _ = try file.lock(.shared, wait: false) }, { try file.unlock() },
    ]
    for attempt in attempts {
      let error = #expect(throws: BlobStorageError.self) { try attempt() }
      #expect(error?.code == .closed)
    }
    let error = await readThroughDispatch(file, offset: 0, byteCount: 1).failure
    #expect(error?.code == .closed)
  }

  @Test("DispatchIO reads the bytes, once", arguments: Kind.allCases)
  func readsThroughDispatch(_ kind: Kind) async throws {
    let place = try Place(kind)
    let file = try place.files.open(place.folder.appending("a"), .create)
    // Larger than one piece of a channel.
    var bytes = [UInt8](repeating: 1, count: 3_000_000)
    for index in stride(from: 0, to: bytes.count, by: 999) { bytes[index] = UInt8(index / 999 % 251) }
    try file.write(bytes, at: 0)
    for (offset, count, expected) in [
      (0, 3_000_000, 0..<3_000_000), (1_234_567, 1_500_000, 1_234_567..<2_734_567),
      (2_999_990, 100, 2_999_990..<3_000_000), (3_000_000, 5, 0..<0), (9_000_000, 5, 0..<0), (7, 0, 0..<0),
    ] {
      let outcome = await readThroughDispatch(file, offset: Int64(offset), byteCount: count)
      #expect(outcome.bytes == Array(bytes[expected]), "\(offset) + \(count)")
    }
  }

  @Test("closing lets a DispatchIO read under way end and gives the lock back", arguments: Kind.allCases)
  func closesUnderDispatchRead(_ kind: Kind) async throws {
    let place = try Place(kind)
    let path = place.folder.appending("a")
    let file = try place.files.open(path, .create)
    let other = try place.files.open(path, .readWrite)
    let bytes = [UInt8](repeating: 3, count: 2_000_000)
    try file.write(bytes, at: 0)
    #expect(try file.lock(.exclusive, wait: false))
    let queue = DispatchQueue(label: "held back")
    queue.suspend()
    let outcome: DispatchOutcome = try await withCheckedThrowingContinuation { continuation in
      file.readThroughDispatch(offset: 0, byteCount: bytes.count, queue: queue) {
        continuation.resume(returning: DispatchOutcome($0))
      }
      file.close()
      let isFree = try? other.lock(.exclusive, wait: false)
      queue.resume()
      #expect(isFree == true)
    }
    #expect(outcome.bytes == bytes)
  }

  @Test("calls from many threads race with closing and never meet another file", arguments: Kind.allCases)
  func survivesRacingClose(_ kind: Kind) throws {
    let place = try Place(kind)
    let path = place.folder.appending("a")
    try place.files.write([1, 1, 1, 1], to: path)
    try place.files.write([2, 2, 2, 2], to: place.folder.appending("b"))
    let wrong = Atomic<Int>(0)
    for _ in 0..<200 {
      let file = try place.files.open(path, .read)
      DispatchQueue.concurrentPerform(iterations: 4) { index in
        if index == 3 {
          file.close()
          // Takes the number that was just freed, if it was freed too early.
          _ = try? place.files.bytes(of: place.folder.appending("b"))
          return
        }
        for _ in 0..<20 {
          if let bytes = try? file.read(byteCount: 4, at: 0), bytes != [1, 1, 1, 1] {
            wrong.add(1, ordering: .relaxed)
          }
        }
      }
    }
    #expect(wrong.load(ordering: .relaxed) == 0)
  }
}

/// What one DispatchIO read came to, in types that can be passed on.
struct DispatchOutcome: Sendable {
  var bytes: [UInt8]?
  var failure: BlobStorageError?

  init(_ result: Result<DispatchData, BlobStorageError>) {
    switch result {
    case .success(let data):
      var all = [UInt8](repeating: 0, count: data.count)
      all.withUnsafeMutableBytes { data.copyBytes(to: $0, count: data.count) }
      bytes = all
    case .failure(let error): failure = error
    }
  }
}

/// Reads and fails the test's process, by resuming twice, should the completion come twice.
func readThroughDispatch(_ file: any File, offset: Int64, byteCount: Int) async -> DispatchOutcome {
  let queue = DispatchQueue(label: "test")
  return await withCheckedContinuation { continuation in
    file.readThroughDispatch(offset: offset, byteCount: byteCount, queue: queue) {
      continuation.resume(returning: DispatchOutcome($0))
    }
  }
}
