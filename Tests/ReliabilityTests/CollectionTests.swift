import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

#if canImport(Glibc)
  import Glibc
#endif

/// What a collection must keep, each by itself, and what it costs.
@Suite("A collection", .serialized)
struct CollectionTests {
  private static let everything = GarbageCollectionOptions(minimumGarbageShare: 0)

  @Test(
    "that comes while a reader is about to write its lease leaves what the reader finds after it",
    arguments: [false, true], [false, true])
  func besideOpening(isReplaced: Bool, isHistory: Bool) throws {
    let lab = try Lab()
    try lab.session { _ = try $0.put("k", .data(noise(1, 5_000)), PutOptions()) }
    let process = lab.disk.process()
    let (reader, other) = (try lab.open(process), try lab.open())
    let isDone = Mutex(false)
    lab.disk.beforeCalls { (call) throws(BlobStorageError) in
      guard call.process == process.number, call.kind == .write, call.detail.contains("/leases/"),
        !call.detail.contains(" 0..<"), !isDone.withLock({ $0 })
      else { return }
      isDone.withLock { $0 = true }
      if isReplaced {
        _ = try other.put("k", .data(noise(2, 3_000)), PutOptions())
      } else {
        _ = try other.delete(["k"], .durable)
      }
      _ = try other.collectGarbage(Self.everything)
    }
    let blob = isHistory ? nil : try reader.openBlob("k", nil)
    let history = isHistory ? try reader.holdVersions("k") : nil
    lab.disk.beforeCalls(nil)
    #expect(isDone.withLock { $0 })
    // What is open is held from then on.
    _ = try other.delete(["k"], .durable)
    #expect(try other.collectGarbage(Self.everything).deletedChunkCount == 0)
    if isHistory {
      let versions = try #require(history).versions
      #expect(versions.map(\.byteCount) == (isReplaced ? [3_000] : []))
      for version in versions {
        let data = try reader.data(version.digest)
        #expect(data == noise(2, 3_000))
      }
    } else {
      let read = try blob.map { try Data($0.read(0..<5_000)) }
      #expect(read == (isReplaced ? noise(2, 3_000) : nil))
    }
    blob?.close()
    history?.close()
    for engine in [reader, other] { try engine.close() }
  }

