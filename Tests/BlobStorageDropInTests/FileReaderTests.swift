import BlobStorage
import BlobStorageDropIn
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import Testing

extension FileReader {
  /// The bytes of a range. A handler that was called twice would be a trap.
  func bytes(_ range: Range<Int>) async -> Data? {
    await withCheckedContinuation { done in
      read(byteRange: range, queue: .global()) { done.resume(returning: $0.map { Data($0) }) }
    }
  }
}

@Suite struct FileReaderTests {
  let folder: Folder
  let store: BlobStore

  init() async throws {
    folder = try Folder()
    store = try await BlobStore.create(at: folder.url.appendingPathComponent("store").path)
  }

  /// A reader of a file and one of a blob with the same bytes, both open.
  private func readers(_ data: Data) async throws -> [FileReader] {
    let file = folder.url.appendingPathComponent("file")
    try data.write(to: file)
    let digest = try await store.put(.data(data), forKey: "key").version.digest
    let readers = [
      FileReader(fileURL: file), FileReader(store: store, key: "key"),
      FileReader(store: store, digest: digest),
    ]
    for reader in readers { #expect(reader.open()) }
    return readers
  }

  @Test("FR-1: the first bytes of a long sample")
  func sample() async throws {
    let sample = randomBytes(2_076_672, seed: 0xF1FD_72BE)
    for reader in try await readers(sample) { #expect(await reader.bytes(0..<20) == sample.prefix(20)) }
  }

  @Test("FR-2: ranges that overlap")
  func overlapping() async throws {
    let bytes = Data((0..<50).map { UInt8($0 % 255) })
    for reader in try await readers(bytes) {
      for range in [0..<15, 5..<25, 20..<35, 30..<45, 40..<50] {
        #expect(await reader.bytes(range) == bytes.subdata(in: range))
      }
      #expect(await reader.bytes(18..<32)?.map { Int($0) } == Array(18..<32))
    }
  }

  @Test("FR-3: a range past the end is cut off there, with one completion")
  func pastEnd() async throws {
    for reader in try await readers(Data(0..<50)) {
      let queue = DispatchQueue(label: "completions")
      let count = Mutex(0)
      await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
        reader.read(byteRange: 40..<60, queue: queue) { data in
          #expect(data.map { Data($0) } == Data(40..<50))
          count.withLock { $0 += 1 }
          done.resume()
        }
      }
      #expect(await reader.bytes(40..<Int.max) == Data(40..<50))
      queue.sync {}
      #expect(count.withLock { $0 } == 1)
    }
  }

  @Test("FR-4: an empty range is empty up to the end, and nil beyond")
  func empty() async throws {
    for reader in try await readers(Data(0..<50)) {
      #expect(await reader.bytes(0..<0) == Data())
      #expect(await reader.bytes(50..<50) == Data())
      #expect(await reader.bytes(51..<51) == nil)
      #expect(await reader.bytes(51..<60) == nil)
      #expect(await reader.bytes(-1..<1) == nil)
    }
    let blob = try #require(try await store.reader(forKey: "key"))
    let error = await #expect(throws: BlobStorageError.self) { try await blob.read(51..<51) }
    #expect(error?.code == .invalidArgument)
  }

  @Test("FR-5: what is missing does not open, and what is closed gives nothing")
  func missingAndClosed() async throws {
    for reader in [
      FileReader(fileURL: folder.url.appendingPathComponent("missing")), FileReader(fileURL: folder.url),
      FileReader(store: store, key: "missing"), FileReader(store: store, digest: BlobDigest.of(Data([1]))),
    ] {
      #expect(!reader.open())
      #expect(await reader.bytes(0..<1) == nil)
    }
    for reader in try await readers(Data(0..<50)) {
      reader.close()
      #expect(await reader.bytes(0..<1) == nil)
      #expect(reader.open())
      #expect(reader.open())
      #expect(await reader.bytes(0..<1) == Data([0]))
    }
  }

  @Test("a reader of a version reads that one, and a reader that is open what it has opened")
  func versions() async throws {
    var versions: [BlobVersion] = []
    for text in ["first", "later"] {
      let options = PutOptions(replacement: .archiveCurrent)
      versions.append(try await store.put(.data(Data(text.utf8)), forKey: "k", options: options).version)
    }
    let readers = [
      FileReader(store: store, key: "k", version: versions[0].id),
      FileReader(store: store, key: "k", version: versions[1].id), FileReader(store: store, key: "k"),
    ]
    for (reader, text) in zip(readers, ["first", "later", "later"]) {
      #expect(reader.open())
      #expect(await reader.bytes(0..<10) == Data(text.utf8))
    }
    try await store.put(.data(Data("newest".utf8)), forKey: "k")
    #expect(readers[2].open())
    #expect(await readers[2].bytes(0..<10) == Data("later".utf8))
    readers[2].close()
    #expect(readers[2].open())
    #expect(await readers[2].bytes(0..<10) == Data("newest".utf8))
    #expect(!FileReader(store: store, key: "k", version: versions[1].id).open())
    #expect(!FileReader(store: store, key: "other", version: versions[0].id).open())
  }

  @Test("a link to a file is followed")
  func link() async throws {
    let link = folder.url.appendingPathComponent("link")
    let file = folder.url.appendingPathComponent("target")
    try FileManager.default.createSymbolicLink(at: link, withDestinationURL: file)
    #expect(!FileReader(fileURL: link).open())
    try Data("target".utf8).write(to: file)
    let reader = FileReader(fileURL: link)
    #expect(reader.open())
    #expect(await reader.bytes(1..<3) == Data("ar".utf8))
  }

  @Test("closing lets the reads under way end")
  func closeDuringRead() async throws {
    let sample = randomBytes(300_000, seed: 3)
    for reader in try await readers(sample) {
      async let data = reader.bytes(0..<300_000)
      let isAllOrNothing = { (data: Data?) in data == sample || data == nil }
      reader.close()
      #expect(isAllOrNothing(await data))
    }
  }

  @Test("reads that were asked for before the reader was closed get their bytes, later ones nil")
  func closeBehindRead() async throws {
    let sample = randomBytes(300_000, seed: 4)
    for reader in try await readers(sample) {
      let data = await withCheckedContinuation { (done: CheckedContinuation<Data?, Never>) in
        reader.read(byteRange: 0..<300_000, queue: .global()) { done.resume(returning: $0.map { Data($0) }) }
        reader.close()
      }
      #expect(data == sample)
      #expect(await reader.bytes(0..<1) == nil)
    }
  }

  @Test("every answer comes on the queue that it was asked for on", .timeLimit(.minutes(1)))
  func queues() async throws {
    for reader in try await readers(Data(0..<50)) {
      for (range, isOpen) in [
        (0..<20, true), (0..<0, true), (40..<60, true), (51..<60, true), (-1..<2, true), (0..<20, false),
      ] {
        if !isOpen { reader.close() }
        let queue = DispatchQueue(label: "answers")
        await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
          reader.read(byteRange: range, queue: queue) { _ in
            dispatchPrecondition(condition: .onQueue(queue))
            done.resume()
          }
        }
      }
      #expect(reader.open())
      // By default, it is the main queue.
      await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
        reader.read(byteRange: 0..<20) { _ in
          dispatchPrecondition(condition: .onQueue(.main))
          done.resume()
        }
      }
    }
  }

  @Test("FR-6: any range is the slice of the bytes, and chunks outside it are not read")
  func ranges() async throws {
    let seed = TestSeed.announce()
    let sample = randomBytes(1_500_000, seed: 6)
    let count = sample.count
    let chunk = store.information.chunkSizes.average
    var ranges = [
      0..<1, chunk - 1..<chunk + 1, chunk..<2 * chunk, chunk - 1..<3 * chunk + 1, count - 1..<count,
      0..<count,
    ]
    let numbers = randomBytes(16_000, seed: seed)
    numbers.withUnsafeBytes { raw in
      for index in 0..<1_000 {
        let start = Int(raw.loadUnaligned(fromByteOffset: index * 16, as: UInt64.self) % UInt64(count))
        let length = Int(raw.loadUnaligned(fromByteOffset: index * 16 + 8, as: UInt64.self) % 100_000)
        ranges.append(start..<min(start + length, count))
      }
    }
    for reader in try await readers(sample) {
      for range in ranges { #expect(await reader.bytes(range) == sample.subdata(in: range)) }
    }
    try #require(try folder.damage(sample.suffix(64)) == 1)
    let link = folder.url.appendingPathComponent("link")
    try FileManager.default.createSymbolicLink(at: link, withDestinationURL: folder.url)
    let other = try await BlobStore.open(at: link.appendingPathComponent("store").path)
    let reader = FileReader(store: other, key: "key")
    #expect(reader.open())
    #expect(await reader.bytes(0..<1_000_000) == sample.prefix(1_000_000))
    #expect(await reader.bytes(count - 1..<count) == nil)
  }
}
