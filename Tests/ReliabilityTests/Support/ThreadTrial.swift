import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage

/// Real threads that change one store in real files, while all that reaches the medium is recorded.
///
/// Each thread has keys of its own and contents in common with the others. So blobs share chunks while these are still
/// on their way. Two engines take part, as two processes would. Afterwards ``check(_:at:)`` opens what a power cut
/// would have left at any moment.
final class ThreadTrial: Sendable {
  struct Options: Sendable {
    var threadCount = 8
    var changeCount = 18
    var packByteCountTarget: Int64 = 64 << 10
    var usesSimilarity = false
    /// Makes calls fail that change files of packs; the number counts them.
    var fault: (@Sendable (CallKind, _ number: Int) -> Errno?)?
  }

  private struct Record: Sendable {
    var model = Model()
    /// When each change was asked for and when its call returned, as moments of the recorder.
    var begun: [Int] = []
    var ended: [Int: Int] = [:]
    /// When the threads began.
    var start = 0
    /// Why calls failed.
    var failures: [BlobStorageError] = []
  }

  let files: RecordedFiles
  private let seed: UInt64
  private let options: Options
  private let record = Mutex(Record())
  private let folder: FilePath
  /// Contents that the threads have in common.
  private let pieces: [Data]
  private let random: Mutex<SplitMix64>
  private let callCount = Atomic<Int>(0)

  init(seed: UInt64, _ options: Options = Options()) throws {
    self.seed = seed
    self.options = options
    random = Mutex(SplitMix64(seed: seed))
    pieces = (0..<16).map { noise(seed &* 1_000 &+ UInt64($0), 4_000 + 500 * $0) }
    folder = FilePath(FileManager.default.temporaryDirectory.path)
      .appending("blobstorage-threads-\(String(randomUInt64(), radix: 16))")
    try SystemFiles().createDirectory(folder)
    files = RecordedFiles(root: folder)
  }

  deinit { try? FileManager.default.removeItem(atPath: folder.string) }

  private var storePath: String { folder.string + Lab.storePath }

  private func environment(_ catalog: CatalogFolder) -> Engine.Environment {
    var environment = Engine.Environment()
    environment.files = files
    environment.catalogFolder = catalog.path
    environment.randomNumber = { [self] in random.withLock { $0.next() } }
    environment.packByteCountTarget = options.packByteCountTarget
    environment.mapByteCount = 8 << 20
    // What streams in goes through the pipeline, in small steps.
    environment.streamHeadByteCount = 1
    environment.streamBatchByteCount = 16 << 10
    return environment
  }

  // MARK: The threads

  /// Has all threads do their changes, and closes the store.
  func run() throws {
    let catalog = try CatalogFolder()
    let environment = environment(catalog)
    let storeOptions = StoreOptions(averageChunkByteCount: 4 << 10, usesSimilarity: options.usesSimilarity)
    try Engine.create(at: storePath, options: storeOptions, environment: environment)
    let configuration = StoreConfiguration(cacheByteLimit: 64 << 10, threadCount: 2)
    let engines = try (0..<2).map { _ in
      try Engine(path: storePath, configuration: configuration, environment: environment)
    }
    record.withLock { $0.start = files.moment }
    let fault = options.fault
    files.beforeMutations { [self] (kind, path) throws(BlobStorageError) in
      guard path.string.contains("/packs") else { return }
      let number = callCount.wrappingAdd(1, ordering: .relaxed).newValue
      if let errno = fault?(kind, number) {
        throw .systemCall("\(kind.rawValue) (planned)", path: path, errno: errno.rawValue)
      }
      // Threads overtake each other at other places each time.
      if number % 7 == 3 { sched_yield() }
      if kind == .synchronize || kind == .syncDirectory { usleep(UInt32(number * 37 % 300)) }
    }
    let group = DispatchGroup()
    for thread in 0..<options.threadCount {
      group.enter()
      Thread { [self] in
        var generator = SplitMix64(seed: seed &* 100 &+ UInt64(thread))
        // A few changes a key, and none behind one that failed: which of them are there is found out by trying.
        var round = 0
        for number in 0..<options.changeCount {
          let engine = engines[thread % 4 == 3 ? 1 : 0]
          let isDone = change(engine, number, (0..<2).map { "\(thread)-\(round)-\($0)" }, &generator)
          if !isDone || number % 6 == 5 { round += 1 }
        }
        group.leave()
      }.start()
    }
    group.wait()
    for engine in engines {
      do { try engine.close() } catch {
        guard options.fault != nil else { throw error }
      }
    }
    files.beforeMutations(nil)
    if options.fault == nil, let failure = record.withLock({ $0.failures.first }) { throw failure }
  }

  private func change(
    _ engine: Engine, _ number: Int, _ keys: [String], _ generator: inout SplitMix64
  ) -> Bool {
    let durability: Durability = Int.random(in: 0..<3, using: &generator) == 0 ? .relaxed : .durable
    switch Int.random(in: 0..<20, using: &generator) {
    case 0..<8:
      let archives = Int.random(in: 0..<4, using: &generator) == 0
      return put(engine, [(keys[number % 2], content(1...3, &generator))], durability, archives: archives)
    case 8..<10:
      return put(engine, keys.map { ($0, content(1...2, &generator)) }, durability)
    case 10..<16:
      return put(engine, [(keys[number % 2], content(3...8, &generator))], durability, streams: true)
    case 16:
      return drop([keys[0]], kept: 0, durability) { _ = try engine.delete($0, durability) }
    case 17:
      return drop(keys, kept: 2, durability) { _ = try engine.keep(upTo: 1, keys: $0, durability) }
    case 18: return attempt { try engine.writer.rollOver() }
    default:
      let options = GarbageCollectionOptions(minimumGarbageShare: 0.1, recompresses: number.isMultiple(of: 2))
      return attempt { _ = try engine.collectGarbage(options) }
    }
  }

