import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// A commit goes into one pack, and the pack's footer has to list all of it.
@Suite("A commit of very many records", .serialized)
struct LargeCommitTests {
  @Test("is refused before a footer could become too long, and the writer goes on")
  func refused() throws {
    let lab = try Lab()
    let engine = try lab.open()
    // The footer repeats drops whole.
    let stamp = Stamp(time: 1, writer: 1)
    let drop = DropRecord(
      key: [0x61], stamp: stamp, versions: Array(repeating: stamp, count: BlobLimits.dropVersionCountMax))
    var listedByteCount: Int64 = 0
    let error = #expect(throws: BlobStorageError.self) {
      try engine.writer.commit { (commit) throws(BlobStorageError) in
        while true {
          listedByteCount += Int64(try commit.append(.drop(drop)))
        }
      }
    }
    #expect(error?.code == .limitExceeded)
    // The pack may be nearly full before, of records that its footer repeats as a whole.
    #expect(listedByteCount + BlobLimits.packByteCountTarget < BlobLimits.footerByteCountMax)
    _ = try engine.put("a", .data(noise(1, 500)), PutOptions())
    try engine.close()
    let after = try lab.afterPowerCut { $0.powerCut() }
    try after.session { engine in
      let keys = try engine.keys("", after: nil, limit: 10).map(\.key)
      #expect(keys == ["a"])
    }
  }

  /// Fails if only commits end packs: what failed puts have appended stays in the pack.
  @Test("is not needed to end a pack to which only puts append that fail")
  func failedPuts() throws {
    let lab = try Lab()
    let engine = try lab.open()
    for number in 0..<6 {
      let data = noise(UInt64(number), 1_200_000)
      let isRead = Mutex(false)
      let error = #expect(throws: BlobStorageError.self) {
        try engine.put(
          "k",
          .stream({
            if isRead.withLock({ $0.exchange(true) }) { throw Broken("the source") }
            return data
          }), PutOptions())
      }
      #expect(error?.code == .sourceFailed)
    }
    _ = try engine.put("k", .data(noise(9, 100)), PutOptions())
    let rows = try engine.catalog.packRows().map(\.row)
    #expect(rows.count > 2 && rows.allSatisfy { $0.appliedByteCount < 3 << 20 }, "\(rows)")
    try engine.close()
    try lab.session { engine in
      let data = try engine.data("k", nil)
      #expect(data == noise(9, 100))
    }
  }

  @Test("or many small ones end a pack, which is whole, at a number of records")
  func recordCount() throws {
    let lab = try Lab()
    var environment = lab.environment(lab.disk.process())
    environment.packRecordCountTarget = 50
    let engine = try Engine(
      path: Lab.storePath, configuration: StoreConfiguration(threadCount: 1), environment: environment)
    // Two records each.
    for number in 0..<100 {
      _ = try engine.put("k\(number)", .data(noise(UInt64(number), 40)), PutOptions(durability: .relaxed))
    }
    _ = try engine.delete((0..<50).map { "k\($0)" }, .durable)
    try engine.close()
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { engine in
        let rows = try engine.catalog.packRows().map(\.row)
        #expect(rows.count >= 4 && rows.allSatisfy { $0.recordCount <= 100 }, "\(rows.map(\.recordCount))")
        for row in rows {
          let scanned = try engine.packs.scan(row.name) { _ in }
          #expect(scanned?.isSealed == true && scanned?.gaps == [])
        }
        let damaged = try engine.verify().damaged
        #expect(damaged == [])
        let keys = try engine.keys("", after: nil, limit: 200).map(\.key)
        #expect(Set(keys) == Set((50..<100).map { "k\($0)" }))
      }
    }
  }

  @Test("stores all or nothing", .enabled(if: Soak.isOn), arguments: [800_000, 1_700_000])
  func tinyItems(count: Int) throws {
    let folder = FilePath(FileManager.default.temporaryDirectory.path)
      .appending("blobstorage-large-\(String(randomUInt64(), radix: 16))")
    defer { try? FileManager.default.removeItem(atPath: folder.string) }
    try Engine.create(at: folder.string, options: StoreOptions())
    func open() throws -> Engine { try Engine(path: folder.string, configuration: StoreConfiguration()) }
    var engine = try open()
    let items = (0..<count).map { PutItem(key: "item \($0)", data: Data("\($0)".utf8)) }
    var isStored = true
    do { _ = try engine.put(items, PutOptions()) } catch {
      print("\(count) items: \(error)")
      #expect(error.code == .limitExceeded)
      isStored = false
    }
    _ = try engine.put("last", .data(Data([1])), PutOptions())
    try engine.close()
    try FileManager.default.removeItem(atPath: folder.appending("catalog").string)
    engine = try open()
    let report = try engine.verify()
    #expect(report.damaged.isEmpty)
    let statistics = try engine.statistics()
    #expect(statistics.keyCount == (isStored ? count : 0) + 1)
    try engine.close()
    // A pack that is sealed is not written to again.
    for name in try SystemFiles().list(folder.appending("packs")) {
      let file = try SystemFiles().open(folder.appending("packs").appending(name), .read)
      let byteCount = try file.status().byteCount
      var end = [UInt8](repeating: 0, count: PackFooter.Trailer.byteCount)
      let offset = byteCount - Int64(end.count)
      _ = try end.withUnsafeMutableBytes { try file.read(into: $0, at: offset) }
      let trailer = end.withUnsafeBytes { bytes in
        PackName(fileName: name).flatMap { PackFooter.Trailer(bytes, name: $0, packByteCount: byteCount) }
      }
      #expect(trailer != nil, "\(name) has no valid footer")
    }
  }
}
