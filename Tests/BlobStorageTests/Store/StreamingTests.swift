import BlobStorage
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import Testing

@Suite("What streams in and out of a store", .timeLimit(.minutes(2)))
struct StreamingTests {
  private struct Broken: Error {}

  /// What tasks tell each other.
  private final class Gate: Sendable {
    let waitingCount = Atomic<Int>(0)
    let isOpen = Atomic<Bool>(false)

    func wait() async throws {
      waitingCount.add(1, ordering: .relaxed)
      while !isOpen.load(ordering: .relaxed) { try await Task.sleep(for: .milliseconds(5)) }
    }

    func await(_ count: Int) async throws {
      while waitingCount.load(ordering: .relaxed) < count { try await Task.sleep(for: .milliseconds(5)) }
    }
  }

  private let place: StorePlace
  private let store: BlobStore

  init() async throws {
    place = try StorePlace()
    store = try await place.opened()
  }

  /// The bytes in parts of these lengths, again and again; then `end` throws, or the source ends.
  private func source(
    _ bytes: [UInt8], _ lengths: [Int], end: @escaping @Sendable () async throws -> Void = {}
  ) -> AsyncThrowingStream<[UInt8], any Error> {
    let state = Mutex((start: 0, index: 0))
    return AsyncThrowingStream {
      let part = state.withLock { state -> [UInt8]? in
        guard state.start < bytes.count else { return nil }
        let end = min(bytes.count, state.start + lengths[state.index % lengths.count])
        defer { state = (end, state.index + 1) }
        return Array(bytes[state.start..<end])
      }
      if part == nil { try await end() }
      return part
    }
  }

  /// Checks that the key has its old value, and that nothing keeps gc from what has streamed in.
  private func expectUnchanged(_ key: String, _ old: Data) async throws {
    #expect(try await store.versions(of: key).count == 1)
    #expect(try await store.data(forKey: key) == old)
    _ = try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(try store.engine.packRows().reduce(0) { $0 + $1.recordsByteCount } < 1_000)
  }

  // MARK: Putting

  @Test("is what the parts are together, whatever their lengths", arguments: [0, 1, 50_000, 5_000_000])
  func put(byteCount: Int) async throws {
    var random = SplitMix64(seed: 3)
    let bytes = random.bytes(byteCount)
    let read = Mutex<Int64>(0)
    let result = try await store.put(from: source(bytes, [7_000, 0, 1, 300_000]), forKey: "k") { progress in
      read.withLock { $0 = progress.doneByteCount }
    }
    #expect(result.version.byteCount == Int64(byteCount) && read.withLock { $0 } == Int64(byteCount))
    #expect(try await store.data(forKey: "k") == Data(bytes))
    #expect(try await store.put(.data(Data(bytes)), forKey: "other").newByteCount == 0)
    try await store.close()
  }

