import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("A simulated disk")
struct SimulatedDiskTests {
  /// A disk whose file /a is durable and holds these bytes.
  private func diskWithFile(_ bytes: [UInt8]) throws -> (SimulatedDisk, any File) {
    let disk = SimulatedDisk()
    let file = try disk.open("/a", .create)
    try file.write(bytes, at: 0)
    try file.synchronize()
    try disk.syncDirectory("/")
    return (disk, file)
  }

  @Test("a power cut keeps exactly what was synced")
  func keepsWhatWasSynced() throws {
    let (disk, file) = try diskWithFile([1, 2, 3])
    try file.write([9, 9], at: 2)
    #expect(try disk.powerCut().bytes(of: "/a") == [1, 2, 3])
    try file.synchronize()
    #expect(try disk.powerCut().bytes(of: "/a") == [1, 2, 9, 9])
    #expect(try disk.bytes(of: "/a") == [1, 2, 9, 9], "the cut makes a new disk and leaves this one alone")
  }

  @Test("a synced file without a synced folder is gone")
  func losesUnsyncedNames() throws {
    let disk = SimulatedDisk()
    let file = try disk.open("/a", .create)
    try file.write([1], at: 0)
    try file.synchronize()
    #expect(try disk.powerCut().list("/") == [])
    try disk.syncDirectory("/")
    #expect(try disk.powerCut().bytes(of: "/a") == [1])
  }

  @Test("names come and go durably with their folder's sync")
  func syncsNames() throws {
    let (disk, _) = try diskWithFile([1])
    try disk.createDirectory("/d")
    try disk.rename("/a", to: "/d/b")
    try disk.syncDirectory("/")
    #expect(try disk.powerCut().list("/") == ["a", "d"], "a rename needs both of its folders")
    try disk.syncDirectory("/d")
    #expect(try disk.powerCut().list("/") == ["d"])
    #expect(try disk.powerCut().bytes(of: "/d/b") == [1])
    try disk.remove("/d/b")
    #expect(try disk.powerCut().list("/d") == ["b"])
    try disk.syncDirectory("/d")
    #expect(try disk.powerCut().list("/d") == [])
  }

  @Test("a rename that replaces leaves the old bytes or the new, never none")
  func renamesAtomically() throws {
    let (disk, _) = try diskWithFile([1])
    let file = try disk.open("/new", .create)
    try file.write([2], at: 0)
    try file.synchronize()
    try disk.rename("/new", to: "/a")
    for seed: UInt64 in 0..<200 {
      let bytes = try disk.powerCut(seed: seed).bytes(of: "/a")
      #expect(bytes == [1] || bytes == [2], "seed \(seed)")
    }
  }

  @Test(
    "a replacement that fails leaves the old bytes, and takes no room",
    arguments: [CallKind.truncate, .write, .synchronize, .rename])
  func failedReplacement(_ kind: CallKind) throws {
    let (disk, _) = try diskWithFile([1, 2])
    disk.plan(Fault(kind, errno: .noSpace, landingByteCount: 1))
    #expect(failure { try disk.replace("/a", with: [3, 4, 5]).close() }?.code == .noSpace)
    #expect(try disk.list("/") == ["a"])
    #expect(try disk.bytes(of: "/a") == [1, 2])
    try disk.replace("/a", with: [3, 4, 5]).close()
    #expect(try disk.bytes(of: "/a") == [3, 4, 5])
  }

  @Test("a power cut tears and reorders as chosen")
  func tearsAsChosen() throws {
    let (disk, file) = try diskWithFile([0, 0, 0])
    try file.write([1, 1, 1], at: 0)
    try file.write([2, 2], at: 1)
    try file.truncate(to: 2)
    let numbers = disk.pendingChanges.map(\.number)
    func cut(_ kept: [(Int, PowerCutFate)]) throws -> [UInt8] {
      try disk.powerCut(keeping: kept.map { (numbers[$0.0], $0.1) }).bytes(of: "/a")
    }
    #expect(try cut([(0, .whole)]) == [1, 1, 1])
    #expect(try cut([(0, .prefix(byteCount: 2))]) == [1, 1, 0])
    #expect(try cut([(0, .whole), (1, .whole)]) == [1, 2, 2])
    #expect(try cut([(1, .whole), (0, .whole)]) == [1, 1, 1])
    #expect(try cut([(2, .whole)]) == [0, 0])
    #expect(try cut([(0, .dropped), (1, .whole)]) == [0, 2, 2])
  }

  @Test("a torn write can land by sectors, with zeros between")
  func tearsBySectors() throws {
    let (disk, file) = try diskWithFile([])
    try file.write([UInt8](repeating: 7, count: 1_200), at: 100)
    let number = try #require(disk.pendingChanges.first?.number)
    let bytes = try disk.powerCut(keeping: [(number, .sectors(mask: 0b010))]).bytes(of: "/a")
    let zeros = [UInt8](repeating: 0, count: 512)
    #expect(bytes == zeros + [UInt8](repeating: 7, count: 512) + zeros.prefix(1_300 - 1_024))
  }

