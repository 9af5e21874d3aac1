import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

@Suite("A copy into a folder")
struct CopySyncTests {
  @Test("is durable on return, also what another process has put there and not synced")
  func otherProcess() throws {
    let from = try Lab(seed: 1)
    let source = try from.open()
    for index in 0..<5 {
      _ = try source.put("\(index)", .data(noise(UInt64(index), 3_000)), PutOptions(durability: .relaxed))
    }
    let to = try Lab(seed: 2)
    let target = try to.open()
    let process = to.disk.process()
    let other = try to.open(process)
    let second = Mutex<(CopyReport, Lab)?>(nil)
    let syncCount = Mutex(0)
    // The other process copies the same. Its first sync is of its pack's header; it is about to sync the rest when this
    // one copies.
    to.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.process == process.number, call.kind == .synchronize, call.detail.contains("/packs/"),
        syncCount.withLock({ count in
          count += 1
          return count == 2
        })
      else { return }
      do {
        let report = try Copier(from: source, to: target, CopyOptions()).run()
        let after = try to.afterPowerCut { $0.powerCut(keeping: []) }
        second.withLock { $0 = (report, after) }
      } catch { throw BlobStorageError(.io, "\(error)") }
    }
    #expect(try Copier(from: source, to: other, CopyOptions()).run().newVersionCount == 5)
    to.disk.beforeMutations(nil)
    let (report, after) = try #require(second.withLock { $0 })
    #expect(report.unchangedVersionCount == 5, "what the other process has put is there")
    let opened = try after.open()
    for index in 0..<5 {
      #expect(try opened.data("\(index)", nil) == noise(UInt64(index), 3_000))
    }
  }
}
