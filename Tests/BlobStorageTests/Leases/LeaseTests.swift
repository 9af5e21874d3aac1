import BlobStorage
import BlobStorageTestSupport
import Synchronization
import SystemPackage
import Testing

@Suite("Leases")
struct LeaseTests {
  static let folder: FilePath = "/leases"
  static let first = BlobDigest.of([1] as [UInt8])
  static let second = BlobDigest.of([2] as [UInt8])

  let disk: SimulatedDisk

  init() throws {
    disk = SimulatedDisk()
    try disk.createDirectory(Self.folder)
  }

  /// What gc of another process reads.
  private func read() throws(BlobStorageError) -> AllLeases {
    try AllLeases(in: Self.folder, disk.process(), .blake3)
  }

  private func lease(_ writer: UInt64) -> LeaseFile {
    LeaseFile(folder: Self.folder, writer: writer, files: disk.process())
  }

  @Test("are seen by others until they are let go")
  func holding() throws {
    let (one, two) = (lease(1), lease(2))
    #expect(try read().held.isEmpty)
    let chunk = try one.hold([.chunk(Self.first), .blob(Self.second)])
    let blob = try two.hold([.blob(Self.first)])
    #expect(try read().held == [.chunk(Self.first), .blob(Self.second), .blob(Self.first)])
    one.release(chunk)
    #expect(try read().held == [.blob(Self.first)])
    two.release(blob)
    #expect(try read().held.isEmpty)
  }

  @Test("leave no file behind when they cannot be made, nor when their process dies while it makes them")
  func leftovers() throws {
    let process = disk.process()
    disk.plan(Fault(.rename, errno: .ioError))
    let lease = LeaseFile(folder: Self.folder, writer: 1, files: process)
    #expect(throws: BlobStorageError.self) { try lease.hold([.chunk(Self.first)]) }
    #expect(try disk.list(Self.folder) == [])
    _ = try disk.process().open("/leases/0000000000000002.new", .create)
    #expect(try read().held.isEmpty)
    #expect(try disk.list(Self.folder) == [])
  }

  @Test("are not made after the close, and leave no file")
  func closed() throws {
    let lease = lease(1)
    let hold = try lease.hold([.chunk(Self.first)])
    lease.close()
    #expect(failure { _ = try lease.hold([.chunk(Self.second)]) }?.code == .closed)
    #expect(failure { _ = try lease.beginPut(from: 1) }?.code == .closed)
    lease.release(hold)
    #expect(try disk.list(Self.folder) == [])
  }

  @Test("take the places of those that were let go")
  func reuse() throws {
    let lease = lease(1)
    let kept = try lease.hold([.chunk(Self.first)])
    for _ in 0..<100 {
      let hold = try lease.hold([.chunk(Self.second), .blob(Self.second)])
      lease.release(hold)
    }
    #expect(try read().held == [.chunk(Self.first)])
    #expect(try disk.status(of: "/leases/0000000000000001.lease")?.byteCount == 2 * 40)
    lease.release(kept)
    #expect(try disk.status(of: "/leases/0000000000000001.lease")?.byteCount == 40)
  }

  @Test(
    "have places of their own, in whatever order all those before them were let go", arguments: [false, true])
  func ownPlaces(_ isEarlierFirst: Bool) throws {
    let lease = lease(1)
    let (early, late) = (try lease.hold([.chunk(Self.first)]), try lease.hold([.chunk(Self.second)]))
    for hold in isEarlierFirst ? [early, late] : [late, early] { lease.release(hold) }
    let (one, two) = (try lease.hold([.blob(Self.first)]), try lease.hold([.blob(Self.second)]))
    #expect(try read().held == [.blob(Self.first), .blob(Self.second)])
    lease.release(one)
    #expect(try read().held == [.blob(Self.second)])
    lease.release(two)
    #expect(try read().held.isEmpty)
  }

