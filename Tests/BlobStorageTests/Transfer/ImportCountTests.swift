import BlobStorage
import BlobStorageTransfer
import Foundation
import Synchronization
import SystemPackage
import Testing

/// What an import says of how much is left.
@Suite("Import count")
struct ImportCountTests {
  private final class Reports: Sendable {
    let all = Mutex<[WorkProgress]>([])
  }

  /// Imports a folder with 20 files and a link, and returns the report and what was told.
  private static func run(
    _ engine: Engine, _ folder: String, _ options: ImportOptions, delaySeconds: Double
  ) throws -> (ImportReport, [WorkProgress]) {
    let reports = Reports()
    // Each file takes a while, so that there is time to count.
    var options = options
    options.maximumByteRate = 2_000
    let report = try Importer(
      engine, options, { progress in reports.all.withLock { $0.append(progress) } },
      countingDelaySeconds: delaySeconds
    ).run([folder])
    return (report, reports.all.withLock { $0 })
  }

  @Test(
    "all files and links are counted beside the import, whether they are stored or not, and at the end all are done",
    arguments: [true, false])
  func counted(_ keepsAttributes: Bool) throws {
    let place = try StorePlace()
    let folder = place.temporary.path.appending("tree").string
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    for index in 0..<20 {
      try Data(repeating: UInt8(index), count: 100 + index).write(to: URL(filePath: "\(folder)/\(index)"))
    }
    try FileManager.default.createSymbolicLink(atPath: "\(folder)/link", withDestinationPath: "1")
    let engine = try place.engine()
    let options = ImportOptions(keepsAttributes: keepsAttributes)
    let (count, byteCount): (Int, Int64) = keepsAttributes ? (21, 2_191) : (20, 2_190)
    let (first, told) = try Self.run(engine, folder, options, delaySeconds: 0)
    #expect(first.newFileCount == 20)
    #expect(first.skipped.map(\.reason) == (keepsAttributes ? [] : ["it is a symbolic link"]))
    for progress in told where progress.totalCount > 0 {
      #expect(progress.totalCount == count && progress.totalByteCount == byteCount)
    }
    #expect(told.contains { $0.phase == "importing" && $0.totalCount > 0 })
    #expect(
      told.last
        == WorkProgress(
          phase: "syncing", doneByteCount: byteCount, totalByteCount: byteCount, doneCount: count,
          totalCount: count))
    try Data("changed".utf8).write(to: URL(filePath: "\(folder)/7"))
    let (second, toldAgain) = try Self.run(engine, folder, options, delaySeconds: 0)
    #expect(second.unchangedFileCount == 19 && second.newFileCount == 1)
    #expect(second.byteCount == 2_190 - 107 + 7)
    #expect(toldAgain.last?.doneCount == count && toldAgain.last?.totalCount == count)
    try engine.close()
    withExtendedLifetime(place) {}
  }

  @Test("what ends before it would be counted is not counted, and says at the end that all is done")
  func short() throws {
    let place = try StorePlace()
    let folder = place.temporary.path.appending("tree").string
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try Data("file".utf8).write(to: URL(filePath: "\(folder)/a"))
    let engine = try place.engine()
    let (_, told) = try Self.run(engine, folder, ImportOptions(), delaySeconds: 3_600)
    #expect(told.filter { $0.phase == "importing" }.allSatisfy { $0.totalCount == 0 })
    #expect(
      told.last
        == WorkProgress(phase: "syncing", doneByteCount: 4, totalByteCount: 4, doneCount: 1, totalCount: 1))
    try engine.close()
    withExtendedLifetime(place) {}
  }
}