  @Test("one seed gives one outcome, many seeds give many")
  func repeatsBySeed() throws {
    let (disk, file) = try diskWithFile([])
    for index in 0..<20 {
      try file.write([UInt8](repeating: UInt8(index + 1), count: 700), at: Int64(index) * 600)
    }
    var outcomes: Set<[UInt8]> = []
    for seed: UInt64 in 0..<50 {
      let bytes = try disk.powerCut(seed: seed).bytes(of: "/a")
      #expect(try disk.powerCut(seed: seed).bytes(of: "/a") == bytes, "seed \(seed)")
      outcomes.insert(bytes)
    }
    #expect(outcomes.count > 25)
  }

  @Test("what a failed sync lost stays readable and never becomes durable")
  func losesAfterFailedSync() throws {
    let (disk, file) = try diskWithFile([1, 2])
    try file.write([9], at: 0)
    disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(throws: BlobStorageError.self) { try file.synchronize() }
    #expect(try file.read(byteCount: 2, at: 0) == [9, 2])
    try file.synchronize()
    #expect(try disk.powerCut().bytes(of: "/a") == [1, 2])
    try file.write([8], at: 1)
    try file.synchronize()
    #expect(try disk.powerCut().bytes(of: "/a") == [1, 8])
  }

  @Test("planned faults strike the call they are planned for")
  func strikesPlannedCall() throws {
    let (disk, file) = try diskWithFile([1])
    disk.plan(Fault(.write, count: 2, errno: .noSpace, landingByteCount: 2))
    try file.write([2], at: 0)
    let error = #expect(throws: BlobStorageError.self) { try file.write([3, 3, 3], at: 0) }
    #expect(error?.code == .noSpace)
    #expect(try file.read(byteCount: 9, at: 0) == [3, 3])
    try file.write([4], at: 0)

    disk.plan(Fault(nil, errno: .ioError, isPermanent: true))
    for _ in 0..<3 { #expect(throws: BlobStorageError.self) { try file.status() } }
    #expect(throws: BlobStorageError.self) { try disk.list("/") }
    disk.heal()
    #expect(try disk.list("/") == ["a"])
  }

  @Test("a full disk takes what fits, and space comes back with a removed file")
  func fillsUp() throws {
    let (disk, file) = try diskWithFile([1, 2])
    disk.limit(byteCount: 5)
    try file.write([1, 2, 3], at: 0)
    let error = #expect(throws: BlobStorageError.self) { try file.write([7, 7, 7, 7], at: 3) }
    #expect(error?.code == .noSpace)
    #expect(try file.read(byteCount: 9, at: 0) == [1, 2, 3, 7, 7])
    try file.write([4], at: 0)
    let other = try disk.open("/b", .create)
    #expect(throws: BlobStorageError.self) { try other.allocate(byteCount: 1) }
    try disk.remove("/a")
    #expect(throws: BlobStorageError.self, "the open file still takes its space") {
      try other.allocate(byteCount: 1)
    }
    file.close()
    try other.allocate(byteCount: 5)
  }

  @Test("a killed process loses its locks and can do nothing more; what it wrote stays")
  func killsProcess() throws {
    let disk = SimulatedDisk()
    let (first, second) = (disk.process(), disk.process())
    let file = try first.open("/a", .create)
    try file.write([1], at: 0)
    #expect(try file.lock(.exclusive, wait: false))
    let other = try second.open("/a", .readWrite)
    #expect(try other.lock(.exclusive, wait: false) == false)
    first.kill()
    #expect(try other.lock(.exclusive, wait: false))
    #expect(try other.read(byteCount: 4, at: 0) == [1])
    for attempt in [{ try file.write([2], at: 0) }, { _ = try first.list("/") }] as [() throws -> Void] {
      let error = #expect(throws: BlobStorageError.self) { try attempt() }
      #expect(error?.code == .simulatedStop)
    }
    disk.crash()
    #expect(throws: BlobStorageError.self) { try second.list("/") }
    #expect(try disk.bytes(of: "/a") == [1])
    #expect(try disk.open("/a", .readWrite).lock(.exclusive, wait: false))
  }

  @Test("a run can be stopped before each of its mutating calls in turn")
  func stopsBeforeEachCall() throws {
    func run(_ files: any FileSystem) throws {
      let file = try files.open("/a", .create)
      try file.write([1], at: 0)
      try file.synchronize()
      try files.syncDirectory("/")
      try files.rename("/a", to: "/b")
      _ = try files.status(of: "/b")
      try files.syncDirectory("/")
    }
    var seen: [String] = []
    for number in 1...7 {
      let disk = SimulatedDisk()
      disk.stop(beforeMutation: number)
      let error = Result { try run(disk) }.failure as? BlobStorageError
      #expect(error?.code == (number < 7 ? .simulatedStop : nil), "\(disk.calls)")
      disk.crash()
      disk.heal()
      seen.append(try disk.list("/").joined() + "|" + disk.powerCut().list("/").joined())
    }
    #expect(seen == ["|", "a|", "a|", "a|", "a|a", "b|a", "b|b"])
  }
}

extension Result {
  var failure: Failure? {
    if case .failure(let error) = self { return error }
    return nil
  }
}
