import BlobStorage
import BlobStorageTransfer
import Foundation
import Synchronization
import SystemPackage
import Testing

/// The walk before an import: kept where there are few files, done once more where there are many.
@Suite("Import scan")
struct ImportScanTests {
  private final class Reports: Sendable {
    let all = Mutex<[WorkProgress]>([])
  }

  @Test("more files than are kept are imported and counted just the same", arguments: [0, 1, 7, 1_000])
  func many(_ sourceCountMax: Int) throws {
    let place = try StorePlace()
    let folder = place.temporary.path.appending("tree").string
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    for index in 0..<20 {
      try Data(repeating: UInt8(index), count: 100 + index).write(to: URL(filePath: "\(folder)/\(index)"))
    }
    try FileManager.default.createSymbolicLink(atPath: "\(folder)/link", withDestinationPath: "1")
    let engine = try place.engine()
    func run() throws -> (ImportReport, [WorkProgress]) {
      let reports = Reports()
      let report = try Importer(
        engine, ImportOptions(keepsAttributes: false),
        { progress in reports.all.withLock { $0.append(progress) } },
        sourceCountMax: sourceCountMax
      ).run([folder])
      return (report, reports.all.withLock { $0 })
    }
    let (first, told) = try run()
    #expect(first.newFileCount == 20)
    #expect(first.skipped.map(\.reason) == ["it is a symbolic link"])
    #expect(
      told.last
        == WorkProgress(
          phase: "syncing", doneByteCount: 2_190, totalByteCount: 2_190, doneCount: 20, totalCount: 20))
    try Data("changed".utf8).write(to: URL(filePath: "\(folder)/7"))
    let (second, toldAgain) = try run()
    #expect(second.unchangedFileCount == 19)
    #expect(second.newFileCount == 1)
    #expect(second.byteCount == 2_190 - 107 + 7)
    #expect(second.skipped.count == 1)
    for progress in toldAgain where progress.phase == "importing" {
      #expect(progress.totalCount == 20)
      #expect(progress.doneCount >= 19)
    }
    #expect(toldAgain.last?.doneCount == 20)
    try engine.close()
    withExtendedLifetime(place) {}
  }
}
