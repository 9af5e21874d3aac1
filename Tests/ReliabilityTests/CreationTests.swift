import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// A store that is being made is there whole or can be made again.
@Suite("Making a store", .serialized)
struct CreationTests {
  static let path = "/some/new/store"

  static func environment(_ disk: SimulatedDisk, _ catalog: CatalogFolder) -> Engine.Environment {
    var environment = Engine.Environment()
    environment.files = disk.process()
    environment.catalogFolder = catalog.path
    environment.mapByteCount = 4 << 20
    environment.worksInline = true
    return environment
  }

  static func create(_ disk: SimulatedDisk) throws {
    try Engine.create(at: path, options: Lab.options, environment: environment(disk, try CatalogFolder()))
  }

  static func open(_ disk: SimulatedDisk) throws -> Engine {
    try Engine(
      path: path, configuration: StoreConfiguration(threadCount: 1),
      environment: environment(disk, try CatalogFolder()))
  }

  @Test("can be cut short at every call")
  func cutShort() throws {
    let whole = SimulatedDisk()
    try Self.create(whole)
    for number in 1...whole.mutationCount + 1 {
      let disk = SimulatedDisk()
      disk.stop(beforeMutation: number)
      let isDone = (try? Self.create(disk)) != nil
      disk.heal()
      disk.crash()
      for cut in [Cut.kill] + (0..<6).map({ .seed($0) }) + [.dropAll, .dropData, .dropNames] {
        let left = cut.isPower ? cut.apply(disk) : disk.copy()
        if isDone {
          #expect(throws: BlobStorageError.self) { try Self.create(left) }
        } else {
          do { try Self.create(left) } catch let error as BlobStorageError where error.code == .storeExists {}
        }
        let engine = try Self.open(left)
        _ = try engine.put("a", .data(noise(1, 2_000)), PutOptions())
        try engine.close()
        // Durable from the folder of the store up to the root.
        let reopened = try Self.open(left.powerCut())
        let data = try reopened.data("a", nil)
        #expect(data == noise(1, 2_000), "stopped before call \(number), \(cut)")
        try reopened.close()
        Soak.count("cuts while a store was made")
      }
    }
  }

  @Test("is completed for good when a copy of the store lacks the empty folder of packs")
  func copiedWithoutPacks() throws {
    let disk = SimulatedDisk()
    try Self.create(disk)
    let folder = FilePath(Self.path)
    try disk.removeDirectory(folder.appending("packs"))
    try disk.syncDirectory(folder)
    let engine = try Self.open(disk)
    _ = try engine.put("a", .data(noise(1, 2_000)), PutOptions())
    let left = disk.powerCut()
    try engine.close()
    let reopened = try Self.open(left)
    #expect(try reopened.data("a", nil) == noise(1, 2_000))
    #expect(try reopened.losses().isEmpty)
    try reopened.close()
  }
}