  private func content(_ count: ClosedRange<Int>, _ generator: inout SplitMix64) -> Data {
    var data = Data()
    for _ in 0..<Int.random(in: count, using: &generator) {
      data += pieces.randomElement(using: &generator) ?? Data()
    }
    // Something of its own as well, sometimes almost like a piece.
    let own = noise(generator.next(), Int.random(in: 10..<2_000, using: &generator))
    let place = Int.random(in: 0...data.count, using: &generator)
    return data.prefix(place) + own + data.dropFirst(place)
  }

  private func put(
    _ engine: Engine, _ items: [(String, Data)], _ durability: Durability, archives: Bool = false,
    streams: Bool = false
  ) -> Bool {
    let (change, names) = record.withLock { record in
      let change = record.model.beginPut(
        items.map { (key: $0.0, data: $0.1) }, archives: archives, isDurable: durability == .durable)
      record.begun.append(files.moment)
      return (change, record.model.changes[change].made.map { Lab.metadata($0.number) })
    }
    return end(change) {
      let options = PutOptions(
        durability: durability, replacement: archives ? .archiveCurrent : .replaceCurrent, metadata: names[0])
      if items.count > 1 {
        _ = try engine.put(
          zip(items, names).map { PutItem(key: $0.0, data: $0.1, metadata: $1) }, options)
      } else if streams {
        let rest = Mutex(items[0].1)
        let next: @Sendable () -> Data? = {
          rest.withLock { rest in
            let part = Data(rest.prefix(3_000))
            rest = rest.dropFirst(3_000)
            return part.isEmpty ? nil : part
          }
        }
        _ = try engine.put(items[0].0, .stream(next), options)
      } else {
        _ = try engine.put(items[0].0, .data(items[0].1), options)
      }
    }
  }

  private func drop(
    _ keys: [String], kept: Int, _ durability: Durability, _ body: ([String]) throws -> Void
  ) -> Bool {
    let change = record.withLock { record in
      record.begun.append(files.moment)
      return record.model.beginDrop(keys, kept: kept, isDurable: durability == .durable)
    }
    return end(change) { try body(keys) }
  }

  private func end(_ change: Int, _ body: () throws -> Void) -> Bool {
    guard attempt(body) else {
      record.withLock { $0.model.leaveOpen(change) }
      return false
    }
    let moment = files.moment
    record.withLock { record in
      record.model.end(change)
      record.ended[change] = moment
    }
    return true
  }

  private func attempt(_ body: () throws -> Void) -> Bool {
    do {
      try body()
      return true
    } catch let error as BlobStorageError {
      // What gc took away meanwhile is put again, and one collector at a time.
      if error.code != .busy { record.withLock { $0.failures.append(error) } }
    } catch { record.withLock { $0.failures.append(BlobStorageError(.io, "\(error)")) } }
    return false
  }

  // MARK: Power cuts

  /// Why calls failed, but for those that were told to try again.
  var failures: [BlobStorageError] { record.withLock { $0.failures } }

  /// How many durable changes returned.
  var durableCount: Int {
    record.withLock { record in record.ended.keys.count { record.model.changes[$0].isDurable } }
  }

  /// What was asked for by that moment, and what of it had returned.
  private func model(at moment: Int) -> Model {
    record.withLock { record in
      record.model.asOf(changeCount: record.begun.count { $0 <= moment }) { index in
        record.ended[index].map { $0 <= moment } ?? false
      }
    }
  }

  /// Opens what that power cut would have left, without a catalog, and throws what was lost.
  func check(_ cut: Cut, at recorded: RecordedDisk) throws {
    let lab = try Lab(cut.apply(recorded.disk), model(at: recorded.moment))
    do {
      if Soak.isOn { return try lab.checkInvariants(afterPowerCut: true) }
      let engine = try lab.open()
      try lab.adopt(engine, afterPowerCut: true)
      let damaged = try engine.verify().damaged
      if !damaged.isEmpty { throw Broken("3: \(damaged)") }
      try engine.close()
    } catch {
      throw Broken("seed \(seed), moment \(recorded.moment) of \(recorded.momentCount), \(cut): \(error)")
    }
  }

  /// Random moments to cut at: `count` of any kind, `count` at which a sync is about to end, and `count` at which a
  /// durable change has just returned.
  func moments(_ count: Int, _ recorded: RecordedDisk) throws -> [Int] {
    var recorded = recorded
    var ofSyncs: [Int] = []
    while recorded.moment < recorded.momentCount {
      if recorded.isBeforeEndOfSync { ofSyncs.append(recorded.moment) }
      try recorded.advance(to: recorded.moment + 1)
    }
    let (start, returned) = record.withLock { record in
      (record.start, record.ended.filter { record.model.changes[$0.key].isDurable }.map(\.value).sorted())
    }
    ofSyncs.removeAll { $0 < start }
    var generator = SplitMix64(seed: seed)
    let any = (0..<count).map { _ in Int.random(in: start...recorded.momentCount, using: &generator) }
    let some = [ofSyncs, returned].flatMap { $0.shuffled(using: &generator).prefix(count) }
    return Array(Set(any + some)).sorted()
  }
}