  @Test("that find no room leave nothing that cannot be read, and readers go without them")
  func noRoom() throws {
    let lease = lease(1)
    let kept = try lease.hold([.blob(Self.first)])
    for isReader in [false, true] {
      // The first of two lands, and half of the second.
      disk.plan(Fault(.write, errno: .noSpace, landingByteCount: 60))
      let both: [LeaseSlot] = [.chunk(Self.first), .chunk(Self.second)]
      if isReader {
        lease.release(try lease.holdWhereThereIsRoom(both))
      } else {
        #expect(failure { _ = try lease.hold(both) }?.code == .noSpace)
      }
      #expect(try read().held == [.blob(Self.first)])
    }
    let later = try lease.hold([.chunk(Self.second)])
    lease.release(kept)
    #expect(try read().held == [.chunk(Self.second)])
    lease.release(later)
    #expect(try read().held.isEmpty)
  }

  @Test("of many puts beside a reader that stays take no more places than are held at once")
  func merged() throws {
    let lease = lease(1)
    let kept = try lease.hold([.blob(Self.first)])
    var generator = SplitMix64(seed: 5)
    var held: [LeaseFile.Hold] = []
    for _ in 0..<3_000 {
      let count = Int.random(in: 1...20, using: &generator)
      held.append(try lease.hold(Array(repeating: .chunk(Self.second), count: count)))
      if held.count > 4 { lease.release(held.remove(at: Int.random(in: 0..<held.count, using: &generator))) }
    }
    let byteCount = try #require(try disk.status(of: "/leases/0000000000000001.lease")).byteCount
    #expect(byteCount <= 200 * 40)
    for hold in held { lease.release(hold) }
    #expect(try read().held == [.blob(Self.first)])
    lease.release(kept)
    #expect(try read().held.isEmpty)
  }

  @Test("protect a writer's packs from the first one of an unfinished put on")
  func puts() throws {
    let lease = lease(7)
    let early = try lease.beginPut(from: 3)
    let late = try lease.beginPut(from: 5)
    #expect(try read().firstPacks[7] == 3)
    lease.endPut(early)
    #expect(try read().firstPacks[7] == 5)
    lease.endPut(late)
    #expect(try read().firstPacks[7] == .max)
  }

  @Test("end with their process, and their file goes")
  func death() throws {
    let lease = lease(1)
    _ = try lease.hold([.chunk(Self.first)])
    #expect(try read().held.count == 1)
    disk.crash()
    withExtendedLifetime(lease) {}
    #expect(try read().held.isEmpty)
    #expect(try disk.list(Self.folder).isEmpty)
  }

  @Test("that are released whenever they are read do not keep others from being read")
  func releasedMeanwhile() throws {
    let (busy, other) = (lease(1), lease(2))
    busy.release(try busy.hold([.chunk(Self.first)]))
    let kept = try other.hold([.chunk(Self.second)])
    let reader = disk.process()
    let held = Mutex<LeaseFile.Hold?>(nil)
    disk.beforeCalls { (call) throws(BlobStorageError) in
      guard call.process == reader.number, call.detail.contains("0000000000000001.lease") else { return }
      if call.kind == .status {
        let hold = try busy.hold([.chunk(Self.first)])
        held.withLock { $0 = hold }
      } else if call.kind == .read, let hold = held.withLock({ $0.take() }) {
        busy.release(hold)
      }
    }
    let leases = try AllLeases(in: Self.folder, reader, .blake3)
    disk.beforeCalls(nil)
    #expect(leases.held == [.chunk(Self.second)])
    #expect(leases.firstPacks == [1: .max, 2: .max])
    other.release(kept)
    #expect(try read().held.isEmpty)
  }

  @Test("that cannot be read are an error: what they hold is not known")
  func damage() throws {
    let lease = lease(1)
    _ = try lease.hold([.chunk(Self.first)])
    let file = try disk.open("/leases/0000000000000001.lease", .readWrite)
    let byte = try file.read(byteCount: 1, at: 50)
    try file.write([byte[0] ^ 1], at: 50)
    #expect(failure { _ = try read() }?.code == .corrupted)
    try file.write(byte, at: 50)
    #expect(try read().held == [.chunk(Self.first)])
  }

