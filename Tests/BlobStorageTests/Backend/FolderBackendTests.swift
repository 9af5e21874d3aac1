import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// What the names of packs go through, on a disk that tells what is on the medium and what is not.
@Suite("Packs in a folder")
struct FolderBackendTests {
  private static let folder: FilePath = "/packs"
  private static let names = [
    PackName(writer: 7, sequence: 1), PackName(writer: 7, sequence: 2), PackName(writer: 7, sequence: 3),
  ]

  private let disk: SimulatedDisk
  private let backend: FolderBackend

  init() throws {
    let disk = SimulatedDisk()
    try disk.createDirectory(Self.folder)
    try disk.syncDirectory("/")
    self.disk = disk
    backend = Self.backend(disk)
  }

  private static func backend(_ files: any FileSystem) -> FolderBackend {
    FolderBackend(
      folder: folder, asideFolder: "/aside", files: files, census: CensusFile("/census", files: files))
  }

  private static func path(_ name: PackName, _ ending: String) -> FilePath {
    folder.appending("\(name).\(ending)")
  }

  /// Packs of a header each, on the medium, their writers gone.
  private func makePacks(_ count: Int) throws {
    for name in Self.names.prefix(count) {
      let header = PackPlace.header(writer: name.writer, sequence: name.sequence)
      try backend.createPack(name, header: header.encoded()).close()
    }
    try backend.synchronizeNames()
  }

  /// Runs `body` before the next call of a kind.
  private func before(
    _ kind: CallKind, _ body: @escaping @Sendable () throws(BlobStorageError) -> Void
  ) {
    let isFirst = Mutex(true)
    disk.beforeCalls { (call) throws(BlobStorageError) in
      guard call.kind == kind,
        isFirst.withLock({ first in
          let isNow = first
          first = false
          return isNow
        })
      else { return }
      try body()
    }
  }

  @Test("get their names with the header on the medium, and are locked until they are closed")
  func created() throws {
    let name = Self.names[0]
    let header = PackPlace.header(writer: name.writer).encoded()
    let file = try backend.createPack(name, header: header)
    // All names stay that were given, and no bytes that were not forced.
    let named = disk.pendingChanges.filter { $0.byteCount == 0 }.map(\.number)
    let after = disk.powerCut(keeping: named.map { ($0, .whole) })
    let bytes = try after.bytes(of: Self.path(name, "pack"))
    #expect(bytes == header)
    let other = Self.backend(disk.process())
    let tooEarly = try other.adoptPack(name)
    #expect(tooEarly == nil)
    file.close()
    let adopted = try other.adoptPack(name)
    #expect(adopted != nil)
  }

  @Test("take no name that another has or had, and leave nothing where they cannot be made")
  func takenNames() throws {
    try makePacks(2)
    try backend.retirePacks([Self.names[1]])
    let before = try disk.list(Self.folder)
    for name in Self.names.prefix(2) {
      #expect(failure { _ = try backend.createPack(name, header: [1]) }?.code == .io, "\(name)")
    }
    for kind in [CallKind.write, .synchronize, .rename] {
      disk.plan(Fault(kind, errno: .noSpace))
      #expect(failure { _ = try backend.createPack(Self.names[2], header: [1]) }?.code == .noSpace, "\(kind)")
    }
    let after = try disk.list(Self.folder)
    #expect(after == before)
    try backend.createPack(Self.names[2], header: [1]).close()
    let names = try backend.packNames()
    #expect(names.live == [Self.names[0], Self.names[2]] && names.retired == [Self.names[1]])
  }