  /// Both append the same chunks before they see each other's. Views find the copies in the younger pack, the other's.
  @Test("keeps chunks that another process has appended at the same time, though gc removes that copy")
  func sameBeside() throws {
    var random = SplitMix64(seed: 18)
    let parts = (0..<40).map { _ in Data(random.bytes(1 << 20)) }
    var environment = Engine.Environment()
    environment.worksInline = true
    let (one, other, third) = (
      try place.engine(environment), try place.engine(environment), try place.engine(environment)
    )
    let index = Mutex(0)
    let content = BlobContent.stream {
      let part = index.withLock { index in
        defer { index += 1 }
        return index
      }
      if part == 10 {
        let otherIndex = Mutex(0)
        #expect(throws: BlobStorageError.self) {
          let content = BlobContent.stream {
            let part = otherIndex.withLock { index in
              defer { index += 1 }
              return index
            }
            if part == 10 { throw Broken() }
            return parts[part]
          }
          _ = try other.put("b", content, PutOptions())
        }
        #expect(throws: Never.self) { try other.close() }
      }
      // By now the first has published what both have appended.
      if part == 35 {
        #expect(throws: Never.self) {
          _ = try third.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        }
      }
      return part < parts.count ? parts[part] : nil
    }
    _ = try one.put("a", content, PutOptions())
    #expect(try third.data("a", nil) == parts.reduce(Data(), +))
    #expect(try third.verify().damaged.isEmpty)
  }

  @Test("changes nothing when the source fails or the condition does not hold, and says which")
  func failures() async throws {
    var random = SplitMix64(seed: 4)
    let bytes = random.bytes(3_000_000)
    let old = Data("old".utf8)
    try await store.set("k", to: old)
    let failing = source(bytes, [100_000]) { throw Broken() }
    var error = await #expect(throws: BlobStorageError.self) {
      try await store.put(from: failing, forKey: "k")
    }
    #expect(error?.code == .sourceFailed && error?.message.contains("Broken") == true)
    #expect(error?.underlyingError is Broken && error?.isCancellation == false)
    let leaving = source(bytes, [100_000]) { throw CancellationError() }
    error = await #expect(throws: BlobStorageError.self) { try await store.put(from: leaving, forKey: "k") }
    #expect(error?.isCancellation == true)
    #expect(error?.localizedDescription == error?.message)
    let options = PutOptions(condition: .absent)
    error = await #expect(throws: BlobStorageError.self) {
      try await store.put(from: source(bytes, [100_000]), forKey: "k", options: options)
    }
    #expect(error?.code == .conditionFailed)
    try await expectUnchanged("k", old)
    try await store.close()
  }

  /// Fails if the end of a source that ends because its task was cancelled is taken for the end of the content.
  @Test("changes nothing when the task is cancelled while the source waits", arguments: [false, true])
  func cancelled(endsQuietly: Bool) async throws {
    var random = SplitMix64(seed: 5)
    let bytes = random.bytes(3_000_000)
    let old = Data("old".utf8)
    try await store.set("k", to: old)
    let (waiting, reached) = AsyncStream<Void>.makeStream()
    let endless = source(bytes, [100_000]) {
      reached.yield()
      do { try await Task.sleep(for: .seconds(1_000)) } catch { if !endsQuietly { throw error } }
    }
    let task = Task { [store] in try await store.put(from: endless, forKey: "k") }
    for await _ in waiting { break }
    task.cancel()
    let error = await #expect(throws: BlobStorageError.self) { try await task.value }
    #expect(error?.code == .cancelled)
    try await expectUnchanged("k", old)
    try await store.close()
  }

  /// A pool has 16 threads. Fails if a source that waits occupies one.
  @Test("leaves others their turn while many sources wait and many readers are slow")
  func slow() async throws {
    var random = SplitMix64(seed: 6)
    let bytes = random.bytes(4_000_000)
    try await store.put(.data(Data(bytes)), forKey: "large")
    let gate = Gate()
    var tasks: [Task<Bool, any Error>] = []
    for index in 0..<20 {
      let waiting = source(bytes, [1 << 20]) { try await gate.wait() }
      tasks.append(
        Task { [store] in
          try await store.put(from: waiting, forKey: "\(index)").version.byteCount == 4_000_000
        })
      tasks.append(
        Task { [store] in
          try await store.withReader(forKey: "large") { reader in
            var found: [UInt8] = []
            for try await part in reader.chunks() {
              if found.isEmpty { try await gate.wait() }
              found += part
            }
            return found == bytes
          } == true
        })
    }
    try await gate.await(40)
    try await store.set("between", to: Data("text".utf8))
    #expect(try await store.versions(of: "between").count == 1)
    gate.isOpen.store(true, ordering: .relaxed)
    for task in tasks { #expect(try await task.value) }
    try await store.close()
  }

  @Test("waits for a thread no longer than its task, and a store is closed all the same")
  func queued() async throws {
    let (path, configuration) = (place.path, StoreConfiguration(threadCount: 2))
    let store = try BlobStore({ () throws(BlobStorageError) in
      try Engine(path: path, configuration: configuration)
    })
    let gate = DispatchSemaphore(value: 0)
    let blocking = try await occupied(store, until: gate)
    let (started, ended) = (Gate(), Gate())
    let queued = (0..<8).map { index in
      Task {
        started.waitingCount.add(1, ordering: .relaxed)
        do throws(BlobStorageError) { try await store.put(.stream { nil }, forKey: "queued") } catch {
          if error.code == .cancelled { ended.waitingCount.add(1, ordering: .relaxed) }
        }
      }
    }
    try await started.await(8)
    let closing = Task { try await store.close() }
    try await Task.sleep(for: .milliseconds(200))
    for task in queued { task.cancel() }
    closing.cancel()
    // All threads for such puts are taken until the gate opens. A task that was cancelled before its call waits for one.
    try await ended.await(1)
    for _ in 0..<16 { gate.signal() }
    for task in blocking { _ = try? await task.value }
    for task in queued { await task.value }
    try await closing.value
    #expect(throws: BlobStorageError.self) { try store.blocking.versions(of: "0") }
  }

  /// Puts that take all threads of a store until the gate opens.
  private func occupied(
    _ store: BlobStore, until gate: DispatchSemaphore
  ) async throws -> [Task<PutResult, any Error>] {
    let begun = Gate()
    let tasks = (0..<16).map { index in
      Task<PutResult, any Error> {
        try await store.put(
          .stream {
            begun.waitingCount.add(1, ordering: .relaxed)
            gate.wait()
            return nil
          }, forKey: "\(index)")
      }
    }
    try await begun.await(16)
    return tasks
  }

  // MARK: Reading

  @Test("is read whole even if the program keeps no reader")
  func released() async throws {
    let (path, configuration) = (place.path, StoreConfiguration(threadCount: 2))
    let store = try BlobStore({ () throws(BlobStorageError) in
      try Engine(path: path, configuration: configuration)
    })
    try await store.set("k", to: Data("text".utf8))
    var reader = try await store.reader(forKey: "k")
    let gate = DispatchSemaphore(value: 0)
    let blocking = try await occupied(store, until: gate)
    let (answers, answered) = AsyncStream<Result<Data, BlobStorageError>>.makeStream()
    reader?.read(byteRange: 0..<4, queue: .global()) { answered.yield($0.map { Data($0) }) }
    reader = nil
    for await answer in answers {
      #expect(try answer.get() == Data("text".utf8))
      break
    }
    for _ in 0..<16 { gate.signal() }
    for task in blocking { _ = try await task.value }
    try await store.close()
  }

  @Test("comes out in parts that are the range together")
  func chunks() async throws {
    var random = SplitMix64(seed: 7)
    let bytes = random.bytes(5_000_000)
    try await store.put(.data(Data(bytes)), forKey: "k")
    try await store.put(.data(Data()), forKey: "empty")
    let reader = try #require(try await store.reader(forKey: "k"))
    let whole: Range<Int64> = 0..<5_000_000
    for range in [
      nil, whole, 0..<1, 4_999_999..<9_000_000, 1_234_567..<3_456_789, 7..<7, 5_000_000..<6_000_000,
    ] {
      var (found, partCount) = ([UInt8](), 0)
      for try await part in reader.chunks(in: range) {
        #expect(!part.isEmpty)
        found += part
        partCount += 1
      }
      let expected = (range ?? whole).clamped(to: whole)
      #expect(found == Array(bytes[Int(expected.lowerBound)..<Int(expected.upperBound)]), "\(range as Any)")
      #expect(expected.count < 3_000_000 || partCount > 1)
      if let range {
        #expect(try await store.data(forKey: "k", in: range) == Data(found), "\(range)")
      }
    }
    for range in [-1..<5, 5_000_001..<5_000_002] as [Range<Int64>] {
      var iterator = reader.chunks(in: range).makeAsyncIterator()
      let error = await #expect(throws: BlobStorageError.self) { _ = try await iterator.next() }
      #expect(error?.code == .invalidArgument)
      await #expect(throws: BlobStorageError.self) { try await store.data(forKey: "k", in: range) }
    }
    reader.close()
    var iterator = reader.chunks().makeAsyncIterator()
    let error = await #expect(throws: BlobStorageError.self) { _ = try await iterator.next() }
    #expect(error?.code == .closed)
    #expect(try await store.data(forKey: "absent", in: 0..<1) == nil)
    #expect(try await store.data(forKey: "empty", in: 0..<1) == Data())
    try await store.close()
  }

  @Test("is closed when the work with it ends, whether it succeeds or throws")
  func withReader() async throws {
    try await store.set("k", to: Data("text".utf8))
    var escaped: [BlobReader] = []
    let count = try await store.withReader(forKey: "k") { reader in
      escaped.append(reader)
      return reader.byteCount
    }
    #expect(count == 4)
    await #expect(throws: Broken.self) {
      try await store.withReader(forKey: "k") { reader in
        escaped.append(reader)
        throw Broken()
      }
    }
    for reader in escaped {
      let error = await #expect(throws: BlobStorageError.self) { try await reader.read(0..<1) }
      #expect(error?.code == .closed)
    }
    #expect(try await store.withReader(forKey: "absent") { _ in 1 } == nil)
    try await store.close()
  }
}
