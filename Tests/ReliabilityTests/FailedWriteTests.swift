import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// A write that fails may have landed: what it wrote is cut off, and the cutting off may be lost in a power cut.
@Suite("A put whose write failed after all of it had landed")
struct FailedWriteTests {
  @Test(
    "does not come back after a power cut, nor take the place of the next",
    arguments: [Durability.durable, .relaxed])
  func staysAway(before durability: Durability) throws {
    let lab = try Lab()
    let engine = try lab.open()
    _ = try engine.put("k", .data(noise(1, 500)), PutOptions(durability: durability))
    lab.disk.plan(Fault(.write, errno: .ioError, landingByteCount: 1 << 20))
    #expect(throws: BlobStorageError.self) { try engine.put("k", .data(noise(2, 500)), PutOptions()) }
    _ = try engine.put("k", .data(noise(3, 500)), PutOptions())
    // All stays that was written, and no file is as short as it was made.
    let kept = lab.disk.pendingChanges.filter { !$0.description.hasPrefix("make node") }.map(\.number)
    let after = try lab.afterPowerCut { disk in disk.powerCut(keeping: kept.map { ($0, .whole) }) }
    try after.session { engine in
      let data = try engine.data("k", nil)
      #expect(data == noise(3, 500))
      #expect(try engine.versions("k").count == 1)
    }
    try engine.close()
  }
}
