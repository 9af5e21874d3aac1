import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import SystemPackage
import Testing

/// A put that finds a base before its pack is condemned, and is committed after.
@Suite("A base that is found while garbage is collected", .serialized)
struct NewBaseTests {
  /// Text of digits: it compresses, and no two parts of it are alike.
  private static func digits(_ seed: UInt64, _ count: Int) -> Data {
    let letters = Array("0123456789abcdef".utf8)
    var data = Data(capacity: count + 1)
    for byte in noise(seed, (count + 1) / 2) {
      data.append(letters[Int(byte >> 4)])
      data.append(letters[Int(byte & 15)])
    }
    return data.prefix(count)
  }

  private static let options = StoreOptions(averageChunkByteCount: 4 << 10)

  /// The row of a chunk comes to have a base although its blob was marked before. When it is committed, the chunk that
  /// was marked lies in a condemned pack. The manifest lies in one that is not, so that it is not walked again.
  @Test("stays, and would be missed if it were not marked again")
  func found() throws {
    let data = Self.digits(1, 1_400_000)
    let near = try Self.near(data)
    for weaknesses in [[], Weaknesses.forgetsNewBases] {
      let lab = try Lab(Self.options)
      lab.packByteCountTarget = 8 << 20
      try lab.session { engine in
        _ = try engine.put("near", .data(near), PutOptions())
        _ = try engine.delete(["near"], .durable)
      }
      let path = try #require(try DamageTests.paths(lab).first)
      let process = lab.disk.process()
      let collecting = lab.disk.process()
      let put = PausedPut(try lab.open(process), "again", data, at: 1 << 20)
      lab.weaknesses = weaknesses
      let collector = try lab.open(collecting)
      lab.weaknesses = []
      let leaseCount = Mutex(0)
      lab.disk.beforeCalls { (call) throws(BlobStorageError) in
        if call.process == process.number, call.kind == .write, call.detail.contains("/leases/"),
          !call.detail.contains(" 0..<")
        {
          put.willHold()
        }
        guard call.process == collecting.number else { return }
        let isList = call.kind == .list && call.detail.contains("/leases")
        let count = leaseCount.withLock { count in
          if isList { count += 1 }
          return count
        }
        // Leases have been read a second time, and nothing is condemned yet.
        if count == 2, call.kind == .open, call.detail.hasPrefix(path.string) { put.hold() }
        // Leases are about to be read again.
        if isList, Self.hasCondemned(collector) { put.finish() }
      }
      // It has found its bases, and holds none of them.
      put.begin()
      let plain = PutOptions(codec: CodecKind.none)
      try lab.session { engine in
        _ = try engine.put("first", .data(data.prefix(1_300_000)), plain)
        _ = try engine.put("garbage", .data(noise(7, 3_000)), plain)
        _ = try engine.delete(["garbage"], .durable)
      }
      try lab.session { _ = try $0.put("whole", .data(data), plain) }
      let report = try collector.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.001))
      lab.disk.beforeCalls(nil)
      #expect(put.isDone && report.obstacles == [])
      let read = Result { try collector.data("again", nil) }
      if weaknesses.isEmpty {
        let found = try read.get()
        #expect(found == data)
        #expect(try BlobInformation.find(collector, "again", nil)?.basedChunkCount == 1)
      } else {
        #expect(throws: BlobStorageError.self) { try read.get() }
        Soak.count("mutations caught")
      }
      try collector.close()
    }
  }

  /// Whether packs are about to go.
  private static func hasCondemned(_ engine: Engine) -> Bool {
    let rows = try? engine.catalog.read { (transaction) throws(BlobStorageError) in try transaction.packRows()
    }
    return rows?.contains { $0.row.state == .condemned } ?? false
  }

  /// What resembles the first chunk of the data.
  private static func near(_ data: Data) throws -> Data {
    let lab = try Lab(options)
    var near = Data()
    try lab.session { engine in
      let digest = try engine.put("k", .data(data), PutOptions()).version.digest
      try engine.blobs.layout(digest)?.forEachChunk(in: 0..<1, from: engine.chunks) { placed in
        near = Data(data.prefix(placed.entry.plainByteCount))
        return false
      }
      for place in [near.count / 3, near.count / 2] { near[place] = UInt8(ascii: "x") }
      let put = try engine.put("near", .data(near), PutOptions())
      #expect(try engine.blobs.layout(put.version.digest)?.chunkCount == 1)
    }
    return near
  }
}

/// A put from a stream, on a thread of its own, that waits before it holds the first base, and before it ends.
private final class PausedPut: Sendable {
  private enum Step { case begun, fed, found, stored, finished }

  private let engine: Engine
  private let key: String
  private let data: Data
  private let byteCount: Int
  private let step = Mutex(Step.begun)
  private let reached = DispatchSemaphore(value: 0)
  private let goOn = DispatchSemaphore(value: 0)
  private let result = Mutex<Result<Void, any Error>?>(nil)

  init(_ engine: Engine, _ key: String, _ data: Data, at byteCount: Int) {
    self.engine = engine
    self.key = key
    self.data = data
    self.byteCount = byteCount
  }

  var isDone: Bool { if case .success = result.withLock({ $0 }) { true } else { false } }

  /// Goes on from one step to the next, if that is where it is.
  private func advance(_ from: Step, _ to: Step) -> Bool {
    step.withLock { step in
      guard step == from else { return false }
      step = to
      return true
    }
  }

  private func run() {
    let outcome = Result {
      _ = try engine.put(
        key,
        .stream({ [self] in
          if advance(.begun, .fed) { return data.prefix(byteCount) }
          guard advance(.found, .stored) else { return nil }
          // What was handed over has been stored, and is not committed.
          reached.signal()
          goOn.wait()
          return data.dropFirst(byteCount)
        }), PutOptions())
      try engine.close()
    }
    result.withLock { $0 = outcome }
    reached.signal()
  }

  /// Called when the put is about to write to its leases.
  func willHold() {
    guard advance(.fed, .found) else { return }
    reached.signal()
    goOn.wait()
  }

  func begin() {
    Thread { [self] in run() }.start()
    reached.wait()
  }

  /// Lets it hold its bases and store what it was given.
  func hold() {
    guard step.withLock({ $0 == .found }) else { return }
    goOn.signal()
    reached.wait()
  }

  func finish() {
    guard advance(.stored, .finished) else { return }
    goOn.signal()
    reached.wait()
  }
}