  /// A long put has one for each of its chunks.
  @Test("are read part by part, however many there are, and their file gets shorter while some stay")
  func many() throws {
    let lease = lease(1)
    let all = (0..<60_000).map { LeaseSlot.chunk(BlobDigest.of(withUnsafeBytes(of: $0) { Array($0) })) }
    let holds = try all.parts(of: 20_000).map { part throws(BlobStorageError) in try lease.hold(Array(part)) }
    #expect(try read().held == Set(all))
    func byteCount() throws -> Int64 {
      try #require(try disk.status(of: "/leases/0000000000000001.lease")).byteCount
    }
    let whole = try byteCount()
    // One in the middle leaves a gap, which goes with the one behind it.
    lease.release(holds[1])
    #expect(try byteCount() == whole)
    lease.release(holds[2])
    #expect(try byteCount() == 20_001 * 40)
    #expect(try read().held == Set(all[..<20_000]))
    let again = try lease.hold([all[30_000]])
    #expect(try read().held == Set(all[..<20_000] + [all[30_000]]))
    lease.release(holds[0])
    #expect(try read().held == [all[30_000]])
    lease.release(again)
    #expect(try read().held.isEmpty)
    #expect(try byteCount() == 40)
  }

  @Test(
    "that cannot be made leave nothing behind, and the next try makes them",
    arguments: [CallKind.lock, .rename, .write])
  func cannotBeMade(_ kind: CallKind) throws {
    let lease = lease(1)
    disk.plan(Fault(kind, errno: .ioError, landingByteCount: 20))
    #expect(failure { _ = try lease.hold([.chunk(Self.first)]) }?.code == .io)
    #expect(try disk.list(Self.folder) == [])
    let hold = try lease.hold([.chunk(Self.first)])
    #expect(try read().held == [.chunk(Self.first)])
    lease.release(hold)
  }

  @Test(
    "are made under another name where a collector holds the first ones, or has removed them",
    arguments: [false, true], [1, 20])
  func anotherName(_ isRemoved: Bool, _ countMax: Int) throws {
    let lease = lease(1)
    let other = disk.process()
    let moment: CallKind = isRemoved ? .rename : .lock
    let count = Atomic<Int>(0)
    let collector = Mutex<[any File]>([])
    disk.beforeCalls { (call) throws(BlobStorageError) in
      guard call.kind == moment, call.process != other.number else { return }
      let attempt = count.add(1, ordering: .relaxed).newValue
      guard attempt <= countMax else { return }
      let path = FilePath("/leases/0000000000000001\(attempt == 1 ? "" : "-\(attempt)").new")
      if isRemoved {
        try other.remove(path)
      } else {
        let file = try other.open(path, .readWrite)
        collector.withLock { $0.append(file) }
        _ = try file.lock(.exclusive, wait: false)
      }
    }
    let hold = try lease.hold([.chunk(Self.first)])
    #expect(try read().held == [.chunk(Self.first)])
    lease.release(hold)
    disk.heal()
  }

  @Test("of a put that could not write its lease protect nothing")
  func failedPut() throws {
    let lease = lease(7)
    let early = try lease.beginPut(from: 9)
    disk.plan(Fault(.write, errno: .ioError))
    #expect(failure { _ = try lease.beginPut(from: 3) }?.code == .io)
    let late = try lease.beginPut(from: 12)
    #expect(try read().firstPacks[7] == 9)
    lease.endPut(early)
    #expect(try read().firstPacks[7] == 12)
    lease.endPut(late)
  }

  @Test(
    "are gone without by readers where nothing can be written, and nowhere else",
    arguments: [(.noSpace, true), (.readOnlyFileSystem, true), (.permissionDenied, true), (.ioError, false)]
      as [(Errno, Bool)])
  func withoutLease(_ errno: Errno, _ goesOn: Bool) throws {
    let lease = lease(1)
    disk.plan(Fault(.write, errno: errno))
    var hold: LeaseFile.Hold?
    let error = failure { hold = try lease.holdWhereThereIsRoom([.blob(Self.first)]) }
    #expect((error == nil) == goesOn)
    if let hold { lease.release(hold) }
    #expect(try read().held.isEmpty)
  }

  @Test("are gone with their file when they are given up")
  func givenUp() throws {
    let lease = lease(1)
    _ = try lease.hold([.chunk(Self.first)])
    lease.close()
    #expect(try disk.list(Self.folder) == [])
  }
}
