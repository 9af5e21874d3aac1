import BlobStorage
import BlobStorageTestSupport
import Synchronization
import SystemPackage
import Testing

@Suite("The packs that are open")
struct PackFilesTests {
  private static let names = [
    PackName(writer: 7, sequence: 1), PackName(writer: 7, sequence: 2), PackName(writer: 7, sequence: 3),
  ]

  private let disk: SimulatedDisk
  private let backend: FolderBackend

  init() throws {
    let disk = SimulatedDisk()
    try disk.createDirectory("/packs")
    self.disk = disk
    backend = FolderBackend(folder: "/packs", asideFolder: "/aside", files: disk)
    for name in Self.names { try backend.createPack(name, header: [UInt8(name.sequence)]).close() }
  }

  private func packFiles(
    countMax: Int = 64, catalogNumber: @escaping @Sendable () -> UInt64? = { 1 }
  ) throws -> PackFiles {
    PackFiles(
      backend: backend, codecs: CodecPool(),
      store: try Engine.newHeader(StoreOptions(), Engine.Environment()),
      countMax: countMax, catalogNumber: catalogNumber)
  }

  /// Whether asking for the pack opened its file.
  private func opens(_ packs: PackFiles, _ index: Int) throws -> Bool {
    let before = disk.calls.count { $0.kind == .open }
    let file = try #require(try packs.file(Self.names[index]))
    #expect(try file.read(byteCount: 9, at: 0) == [UInt8(index + 1)])
    return disk.calls.count { $0.kind == .open } > before
  }

  @Test("are so many at most, and the one goes that was not used for longest")
  func leastRecent() throws {
    let packs = try packFiles(countMax: 2)
    var opened: [Bool] = []
    for index in [0, 1, 0, 2, 0, 1, 0, 2] { opened.append(try opens(packs, index)) }
    #expect(opened == [true, true, false, true, false, true, false, true])
  }

  @Test("leave most of a process's descriptors to others")
  func descriptors() {
    #expect([16, 256, 1_024, 1 << 20].map { PackFiles.countMax(descriptorLimit: $0) } == [8, 16, 64, 64])
  }

  @Test("are read on when they lose their names, until they are forgotten, and those alone are")
  func removed() throws {
    let packs = try packFiles()
    for index in 0..<3 { #expect(try opens(packs, index)) }
    try disk.remove(FilePath("/packs").appending(Self.names[1].fileName))
    #expect(try !opens(packs, 1))
    try packs.forgetRemoved()
    let gone = try packs.file(Self.names[1])
    #expect(gone == nil)
    for index in [0, 2] { #expect(try !opens(packs, index)) }
    // What is missing now may be there later.
    try backend.createPack(Self.names[1], header: [2]).close()
    #expect(try opens(packs, 1))
  }

  @Test("are opened anew when they are forgotten", arguments: [false, true])
  func forgotten(byName: Bool) throws {
    let packs = try packFiles()
    for index in 0..<3 { #expect(try opens(packs, index)) }
    if byName { packs.forget([Self.names[0], Self.names[2]]) } else { packs.forgetAll() }
    var opened: [Bool] = []
    for index in 0..<3 { opened.append(try opens(packs, index)) }
    #expect(opened == [true, !byName, true])
  }

  @Test("are found by their numbers in a catalog while they are open")
  func numbered() throws {
    let packs = try packFiles()
    let number = PackFiles.Number(catalog: 1, pack: 9)
    #expect(packs.openFile(number) == nil)
    _ = try packs.file(Self.names[1], number)
    #expect(packs.openFile(number)?.name == Self.names[1])
    #expect(packs.openFile(PackFiles.Number(catalog: 2, pack: 9)) == nil)
    packs.forget([Self.names[1]])
    #expect(packs.openFile(number) == nil)
  }

  @Test("are opened anew once the catalog was rebuilt: a repair may have exchanged their files")
  func exchanged() throws {
    let catalog = Atomic<UInt64>(1)
    let packs = try packFiles { catalog.load(ordering: .relaxed) }
    func content() throws -> [UInt8]? { try packs.file(Self.names[0])?.read(byteCount: 9, at: 0) }
    let paths = Self.names.map { FilePath("/packs").appending($0.fileName) }
    #expect(try content() == [1])
    try disk.rename(paths[1], to: paths[0])
    #expect(try content() == [1])
    catalog.store(2, ordering: .relaxed)
    #expect(try content() == [2])
    try disk.rename(paths[2], to: paths[0])
    #expect(try content() == [2])
  }
}
