import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
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
    // The other process copies the same, and is about to sync that when this one copies.
    to.beforeSecondSync(of: process) { () throws(BlobStorageError) in
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

  @Test("is durable on return: all packs that it wrote, and what it dropped")
  func packs() throws {
    let (from, to) = (try Lab(seed: 1), try Lab(seed: 2))
    let (source, target) = (try from.open(), try to.open())
    for index in 0..<20 {
      _ = try source.put("\(index)", .data(noise(UInt64(index), 12_000)), PutOptions(durability: .relaxed))
    }
    _ = try source.put("gone", .data(noise(50, 100)), PutOptions(durability: .relaxed))
    for index in 0..<3 { _ = try target.put("own \(index)", .data(noise(60, 100)), PutOptions()) }
    let first = try Copier(from: source, to: target, CopyOptions()).run()
    #expect(first.newVersionCount == 21)
    try to.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let keys = try engine.keys("", after: nil, limit: 100)
      #expect(keys.count == 24)
      for index in 0..<20 {
        let data = try engine.data("\(index)", nil)
        #expect(data == noise(UInt64(index), 12_000))
      }
    }
    // What it drops alone, too.
    _ = try source.delete(["gone"], .durable)
    let second = try Copier(from: source, to: target, CopyOptions(isMirror: true, isForced: true)).run()
    #expect(second.newVersionCount == 0 && second.droppedVersionCount == 4)
    try to.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let keys = try engine.keys("", after: nil, limit: 100).map(\.key)
      #expect(keys.sorted() == (0..<20).map { "\($0)" }.sorted())
    }
  }

  @Test("is durable on return, also what another process has dropped there and not synced")
  func otherDrop() throws {
    let (from, to) = (try Lab(seed: 1), try Lab(seed: 2))
    let source = try from.open()
    let (target, other) = (try to.open(), try to.open())
    for index in 0..<2 { _ = try source.put("\(index)", .data(noise(UInt64(index), 3_000)), PutOptions()) }
    #expect(try Copier(from: source, to: target, CopyOptions()).run().newVersionCount == 2)
    _ = try source.delete(["0"], .durable)
    #expect(try other.delete(["0"], .relaxed) == 1)
    #expect(try Copier(from: source, to: target, CopyOptions()).run().droppedVersionCount == 0)
    try to.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let keys = try engine.keys("", after: nil, limit: 9).map(\.key)
      #expect(keys == ["1"])
    }
    withExtendedLifetime(other) {}
  }

  @Test("writes anew what lies in a pack that another process could not sync")
  func poisonedPack() throws {
    let from = try Lab(seed: 1)
    let source = try from.open()
    for index in 0..<5 {
      _ = try source.put("\(index)", .data(noise(UInt64(index), 3_000)), PutOptions(durability: .relaxed))
    }
    let to = try Lab(seed: 2)
    let target = try to.open()
    let process = to.disk.process()
    let other = try to.open(process)
    to.beforeSecondSync(of: process) { () throws(BlobStorageError) in
      throw BlobStorageError(.io, "The sync has failed.")
    }
    #expect(throws: BlobStorageError.self) { try Copier(from: source, to: other, CopyOptions()).run() }
    to.disk.beforeMutations(nil)
    #expect(try target.versions("0").count == 1, "it can be seen")
    let report = try Copier(from: source, to: target, CopyOptions()).run()
    #expect(report.newVersionCount == 5 && report.chunkCount > 0)
    try to.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      for index in 0..<5 {
        let data = try engine.data("\(index)", nil)
        #expect(data == noise(UInt64(index), 3_000))
      }
    }
  }

  @Test("is durable on return, also what this very process had put there, relaxed, before")
  func ownRelaxed() throws {
    let (from, to) = (try Lab(seed: 1), try Lab(seed: 2))
    let (source, target) = (try from.open(), try to.open())
    // More than a pack; the second is under way.
    for index in 0..<12 {
      _ = try target.put("\(index)", .data(noise(UInt64(index), 8_000)), PutOptions(durability: .relaxed))
    }
    // The source has them from the target, under the same IDs.
    #expect(try Copier(from: target, to: source, CopyOptions()).run().newVersionCount == 12)
    try to.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let data = try engine.data("11", nil)
      #expect(data == nil, "it is not on the medium by itself")
    }
    #expect(try Copier(from: source, to: target, CopyOptions()).run().unchangedVersionCount == 12)
    try to.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      for index in 0..<12 {
        let data = try engine.data("\(index)", nil)
        #expect(data == noise(UInt64(index), 8_000), "\(index)")
      }
    }
    // So is what was dropped there.
    _ = try source.delete(["0"], .durable)
    _ = try target.delete(["0"], .relaxed)
    #expect(try Copier(from: source, to: target, CopyOptions()).run().droppedVersionCount == 0)
    try to.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let keys = try engine.keys("", after: nil, limit: 100).map(\.key)
      #expect(keys.sorted() == (1..<12).map { "\($0)" }.sorted())
    }
  }
}
