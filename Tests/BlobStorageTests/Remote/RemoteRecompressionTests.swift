import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("Recompressing a store that machines share")
struct RemoteRecompressionTests {
  private static let options = GarbageCollectionOptions(
    minimumGarbageShare: 0, timeout: .seconds(0), recompresses: true)
  private let machines: SharedMachines

  init() throws { machines = try SharedMachines() }

  /// Documents under keys of their own, each similar to the next.
  private func fill(_ engine: Engine, _ random: inout SplitMix64) throws -> [String: [UInt8]] {
    let words = (0..<400).map { _ in String(random.next() % 100_000, radix: 36) }
    var expected: [String: [UInt8]] = [:]
    for number in 0..<12 {
      var lines = (0..<60).map { _ in
        (0..<8).map { _ in words[Int(random.next() % 20 * (random.next() % 20))] }.joined(separator: " ")
      }
      for version in 0..<3 {
        lines[Int(random.next() % 60)] = "version \(random.next())"
        let bytes = Array(lines.joined(separator: "\n").utf8)
        _ = try engine.put("\(number)", bytes, PutOptions(durability: .relaxed, replacement: .archiveCurrent))
        expected["\(number) \(version)"] = bytes
        _ = try engine.put("\(number) \(version)", bytes, .relaxed)
      }
      expected["\(number)"] = expected["\(number) 2"]
    }
    try engine.synchronize()
    return expected
  }

  private var packsByteCount: Int {
    machines.names("packs/").reduce(0) { $0 + (machines.store.objects[$1]?.count ?? 0) }
  }

  /// How many chunks have a base, and how many lie in frames.
  private func counts(_ engine: Engine) throws -> (based: Int, framed: Int) {
    var counts = (based: 0, framed: 0)
    try engine.extend()
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.forEachChunk { (_, row) in
        if row.base != nil { counts.based += 1 }
        if row.frameOffset != nil { counts.framed += 1 }
        return true
      }
    }
    return counts
  }

  @Test("joins versions and their bases, by what it says, and finds nothing to do a second time")
  func saves() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    let expected = try fill(one, &random)
    #expect(try counts(one).based > 20)
    let before = packsByteCount
    let objects = machines.store.objects
    var options = Self.options
    options.isDryRun = true
    let estimate = try one.collectGarbage(options)
    #expect(machines.store.objects == objects)
    let report = try one.collectGarbage(Self.options)
    #expect(report.obstacles == [])
    #expect(report.recompressedPackCount == 1 && estimate.recompressedPackCount == 1)
    #expect(report.recompressionSavedByteCount > Int64(before / 5))
    #expect(packsByteCount <= before - Int(report.recompressionSavedByteCount))
    let other = try machines.engine("two")
    let after = try counts(other)
    #expect(after.based == 0 && after.framed == 36)
    try machines.check(expected, "after recompressing")
    #expect(try other.collectGarbage(Self.options).recompressedPackCount == 0)
    // A version of a machine that knows of nothing else is encoded against what lies in a frame now.
    _ = try other.put("0", (expected["0"] ?? []) + Array("more".utf8), PutOptions())
    #expect(try counts(one).based == 1)
  }

  @Test("goes on beside a machine that puts what is being encoded anew")
  func besidePuts() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    let two = try machines.engine("two")
    let filled = try fill(one, &random)
    try two.extend()
    let once = Once()
    let report = try one.collectGarbage(Self.options) { progress in
      guard progress.phase == "waiting" else { return }
      once.run {
        // Once before it has seen the condemnation, and once after.
        _ = try two.put("before", filled["1 0"] ?? [], PutOptions())
        try two.extend()
        try two.acknowledgeCondemnation()
        _ = try two.put("after", filled["2 1"] ?? [], PutOptions())
      }
    }
    #expect(once.isDone && report.obstacles == [] && report.recompressedPackCount == 1)
    var expected = filled
    expected["before"] = filled["1 0"]
    expected["after"] = filled["2 1"]
    try machines.check(expected, "after recompressing")
    try two.extend()
    for (key, bytes) in expected { #expect(try two.data(key, nil) == Data(bytes), "\(key)") }
  }

  @Test("ends with its time, and the next run goes on")
  func timeLimit() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    let expected = try fill(one, &random)
    var options = Self.options
    options.timeLimit = .zero
    #expect(try one.collectGarbage(options).recompressedPackCount == 0)
    options.timeLimit = nil
    #expect(try machines.engine("two").collectGarbage(options).recompressedPackCount == 1)
    try machines.check(expected, "after the second run")
  }

  @Test("killed at each of its requests leaves a valid store, and the next run goes on")
  func killed() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    let expected = try fill(one, &random)
    let before = packsByteCount
    try machines.collectKilledAtEachRequest(Self.options, expected, byteCountMax: before * 3 / 4)
  }
}