  @Test("are damaged where the medium cannot read them twice, and nothing else is", arguments: [false, true])
  func unreadable(isWritable: Bool) throws {
    try makePacks(1)
    let name = Self.names[0]
    let opened = isWritable ? try backend.adoptPack(name) : try backend.openPack(name)
    let file = try #require(opened)
    for errno in [Errno.ioError, .badMessage] {
      disk.plan(Fault(.read, errno: errno))
      #expect(try file.read(byteCount: 9, at: 7).count == 9, "\(errno) once")
      for count in 1...2 { disk.plan(Fault(.read, count: count, errno: errno)) }
      let error = try #require(failure { _ = try file.read(byteCount: 9, at: 7) })
      #expect(error.code == .corrupted && error.isUnreadable && error.offset == 7)
      #expect(error.errno == errno.rawValue && error.path == Self.path(name, "pack").string)
      #expect(error.message.hasPrefix("The medium cannot read \(Self.path(name, "pack")) at 7: "))
    }
    disk.plan(Fault(.read, errno: .permissionDenied))
    #expect(failure { _ = try file.read(byteCount: 9, at: 7) }?.code == .permissionDenied)
    disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(failure { try file.synchronize() }?.code == .io)
  }

  @Test("are damaged where the medium cannot read them twice, also through DispatchIO")
  func unreadableThroughDispatch() async throws {
    try makePacks(1)
    let file = try #require(try backend.openPack(Self.names[0]))
    disk.plan(Fault(.read, errno: .ioError))
    let once = await readThroughDispatch(file, offset: 7, byteCount: 9)
    #expect(once.bytes?.count == 9)
    for count in 1...2 { disk.plan(Fault(.read, count: count, errno: .ioError)) }
    let twice = await readThroughDispatch(file, offset: 7, byteCount: 9)
    let error = try #require(twice.failure)
    #expect(error.code == .corrupted && error.isUnreadable && error.offset == 7)
  }

  @Test("are not adopted when they are retired between opening and locking")
  func retiredMeanwhile() throws {
    try makePacks(1)
    let (from, to) = (Self.path(Self.names[0], "pack"), Self.path(Self.names[0], "gone"))
    before(.lock) { [disk = self.disk] () throws(BlobStorageError) in try disk.rename(from, to: to) }
    let adopted = try backend.adoptPack(Self.names[0])
    #expect(adopted == nil)
    disk.beforeCalls(nil)
    let retired = try disk.open(to, .readWrite)
    #expect(try retired.lock(.exclusive, wait: false))
  }

  @Test("leave the store for good, with a word of it on the medium first", arguments: [false, true])
  func leaving(isSetAside: Bool) throws {
    try makePacks(2)
    let name = Self.names[0]
    let isKnown = Mutex<[Bool]>([])
    disk.beforeMutations { [disk = self.disk] (call) throws(BlobStorageError) in
      guard call.kind == .rename else { return }
      let known = try CensusFile("/census", files: disk.powerCut()).read().hasLeft(name)
      isKnown.withLock { $0.append(known) }
    }
    if isSetAside {
      let place = try backend.setAsidePack(name)
      #expect(place == "/aside/\(name).pack")
    } else {
      try backend.retirePacks([name])
    }
    disk.beforeMutations(nil)
    #expect(isKnown.withLock { $0 } == [true])
    let after = disk.powerCut()
    let left = try Self.backend(after).packNames()
    #expect(left.live == [Self.names[1]])
    #expect(left.retired == (isSetAside ? [] : [name]))
    let files = try after.list(Self.folder)
    #expect(!files.contains(name.fileName))
    if isSetAside {
      let aside = try after.list("/aside")
      #expect(aside == [name.fileName])
    }
  }

  @Test("that the census has let go leave the folder too, and no others do")
  func finishingToLeave() throws {
    try makePacks(3)
    try backend.census.append([.removed(1...1, writer: 7), .setAside(Self.names[1])], durably: true)
    let before = try backend.packNames()
    #expect(before.live == [Self.names[2]] && before.retired == [Self.names[0]])
    try backend.finishLeaving()
    let after = disk.powerCut()
    let (files, aside) = (try after.list(Self.folder), try after.list("/aside"))
    #expect(files == ["\(Self.names[0]).gone", Self.names[2].fileName])
    #expect(aside == [Self.names[1].fileName])
    // Of a retired pack that is gone already nothing is said; of one that cannot be removed it is.
    disk.plan(Fault(.remove, errno: .ioError))
    #expect(failure { try backend.removeRetiredPack(Self.names[0]) }?.errno == Errno.ioError.rawValue)
    for _ in 0..<2 { try backend.removeRetiredPack(Self.names[0]) }
    let last = try disk.list(Self.folder)
    #expect(last == [Self.names[2].fileName])
  }