  @Test(
    "keeps what readers hold that opened between any two of its looks at leases, or in a look that had read theirs",
    arguments: [false, true])
  func laterLeases(isLeaseRead: Bool) throws {
    let lab = try Lab()
    let keys = (0..<8).map { "k\($0)" }
    // Garbage, until it is put again between marking and condemning.
    try lab.session { engine in
      for (index, key) in keys.enumerated() { try lab.put(engine, [(key, noise(UInt64(index), 3_000))]) }
      try lab.put(engine, [("held", noise(100, 3_000))])
    }
    try lab.session { try lab.delete($0, keys) }
    // Leases are read in the order of their writers.
    let readers = [try lab.open(), try lab.open()].sorted { $0.writer.writerID < $1.writer.writerID }
    let (reader, lastLease) = (readers[0], "\(Hex.text(readers[1].writer.writerID)).lease")
    let process = lab.disk.process()
    let collector = try lab.open(process)
    // Leases that are there in any case, so that each look makes calls after it has listed them.
    let held = try readers.map { try #require(try $0.openBlob("held", nil)) }
    let isMarked = Mutex(false)
    let isListed = Mutex(false)
    let opened = Mutex<[OpenBlob]>([])
    lab.disk.beforeCalls { [weak lab] (call) throws(BlobStorageError) in
      guard let lab, call.process == process.number, isMarked.withLock({ $0 }) else { return }
      let wasListed = isListed.withLock { isListed in
        defer { isListed = call.kind == .list && call.detail.contains("/leases") }
        return isListed
      }
      let isLast = call.kind == .open && call.detail.contains(lastLease)
      let count = opened.withLock { $0.count }
      guard isLeaseRead ? isLast : wasListed, count < keys.count,
        let blob = try reader.openBlob(keys[count], nil)
      else { return }
      opened.withLock { $0.append(blob) }
      do { try lab.session { try lab.delete($0, [keys[count]]) } } catch {
        throw BlobStorageError(.io, "\(error)")
      }
    }
    _ = try collector.collectGarbage(Self.everything) { progress in
      guard progress.phase == "rebasing", !isMarked.withLock({ $0 }) else { return }
      isMarked.withLock { $0 = true }
      try? lab.session { engine in
        for (index, key) in keys.enumerated() { try lab.put(engine, [(key, noise(UInt64(index), 3_000))]) }
      }
    }
    lab.disk.beforeCalls(nil)
    let blobs = opened.withLock { $0 }
    #expect(blobs.count >= 2, "two looks or more while keys are there")
    for (index, blob) in blobs.enumerated() {
      let read = Result { Data(try blob.read(0..<3_000)) }
      let data = try? read.get()
      #expect(data == noise(UInt64(index), 3_000), "the reader that opened after look \(index): \(read)")
      blob.close()
    }
    for blob in held { blob.close() }
    for reader in readers { try reader.close() }
    try collector.close()
    try lab.checkInvariants(afterPowerCut: false)
  }

  @Test("keeps the packs of a put that is not finished, from the first on")
  func unfinishedPut() throws {
    let lab = try Lab()
    let data = noise(1, 3_300_000)
    let (writer, collector) = (try lab.open(), try lab.open())
    let (halted, goOn, ended) = (
      DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0)
    )
    let outcome = Mutex<String?>(nil)
    let rest = Mutex(data)
    let thread = Thread {
      do {
        _ = try writer.put(
          "long",
          .stream({
            let count = rest.withLock { $0.count }
            // A commit of its process takes along what is pending, and seals what is full.
            if count % 1_100_000 == 0 { _ = try writer.put("short", .data(noise(2, 100)), PutOptions()) }
            if count == 100_000 {
              halted.signal()
              goOn.wait()
            }
            return rest.withLock { rest in
              defer { rest = rest.dropFirst(100_000) }
              return rest.isEmpty ? nil : Data(rest.prefix(100_000))
            }
          }), PutOptions())
      } catch { outcome.withLock { $0 = "\(error)" } }
      ended.signal()
    }
    thread.start()
    halted.wait()
    let sealed = try collector.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.packRows().filter(\.row.isSealed).count
    }
    #expect(sealed >= 2)
    for _ in 1...2 {
      let report = try collector.collectGarbage(Self.everything)
      #expect(report.deletedPackCount == 0 && report.obstacles.isEmpty)
    }
    goOn.signal()
    ended.wait()
    #expect(outcome.withLock { $0 } == nil)
    let read = try collector.data("long", nil)
    #expect(read == data)
    try writer.close()
    try collector.close()
  }

  @Test("keeps a tombstone in place of a ref that dies, while an older pack has what the ref replaced")
  func dyingRef() throws {
    let lab = try Lab()
    // Stays: little of it is garbage.
    try lab.session { engine in
      try lab.put(engine, [("a", noise(1, 100))])
      try lab.put(engine, [("big", noise(2, 60_000))])
    }
    // Goes: the ref in it, which replaced the first, was replaced itself.
    try lab.session { engine in
      try lab.put(engine, [("a", noise(3, 100))])
      try lab.put(engine, [("other", noise(4, 20_000))])
    }
    try lab.session { engine in
      try lab.put(engine, [("a", noise(5, 100))])
      try lab.delete(engine, ["other"])
      let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.5))
      #expect(report.deletedPackCount + report.compactedPackCount == 1)
    }
    try lab.forgetCatalog()
    try lab.session { engine in
      let (found, versions) = (try lab.observed(engine), try engine.versions("a"))
      #expect(found == lab.model.state)
      #expect(versions.count == 1)
    }
  }

  @Test("copies what hides a version while an older pack has that", arguments: ["replaced", "deleted"])
  func hiding(_ what: String) throws {
    let lab = try Lab()
    // Stays: little of it is garbage.
    try lab.session { engine in
      try lab.put(engine, [("a", noise(1, 100))])
      try lab.put(engine, [("b", noise(2, 20_000))])
    }
    // Is compacted.
    try lab.session { engine in
      if what == "replaced" {
        try lab.put(engine, [("a", noise(3, 100))])
      } else {
        try lab.delete(engine, ["a"])
      }
      try lab.put(engine, [("other", noise(4, 20_000))])
    }
    try lab.session { engine in
      try lab.delete(engine, ["other"])
      let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.5))
      #expect(report.compactedPackCount == 1 && report.deletedPackCount == 0)
    }
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { engine in
        let found = try lab.observed(engine)
        #expect(found == lab.model.state, "forgotten: \(forgets)")
      }
    }
  }

  @Test(
    "removes nothing while a pack is in use whose sync has failed, and goes on when it has been opened anew")
  func failedSync() throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 3_000))]) }
    let writer = try lab.open()
    // The old version is garbage by what is in the pack under way, and that may not be on the medium.
    _ = try writer.put("a", .data(noise(2, 3_000)), .relaxed)
    lab.disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(throws: BlobStorageError.self) { try writer.put("b", .data(noise(3, 300)), PutOptions()) }
    let collector = try lab.open()
    let packs = FilePath("\(Lab.storePath)/packs")
    let before = try lab.disk.list(packs)
    let error = #expect(throws: BlobStorageError.self) { try collector.collectGarbage(Self.everything) }
    #expect(error?.code == .busy)
    #expect(try Set(before).isSubset(of: lab.disk.list(packs)))
    #expect(throws: BlobStorageError.self) { try writer.close() }
    try collector.close()
    let again = try lab.open()
    let after = try again.collectGarbage(Self.everything)
    #expect(after.obstacles == [])
    #expect(try again.data("a", nil) == noise(2, 3_000))
    try again.close()
  }

  @Test("drops no archived version while it would be turned away for such a pack, and all of them afterwards")
  func failedSyncBeforeDropping() throws {
    let lab = try Lab()
    for number in 1...3 as ClosedRange<UInt64> {
      try lab.session { try lab.put($0, [("a", noise(number, 300))], archives: true) }
    }
    let writer = try lab.open()
    _ = try writer.put("b", .data(noise(4, 300)), .relaxed)
    lab.disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(throws: BlobStorageError.self) { try writer.put("c", .data(noise(5, 300)), PutOptions()) }
    let options = GarbageCollectionOptions(archivedVersionLimit: 0, minimumGarbageShare: 0)
    let collector = try lab.open()
    let error = #expect(throws: BlobStorageError.self) { try collector.collectGarbage(options) }
    #expect(error?.code == .busy)
    let kept = try collector.versions("a")
    #expect(kept.count == 3)
    #expect(throws: BlobStorageError.self) { try writer.close() }
    try collector.close()
    try lab.session { engine in
      let report = try engine.collectGarbage(options)
      let (versions, data) = (try engine.versions("a"), try engine.data("a", nil))
      #expect(report.obstacles == [] && versions.count == 1 && data == noise(3, 300))
    }
  }

  @Test(
    "takes a retired pack's file away before its records, where there is no room for any change before",
    arguments: [false, true])
  func noRoomForCatalog(isKilledBetween: Bool) throws {
    let lab = try Lab()
    for key in ["garbage", "kept"] { try lab.session { try lab.put($0, [(key, noise(1, 3_000))]) } }
    try lab.session { try lab.put($0, [("garbage", noise(2, 3_000))]) }
    try lab.session { try lab.delete($0, ["garbage"]) }
    // A collection that is killed once it has retired packs.
    let killed = try lab.open()
    lab.disk.beforeCalls { (call) throws(BlobStorageError) in
      if call.kind == .open, call.detail.contains(".gone") { throw .simulatedStop }
    }
    #expect(throws: BlobStorageError.self) { try killed.collectGarbage(Self.everything) }
    lab.restart(with: try CatalogFolder(copyOf: lab.catalog))
    withExtendedLifetime(killed) {}
    // Leaves the catalog clean: its next change needs another file.
    try lab.session { _ in }
    let packs = FilePath("\(Lab.storePath)/packs")
    @Sendable func retired() throws -> [String] { try lab.disk.list(packs).filter { $0.hasSuffix(".gone") } }
    let count = try retired().count
    #expect(count > 0)
    let refusalCount = Mutex(0)
    var environment = lab.environment(lab.disk.process())
    environment.catalogFiles = FullFiles {
      guard (try? retired().count) == count else { return false }
      refusalCount.withLock { $0 += 1 }
      return true
    }
    let engine = try Engine(
      path: Lab.storePath, configuration: StoreConfiguration(threadCount: 1), environment: environment)
    if isKilledBetween {
      lab.disk.afterMutations { (call) throws(BlobStorageError) in
        if call.kind == .remove, call.detail.contains(".gone") { throw .simulatedStop }
      }
      let error = #expect(throws: BlobStorageError.self) { try engine.collectGarbage(Self.everything) }
      #expect(error?.code == .simulatedStop)
      lab.restart(with: try CatalogFolder(copyOf: lab.catalog))
      withExtendedLifetime(engine) {}
    } else {
      let report = try engine.collectGarbage(Self.everything)
      #expect(report.obstacles == [])
      #expect(try retired() == [])
      try engine.close()
    }
    #expect(refusalCount.withLock { $0 } > 0, "there was room in any case")
    try lab.session { engine in
      let report = try engine.collectGarbage(Self.everything)
      #expect(report.obstacles == [])
      let rows = try engine.packRows()
      #expect(rows.allSatisfy { $0.state != .retired })
      let (found, files) = (try lab.observed(engine), try lab.disk.list(packs))
      #expect(found == lab.model.state)
      #expect(files.count == rows.count)
    }
    try lab.checkInvariants(afterPowerCut: false)
  }

  @Test("keeps the metadata of versions that it copies")
  func metadata() throws {
    let lab = try Lab()
    let options = PutOptions(metadata: Array("of the first".utf8))
    try lab.session { engine in
      _ = try engine.put("a", .data(noise(1, 500)), options)
      _ = try engine.put("garbage", .data(noise(2, 5_000)), PutOptions())
      _ = try engine.delete(["garbage"], .durable)
    }
    try lab.session { engine in
      let report = try engine.collectGarbage(Self.everything)
      #expect(report.compactedPackCount == 1)
    }
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { engine in
        let version = try engine.version("a", nil)
        #expect(version?.metadata == options.metadata, "forgotten: \(forgets)")
      }
    }
  }

  @Test(
    "removes nothing while something is missing that a version needs", arguments: ["blob", "chunk", "list"])
  func missing(_ what: String) throws {
    let lab = try Lab()
    let absent = ChunkEntry(digest: BlobDigest.of(Array("absent".utf8)), plainByteCount: 6)
    let blob = BlobDigest.of(Array("a blob".utf8))
    var payload = ByteWriter()
    switch what {
    case "blob": break
    case "chunk": for _ in 0..<2 { absent.encode(into: &payload) }
    default:
      for _ in 0..<2 {
        ListEntry(digest: absent.digest, chunkCount: 1, spanByteCount: 6).encode(into: &payload)
      }
    }
    var records = [HostileTests.ref("k", blob, byteCount: 12)]
    if what != "blob" {
      let manifest = ManifestRecord(
        digest: blob, byteCount: 12, chunkCount: 2, depth: what == "list" ? 1 : 0, listedCount: 2)
      records.append((.manifest(manifest), payload.bytes))
    }
    try HostileTests.plant(lab, 1, records)
    try lab.session { try lab.put($0, [("garbage", noise(1, 3_000))]) }
    try lab.session { engine in
      try lab.delete(engine, ["garbage"])
      let before = try engine.backend.packNames().live.count
      let report = try engine.collectGarbage(Self.everything)
      #expect(report.obstacles.contains { $0.message.contains("\(what == "blob" ? blob : absent.digest)") })
      #expect(report.freedByteCount == 0)
      // What is written to meanwhile is sealed, and nothing goes.
      let after = try engine.backend.packNames().live.count
      #expect(after >= before)
      // No version needs it any more, so it no longer prevents the collection.
      _ = try engine.delete(["k"], .durable)
      let last = try engine.collectGarbage(Self.everything)
      #expect(last.obstacles == [])
    }
    try lab.session { engine in
      let report = try engine.collectGarbage(Self.everything)
      let statistics = try engine.statistics()
      #expect(report.obstacles == [] && statistics.packCount == 0)
    }
  }

  // MARK: Costs

  /// A blob that names one list many times, and more blobs that name it.
  private static func plantRepeatedList(_ lab: Lab, times: Int, blobs: Int) throws {
    let plain = [UInt8](repeating: 7, count: 100)
    let chunk = BlobDigest.of(plain)
    var list = ByteWriter()
    // Too long for the cache of a lab's engine.
    for _ in 0..<2_000 { ChunkEntry(digest: chunk, plainByteCount: plain.count).encode(into: &list) }
    let entry = ListEntry(digest: BlobDigest.of(list.bytes), chunkCount: 2_000, spanByteCount: 200_000)
    var records: [(content: PackRecord.Content, payload: [UInt8])] = [
      (.chunk(ChunkRecord(digest: chunk, plainByteCount: plain.count, codecNumber: 0)), plain),
      (
        .chunk(ChunkRecord(digest: entry.digest, plainByteCount: list.bytes.count, codecNumber: 0)),
        list.bytes
      ),
    ]
    for number in 0..<blobs {
      let count = number == 0 ? times : 1
      var lists = ByteWriter()
      for _ in 0..<count { entry.encode(into: &lists) }
      let blob = BlobDigest.of(Array("\(number)".utf8))
      let byteCount = Int64(count) * entry.spanByteCount
      let manifest = ManifestRecord(
        digest: blob, byteCount: byteCount, chunkCount: Int64(count * 2_000), depth: 1, listedCount: count)
      records.append((.manifest(manifest), lists.bytes))
      records.append(
        HostileTests.ref("\(number)", blob, byteCount: byteCount, time: 1 << 41 + UInt64(number)))
    }
    try HostileTests.plant(lab, 1, records)
  }

  /// How many times a list of 72 kB was read.
  private static func listReads(_ lab: Lab, _ body: () throws -> Void) rethrows -> Int {
    let count = Mutex(0)
    lab.disk.beforeCalls { call in
      // It says the range that is read.
      let range = call.detail.split(separator: " ").last?.split(separator: "..<").compactMap { Int($0) } ?? []
      if call.kind == .read, range.count == 2, range[1] - range[0] == 72_000 { count.withLock { $0 += 1 } }
    }
    try body()
    lab.disk.beforeCalls(nil)
    return count.withLock { $0 }
  }

  @Test("and every walk over blobs reads a list once that one manifest names 300 times")
  func repeatedList() throws {
    let lab = try Lab()
    try Self.plantRepeatedList(lab, times: 300, blobs: 1)
    let engine = try lab.open()
    let walks: [(String, () throws -> Void)] = [
      ("gc", { _ = try engine.collectGarbage() }),
      ("stats", { _ = try engine.statistics() }),
      (
        "info",
        {
          let information = try BlobInformation.find(engine, "0", nil)
          #expect(information?.chunkCount == 600_000)
        }
      ),
      ("verify", { _ = try engine.verify() }),
    ]
    for (name, walk) in walks {
      let count = try Self.listReads(lab, walk)
      #expect(1...4 ~= count, "\(name): \(count) reads")
    }
    try engine.close()
  }

  @Test("and statistics read a list once that many manifests name")
  func sharedList() throws {
    let lab = try Lab()
    try Self.plantRepeatedList(lab, times: 1, blobs: 100)
    try lab.session { engine in
      let count = try Self.listReads(lab) {
        let statistics = try engine.statistics()
        #expect(statistics.blobCount == 100)
      }
      #expect(count == 1)
      let countOfCollection = try Self.listReads(lab) { _ = try engine.collectGarbage() }
      #expect(1...2 ~= countOfCollection)
    }
  }

  #if canImport(Glibc)
    /// Bytes that are allocated, by the C library's own account.
    @Sendable private static func allocatedByteCount() -> Int {
      typealias Describe = @convention(c) (Int32, UnsafeMutablePointer<FILE>) -> Int32
      var (text, length) = (UnsafeMutablePointer<CChar>?.none, 0)
      guard let symbol = dlsym(nil, "malloc_info"), let file = open_memstream(&text, &length) else {
        return 0
      }
      _ = unsafeBitCast(symbol, to: Describe.self)(0, file)
      fclose(file)
      defer { free(text) }
      // The last of each kind is that of all arenas together.
      var sizes: [Substring: Int] = [:]
      for line in text.map({ String(cString: $0) })?.split(separator: "\n") ?? [] {
        let fields = line.split(separator: "\"")
        guard line.hasPrefix("<total") || line.hasPrefix("<system"), let size = Int(fields[fields.count - 2])
        else {
          continue
        }
        sizes[fields[1]] = size
      }
      return sizes["current", default: 0] + sizes["mmap", default: 0] - sizes["fast", default: 0]
        - sizes["rest", default: 0]
    }

    /// Whether memory comes from the address sanitizer's own heap, which the C library does not count.
    private static let hasSanitizer = dlsym(nil, "__asan_init") != nil

    @Test("keeps less than 100 bytes in memory for each chunk that goes", .enabled(if: !hasSanitizer))
    func memory() async throws {
      // In a process of its own: the heap is that of all threads.
      await #expect(processExitsWith: .success) {
        let lab = try Lab()
        let count = 6_000
        for pack in 0..<3 {
          let records = (0..<count / 3).map { number -> (content: PackRecord.Content, payload: [UInt8]) in
            let plain = withUnsafeBytes(of: (pack, number)) { Array($0) }
            return (
              .chunk(ChunkRecord(digest: BlobDigest.of(plain), plainByteCount: 16, codecNumber: 0)), plain
            )
          }
          try HostileTests.plant(lab, UInt32(pack + 1), records)
        }
        try lab.session { engine in
          let before = Self.allocatedByteCount()
          #expect(before > 0)
          let growth = Mutex(0)
          let report = try engine.collectGarbage(Self.everything) { progress in
            guard progress.phase == "deleting" else { return }
            growth.withLock { $0 = max($0, Self.allocatedByteCount() - before) }
          }
          #expect(report.deletedChunkCount == count)
          let perChunk = growth.withLock { $0 } / count
          #expect(perChunk < 100, "\(perChunk) bytes a chunk")
        }
      }
    }
  #endif
}

extension Engine {
  /// The packs that the catalog knows.
  fileprivate func packRows() throws(BlobStorageError) -> [PackRow] {
    try catalog.read { (transaction) throws(BlobStorageError) in try transaction.packRows().map(\.row) }
  }
}
