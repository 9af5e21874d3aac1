import BlobStorage
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("The file of the census")
struct CensusFileTests {
  private static let pack = PackName(writer: 9, sequence: 4)
  private static let events: [Census.Event] = [
    .store([UInt8](repeating: 0xab, count: 64)), .begun(PackName(writer: 8, sequence: 3)),
    .sealed(pack, recordsEnd: 99), .removed(1...2, writer: 8), .setAside(PackName(writer: 8, sequence: 7)),
    .unreadable(pack),
  ]

  private let disk = SimulatedDisk()

  private static func file(_ files: any FileSystem) -> CensusFile { CensusFile("/census", files: files) }

  @Test("has durable lines, and its name, on the medium when they were appended")
  func durable() throws {
    let file = Self.file(disk)
    try file.append([.unreadable(Self.pack)], durably: true)
    let first = try Self.file(disk.powerCut()).read()
    #expect(first.unreadablePacks == [Self.pack])
    try file.append([.accepted(Self.pack)], durably: true)
    let second = try Self.file(disk.powerCut()).read()
    #expect(second.unreadablePacks == [] && second.damagedLineCount == 0)
  }

  @Test("says the same whenever its replacement is cut short, by a kill or by a power cut")
  func replaced() throws {
    var isDone = false
    var number = 0
    while !isDone {
      number += 1
      let disk = SimulatedDisk()
      let file = Self.file(disk)
      try file.append(Self.events, durably: true)
      // What an earlier replacement left that was cut short, longer than this one.
      try disk.write([UInt8](repeating: 0x41, count: 5_000), to: "/census.new")
      let before = try file.read()
      #expect(before.damagedLineCount == 0)
      let process = disk.process()
      disk.stop(beforeMutation: disk.mutationCount + number)
      do {
        try Self.file(process).replace(by: before)
        isDone = true
      } catch { #expect(error.code == .simulatedStop) }
      disk.heal()
      let pending = disk.pendingChanges
      for mask in 0..<1 << pending.count {
        let kept = pending.enumerated().filter { mask >> $0.offset & 1 == 1 }
        let cut = disk.powerCut(keeping: kept.map { ($0.element.number, .whole) })
        let after = try Self.file(cut).read()
        #expect(after.events == before.events, "stopped before call \(number), \(pending), \(mask)")
        #expect(after.damagedLineCount == 0, "stopped before call \(number), \(pending), \(mask)")
      }
    }
    #expect(number > 4)
  }

  @Test(
    "has a line that a process appends while another one replaces the file",
    arguments: [CallKind.write, .rename])
  func appendedMeanwhile(_ kind: CallKind) throws {
    try Self.file(disk).append(Self.events, durably: true)
    let before = try Self.file(disk).read()
    let (appending, replacing) = (Self.file(disk.process()), Self.file(disk.process()))
    let new = PackName(writer: 10, sequence: 1)
    let isFirst = Atomic<Bool>(true)
    // Before the line is written, or once the lines for the new file are chosen.
    disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.kind == kind, isFirst.exchange(false, ordering: .relaxed) else { return }
      if kind == .write { try replacing.replace(by: before) }
      if kind == .rename { try appending.append([.begun(new)], durably: false) }
    }
    if kind == .write { try appending.append([.begun(new)], durably: false) }
    if kind == .rename { try replacing.replace(by: before) }
    disk.heal()
    let isLeft = isFirst.load(ordering: .relaxed)
    #expect(!isLeft)
    let after = try Self.file(disk).read()
    #expect(after.pack(new) != nil)
    #expect(after.pack(Self.pack) == before.pack(Self.pack) && after.damagedLineCount == 0)
  }

  @Test("refuses a line that it cannot keep, because another process always replaces it")
  func replacedEachTime() throws {
    try Self.file(disk).append(Self.events, durably: true)
    let before = try Self.file(disk).read()
    let (appending, replacing) = (disk.process(), Self.file(disk.process()))
    disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.process == appending.number, call.kind == .write else { return }
      try replacing.replace(by: before)
    }
    let error = failure {
      try Self.file(appending).append([.begun(PackName(writer: 10, sequence: 1))], durably: false)
    }
    #expect(error?.code == .busy)
  }

  @Test("leaves a file alone that has another name, in a copy of the store, whoever appends how many lines")
  func linked() throws {
    let temporary = try TemporaryFolder()
    defer { withExtendedLifetime(temporary) {} }
    let (path, copy) = (temporary.path.appending("census"), temporary.path.appending("copy"))
    let file = CensusFile(path, files: SystemFiles())
    try file.append(Self.events, durably: true)
    let before = try file.read()
    for number in 1...3 as ClosedRange<UInt32> {
      try FileManager.default.linkItem(atPath: path.string, toPath: copy.string)
      let bytes = try Data(contentsOf: URL(filePath: copy.string))
      let new = PackName(writer: 10, sequence: number)
      if number == 3 {
        try file.replace(by: try file.read())
      }
      DispatchQueue.concurrentPerform(iterations: 4) { index in
        let line = Census.Event.begun(PackName(writer: UInt64(20 + index), sequence: number))
        #expect(throws: Never.self) { try file.append([line, .begun(new)], durably: false) }
      }
      let after = try file.read()
      #expect(after.pack(new) != nil && after.damagedLineCount == 0)
      for index in 0..<4 {
        #expect(after.pack(PackName(writer: UInt64(20 + index), sequence: number)) != nil)
      }
      #expect(after.store == before.store && after.unreadablePacks == before.unreadablePacks)
      #expect(try Data(contentsOf: URL(filePath: copy.string)) == bytes)
      try FileManager.default.removeItem(atPath: copy.string)
    }
  }

  @Test("is empty where it is not there, and only there")
  func unreadable() throws {
    let file = Self.file(disk)
    let nothing = try file.read()
    #expect(nothing.events == [] && nothing.lineCount == 0)
    try file.append([.setAside(Self.pack)], durably: true)
    for errno in [Errno.ioError, .permissionDenied, .tooManyOpenFiles] {
      disk.plan(Fault(.open, errno: errno))
      #expect(failure { _ = try file.read() }?.errno == errno.rawValue)
    }
    let temporary = try TemporaryFolder()
    defer { withExtendedLifetime(temporary) {} }
    let path = temporary.path.appending("census")
    let large = try SystemFiles().open(path, .create)
    try large.truncate(to: BlobLimits.censusByteCountMax + 1)
    let error = failure { _ = try CensusFile(path, files: SystemFiles()).read() }
    #expect(error?.code == .corrupted && error?.path == path.string)
  }
}