  @Test("can be retired twice, because a transaction that finds no room runs again")
  func retiredTwice() throws {
    try makePacks(2)
    for _ in 0..<2 { try backend.retirePacks([Self.names[0]]) }
    let left = try backend.packNames()
    #expect(left.live == [Self.names[1]] && left.retired == [Self.names[0]])
    let missing = failure { try backend.retirePacks([Self.names[2]]) }
    #expect(missing?.errno == Errno.noSuchFileOrDirectory.rawValue)
  }

  @Test("are opened also when they are retired; that one is missing is no other trouble")
  func opened() throws {
    try makePacks(2)
    try backend.retirePacks([Self.names[0]])
    for name in Self.names.prefix(2) {
      let header = try #require(try backend.openPack(name)).read(byteCount: 64, at: 0)
      #expect(header == PackPlace.header(writer: 7, sequence: name.sequence).encoded())
    }
    let missing = try backend.openPack(Self.names[2])
    #expect(missing == nil)
    for errno in [Errno.ioError, .permissionDenied, .tooManyOpenFiles] {
      disk.plan(Fault(.open, errno: errno))
      #expect(failure { _ = try backend.openPack(Self.names[1]) }?.errno == errno.rawValue)
    }
  }

  @Test("without a name yet stay while their writers live, and go afterwards")
  func leftovers() throws {
    try makePacks(1)
    let living = try disk.process().open(Self.folder.appending("living.new"), .create)
    #expect(try living.lock(.exclusive, wait: false))
    for name in ["dead.new", "note.txt"] { try disk.write([1], to: Self.folder.appending(name)) }
    // A store that cannot be written to is read all the same.
    disk.plan(Fault(.open, errno: .readOnlyFileSystem))
    try backend.removeLeftovers()
    disk.plan(Fault(.open, errno: .ioError))
    #expect(failure { try backend.removeLeftovers() }?.errno == Errno.ioError.rawValue)
    try backend.removeLeftovers()
    let first = try disk.list(Self.folder)
    #expect(first == [Self.names[0].fileName, "living.new", "note.txt"])
    living.close()
    try backend.removeLeftovers()
    let second = try disk.list(Self.folder)
    #expect(second == [Self.names[0].fileName, "note.txt"])
  }

  @Test("are begun once more when their file is taken for a leftover before it is locked")
  func takenForLeftover() throws {
    let new = Self.path(Self.names[0], "new")
    before(.lock) { [disk = self.disk] () throws(BlobStorageError) in try disk.remove(new) }
    let file = try backend.createPack(Self.names[0], header: [1, 2, 3])
    disk.beforeCalls(nil)
    #expect(try file.status().linkCount == 1)
    let bytes = try disk.bytes(of: Self.path(Self.names[0], "pack"))
    #expect(bytes == [1, 2, 3])
    let other = try disk.process().open(Self.path(Self.names[0], "pack"), .readWrite)
    #expect(try !other.lock(.exclusive, wait: false))
  }

  @Test("are no leftovers when they get their names at that moment")
  func namedMeanwhile() throws {
    let (new, named) = (Self.path(Self.names[0], "new"), Self.path(Self.names[0], "pack"))
    try disk.write([1], to: new)
    before(.lock) { [disk = self.disk] () throws(BlobStorageError) in try disk.rename(new, to: named) }
    try backend.removeLeftovers()
    let files = try disk.list(Self.folder)
    #expect(files == [Self.names[0].fileName])
  }
}
