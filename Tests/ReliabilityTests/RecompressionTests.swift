import BlobStorage
import BlobStorageCache
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Encoding chunks once more makes packs smaller and changes nothing else.
@Suite("Recompression", .serialized)
struct RecompressionTests {
  private static let options = GarbageCollectionOptions(minimumGarbageShare: 0.25, recompresses: true)

  /// Text that a codec shrinks, and the more the harder it tries.
  static func text(_ seed: UInt64, _ byteCount: Int) -> Data {
    var random = SplitMix64(seed: seed)
    let words = (0..<700).map { _ in String(random.next() % 100_000, radix: 36) }
    var text = ""
    while text.utf8.count < byteCount {
      let (one, other) = (random.next() % 700, random.next() % 700)
      text += words[Int(one * other / 700)] + (random.next() % 9 == 0 ? "\n" : " ")
    }
    return Data(text.utf8.prefix(byteCount))
  }

  static let similar = StoreOptions(averageChunkByteCount: 16 << 10)

  private static func lab() throws -> Lab {
    let lab = try Lab(StoreOptions(averageChunkByteCount: 16 << 10, usesSimilarity: false))
    lab.packByteCountTarget = 96 << 10
    return lab
  }

  /// Rows of chunks that have a base, and of members of frames.
  private static func counts(_ engine: Engine) throws -> (based: Int, framed: Int) {
    var counts = (based: 0, framed: 0)
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.forEachChunk { (_, row) in
        if row.base != nil { counts.based += 1 }
        if row.frameOffset != nil { counts.framed += 1 }
        return true
      }
    }
    return counts
  }

  /// A store of several sealed packs.
  private static func filled() throws -> Lab {
    let lab = try lab()
    for seed in 0..<6 {
      try lab.session { try lab.put($0, [("text \(seed)", text(UInt64(seed), 150_000))]) }
    }
    try lab.session { try lab.put($0, [("noise", noise(1, 80_000))]) }
    return lab
  }

  private static func recordsByteCount(_ engine: Engine) throws -> Int64 {
    try packs(engine).reduce(0) { $0 + $1.appliedByteCount - Int64(PackHeader.byteCount) }
  }

  private static func packs(_ engine: Engine) throws -> [PackRow] {
    try engine.catalog.packRows().map(\.row)
  }

  @Test("makes packs smaller by what it says, keeps all versions, and finds nothing to do a second time")
  func saves() throws {
    let lab = try Self.filled()
    try lab.session { engine in
      let before = try Self.recordsByteCount(engine)
      let report = try engine.collectGarbage(Self.options)
      #expect(report.obstacles == [])
      #expect(report.recompressedPackCount >= 5)
      #expect(Double(report.recompressionSavedByteCount) > Double(before) * 0.02)
      #expect(report.freedByteCount == before - (try Self.recordsByteCount(engine)))
      let again = try engine.collectGarbage(Self.options)
      #expect(again.recompressedPackCount == 0 && again.recompressionSavedByteCount == 0)
    }
    try lab.checkInvariants(afterPowerCut: false)
  }

  @Test("joins small chunks that lie side by side; each is still read and collected by itself")
  func frames() throws {
    let lab = try Self.lab()
    let keys = (0..<30).map { "small \($0)" }
    try lab.session { engine in
      for (index, key) in keys.enumerated() { try lab.put(engine, [(key, Self.text(UInt64(index), 2_500))]) }
    }
    try lab.session { engine in
      #expect(try engine.collectGarbage(Self.options).recompressedPackCount > 0)
      #expect(try Self.counts(engine).framed == keys.count)
      try lab.delete(engine, Array(keys.prefix(10)))
      #expect(
        try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)).deletedChunkCount == 10)
      for (index, key) in keys.enumerated().dropFirst(10) {
        #expect(try engine.data(key, nil) == Self.text(UInt64(index), 2_500))
      }
    }
    try lab.checkInvariants(afterPowerCut: false)
  }

  @Test("joins versions with what they are encoded against, and none has a base any more")
  func bases() throws {
    let lab = try Lab(Self.similar)
    func version(_ key: Int, _ number: Int) -> Data {
      Self.text(UInt64(key), 2_000) + Self.text(UInt64(1_000 + key * 10 + number), 80)
        + Self.text(UInt64(key + 90), 500)
    }
    for number in 0..<4 {
      // The other keys lie between a version and the next.
      try lab.session { try lab.put($0, (0..<10).map { ("\($0)", version($0, number)) }, archives: true) }
    }
    try lab.session { engine in
      _ = try engine.collectGarbage(in: Set(try engine.catalog.packRows().map(\.number)))
      #expect(try Self.counts(engine).based == 30)
      let before = try Self.recordsByteCount(engine)
      let estimate = try engine.collectGarbage(GarbageCollectionOptions(isDryRun: true, recompresses: true))
      let report = try engine.collectGarbage(Self.options)
      #expect(report.obstacles == [] && report.recompressedPackCount == estimate.recompressedPackCount)
      #expect(report.recompressionSavedByteCount > before / 8)
      #expect(report.freedByteCount == before - (try Self.recordsByteCount(engine)))
      #expect(try Self.counts(engine) == (based: 0, framed: 40))
    }
    try lab.checkInvariants(afterPowerCut: false)
  }

  @Test("encodes a long chunk again against its base, which it keeps")
  func longBases() throws {
    let lab = try Lab(StoreOptions(averageChunkByteCount: 64 << 10))
    try lab.session { try lab.put($0, [("a", Self.text(1, 50_000) + Self.text(2, 10_000))], archives: true) }
    try lab.session { try lab.put($0, [("a", Self.text(1, 50_000) + Self.text(3, 10_000))], archives: true) }
    try lab.session { engine in
      var stored: [Int] = []
      func addStored() throws {
        try engine.catalog.read { (transaction) throws(BlobStorageError) in
          try transaction.forEachChunk { (_, row) in
            if row.base != nil { stored.append(row.storedByteCount) }
            return true
          }
        }
      }
      try addStored()
      #expect(try engine.collectGarbage(Self.options).recompressedPackCount > 0)
      try addStored()
      try #require(stored.count == 2)
      #expect(stored[1] < stored[0])
    }
    try lab.checkInvariants(afterPowerCut: false)
  }

  @Test("of which a dry run estimates the gain, and changes nothing")
  func estimate() throws {
    let lab = try Self.filled()
    try lab.session { engine in
      let before = try Self.packs(engine)
      let estimate = try engine.collectGarbage(GarbageCollectionOptions(isDryRun: true, recompresses: true))
      #expect(try Self.packs(engine) == before)
      let report = try engine.collectGarbage(Self.options)
      #expect(estimate.recompressedPackCount == report.recompressedPackCount)
      let share =
        Double(estimate.recompressionSavedByteCount) / Double(report.recompressionSavedByteCount)
      #expect((0.7...1.4).contains(share))
    }
  }

  @Test("takes the pack first that gains most, ends with its time, and goes on in the next run")
  func timeLimit() throws {
    let lab = try Self.lab()
    // The first pack is mostly noise.
    try lab.session { engine in
      try lab.put(engine, [("noise", noise(1, 80_000)), ("a", Self.text(1, 40_000))])
    }
    try lab.session { try lab.put($0, [("b", Self.text(2, 180_000))]) }
    try lab.session { engine in
      let first = try #require(try Self.packs(engine).min { $0.created < $1.created })
      func run(_ seconds: Double) throws -> GarbageCollectionReport {
        try engine.collectGarbage(GarbageCollectionOptions(recompresses: true, timeLimit: .seconds(seconds)))
        { progress in
          if progress.phase == "recompressing" { lab.clock.set(lab.clock.now + 10_000) }
        }
      }
      #expect(try run(0).recompressedPackCount == 0)
      #expect(try run(5).recompressedPackCount == 1)
      #expect(try Self.packs(engine).contains { $0.name == first.name })
      #expect(try run(5).recompressedPackCount == 1)
      #expect(try Self.packs(engine).contains { $0.name == first.name } == false)
      #expect(try run(5).recompressedPackCount == 0)
    }
    try lab.checkInvariants(afterPowerCut: false)
  }

  @Test("stops looking when its time is over, also where there is nothing left to gain")
  func lookingTime() throws {
    let lab = try Self.lab()
    // Packs of noise, and one that was recompressed.
    for seed in 0..<8 { try lab.session { try lab.put($0, [("\(seed)", noise(UInt64(seed), 30_000))]) } }
    try lab.session { try lab.put($0, [("text", Self.text(1, 30_000))]) }
    try lab.session { engine in
      _ = try engine.collectGarbage(Self.options)
      let packCount = try Self.packs(engine).count
      let lookCount = Mutex(0)
      func look(_ timeLimit: Duration?) throws -> Int {
        lookCount.withLock { $0 = 0 }
        let options = GarbageCollectionOptions(recompresses: true, timeLimit: timeLimit)
        let report = try engine.collectGarbage(options) { progress in
          guard progress.phase == "sampling" else { return }
          lookCount.withLock { $0 += 1 }
          lab.clock.set(lab.clock.now + 1_000)
        }
        #expect(report.recompressedPackCount == 0)
        return lookCount.withLock { $0 }
      }
      try #require(packCount == 9)
      #expect(try look(nil) == packCount)
      #expect(try look(.seconds(2.5)) == 3)
    }
  }

  @Test("reports its progress within a round, up to the end")
  func progress() throws {
    let lab = try Lab(StoreOptions(averageChunkByteCount: 64 << 10, usesSimilarity: false))
    lab.packByteCountTarget = 64 << 20
    // One pack, so one round. Its frames are full at 2 MiB.
    try lab.session { try lab.put($0, [("a", Self.text(1, 2 << 20)), ("b", Self.text(2, 1 << 20))]) }
    try lab.session { engine in
      let byteCount = try #require(try Self.packs(engine).first).recordsByteCount
      let reported = Mutex<[WorkProgress]>([])
      let report = try engine.collectGarbage(Self.options) { progress in
        if progress.phase == "recompressing" { reported.withLock { $0.append(progress) } }
      }
      #expect(report.recompressedPackCount == 1)
      let counts = reported.withLock { $0.map(\.doneByteCount) }
      #expect(counts == counts.sorted())
      #expect(counts.first == 0 && counts.last == byteCount)
      #expect(counts.filter { (1..<byteCount).contains($0) }.count >= 1, "\(counts)")
      #expect(reported.withLock { $0.allSatisfy { $0.totalByteCount == byteCount } })
    }
  }

  @Test("leaves the empty blob out of frames")
  func emptyBlob() throws {
    let lab = try Self.lab()
    try lab.session { engine in
      for number in 0..<4 { try lab.put(engine, [("\(number)", Self.text(UInt64(number), 3_000))]) }
      try lab.put(engine, [("empty", Data())])
      for number in 4..<8 { try lab.put(engine, [("\(number)", Self.text(UInt64(number), 3_000))]) }
    }
    try lab.session { engine in
      let report = try engine.collectGarbage(Self.options)
      #expect(report.recompressedPackCount == 1)
      #expect(try Self.counts(engine).framed == 8)
      #expect(try engine.verify(.blobs).damaged == [])
    }
    try lab.checkInvariants(afterPowerCut: false)
  }

  @Test("never makes the packs larger", arguments: UInt64(0)..<12)
  func neverLarger(_ seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    func pick<T>(_ values: [T]) -> T { values[Int(random.next() % UInt64(values.count))] }
    let lab = try Lab(
      StoreOptions(
        averageChunkByteCount: pick([1, 4, 16, 64]) << 10, level: pick([CodecLevel.default, .fast, .max]),
        usesSimilarity: pick([true, false])))
    lab.packByteCountTarget = pick([24, 96, 512]) << 10
    for session in 0..<3 {
      try lab.session { engine in
        for number in 0..<6 {
          let content = { (seed: UInt64) -> Data in
            let (byteCount, isNoise) = (pick([0, 90, 1_500, 9_000, 40_000]), pick([true, false, false]))
            return isNoise
              ? noise(seed, byteCount) : Self.text(seed % 5, byteCount) + noise(seed, byteCount / 50)
          }
          switch pick([0, 1, 2, 2]) {
          case 0: try lab.put(engine, (0..<8).map { ("\(session) \(number) \($0)", content(random.next())) })
          case 1: try lab.put(engine, [("\(number)", content(random.next()))], streamed: true)
          default: try lab.put(engine, [("\(number)", content(random.next()))], archives: true)
          }
        }
      }
    }
    try lab.session { engine in
      // Then no garbage goes that would hide what a pack gains.
      for _ in 0..<2 { _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)) }
      let before = try Self.fileByteCount(lab)
      let report = try engine.collectGarbage(
        GarbageCollectionOptions(minimumGarbageShare: 1, recompresses: true))
      let after = try Self.fileByteCount(lab)
      #expect(after <= before, "\(report)")
    }
    try lab.checkInvariants(afterPowerCut: false)
  }

  /// Bytes of all packs, footers included.
  private static func fileByteCount(_ lab: Lab) throws -> Int {
    try DamageTests.paths(lab).reduce(0) { $0 + (try DamageTests.bytes(lab, $1).count) }
  }

  @Test("leaves a pack with a damaged record as it is, and says why")
  func damage() throws {
    let lab = try Self.lab()
    try lab.session { try lab.put($0, [("a", Self.text(1, 60_000)), ("b", Self.text(2, 60_000))]) }
    let path = try #require(try DamageTests.paths(lab).first)
    try lab.session { try lab.put($0, [("whole", Self.text(3, 60_000))]) }
    try DamageTests.change(lab, path) { $0[400] ^= 1 }
    try lab.session { engine in
      for isDryRun in [true, false] {
        let report = try engine.collectGarbage(
          GarbageCollectionOptions(isDryRun: isDryRun, minimumGarbageShare: 0.25, recompresses: true))
        #expect(report.recompressedPackCount == 1)
        let name = try #require(path.lastComponent?.stem)
        try #require(report.obstacles.count == 1)
        #expect(report.obstacles[0].message.contains("in pack \(name) at "))
        #expect(report.obstacles[0].message.hasSuffix(": run verify."))
      }
      #expect(try engine.data("b", nil) == Self.text(2, 60_000))
    }
    #expect(try DamageTests.paths(lab).contains(path))
  }

  @Test("names a pack that the medium cannot read: nothing of it looks as if it had nothing to gain")
  func unreadable() throws {
    let lab = try Self.lab()
    // Chunks alone, so that marking reads no pack.
    try lab.session { engine in
      for number in 0..<8 { try lab.put(engine, [("\(number)", Self.text(UInt64(number), 3_000))]) }
    }
    let path = try #require(try DamageTests.paths(lab).first)
    let name = try #require(path.lastComponent?.stem)
    try lab.session { engine in
      try DamageTests.breakMedium(lab, path, 0..<1 << 40)
      defer { lab.disk.beforeCalls(nil) }
      let report = try engine.collectGarbage(Self.options)
      #expect(report.recompressedPackCount == 0)
      #expect(report.obstacles.map(\.pack) == [name])
    }
  }

  @Test("takes nothing for garbage that the medium could not read only while it was marked")
  func unreadableWhileMarked() throws {
    let lab = try Self.lab()
    let data = noise(1, 900)
    try lab.session { try lab.put($0, [("a", data)]) }
    let path = try #require(try DamageTests.paths(lab).first)
    let file = try #require(path.lastComponent?.string)
    try lab.session { engine in
      // As in a cache: then only the packs of a round are marked.
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        try transaction.beginCountingVersions()
      }
      let openCount = Mutex(0)
      lab.disk.beforeCalls { (call) throws(BlobStorageError) in
        guard call.detail.contains(file) else { return }
        if call.kind == .open { openCount.withLock { $0 += 1 } }
        // The first and the fourth scan mark; the two behind each of them say what the pack has.
        guard call.kind == .read, [1, 4].contains(openCount.withLock { $0 }) else { return }
        throw .systemCall("read", path: path, errno: Errno.ioError.rawValue)
      }
      let report = try engine.collectGarbage(in: Set(try engine.catalog.packRows().map(\.number)))
      lab.disk.beforeCalls(nil)
      #expect(report.obstacles.map(\.code) == [.unreadable])
      let read = try engine.data("a", nil)
      #expect(read == data)
    }
  }
}
