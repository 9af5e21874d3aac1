import BlobStorage
import BlobStorageCache
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A cache whose folder disappears")
struct CacheFolderTests {
  private let temporary: TemporaryFolder
  private var path: String { temporary.path.appending("cache").string }
  private let limits = CacheLimits(byteLimit: 16 << 20, keyLimit: 1_000, lifetime: .seconds(3_600))

  init() throws { temporary = try TemporaryFolder() }

  private func opened(_ limits: CacheLimits? = nil) async throws -> BlobCache {
    try await BlobCache.open(at: path, limits: limits ?? self.limits)
  }

  private func deleteFolder() throws { try FileManager.default.removeItem(atPath: path) }

  @Test("starts again there with the limits that it had, whatever is called first", arguments: 0..<5)
  func deleted(first: Int) async throws {
    let cache = try await opened()
    try await cache.set(Data("old".utf8), forKey: "k")
    for round in 0..<3 {
      try deleteFolder()
      let value = Data("new \(round)".utf8)
      switch first {
      case 0: #expect(try await cache.data(forKey: "k") == nil)
      case 1: #expect(try await cache.set(value, forKey: "k"))
      case 2: #expect(try await cache.value(Data.self, forKey: "k") { value } == value)
      case 3: #expect(try await cache.remove("k") == false)
      default: #expect(try cache.blocking.set(value, forKey: "k"))
      }
      try await cache.set(value, forKey: "k")
      #expect(try await cache.data(forKey: "k") == value)
      #expect(cache.limits == limits)
      let other = try await BlobStore.open(at: path)
      #expect(try await other.data(forKey: "k") == value)
      #expect(try await other.cache()?.limits == limits)
      try await other.close()
    }
    try await cache.close()
    let again = try await BlobStore.open(at: path)
    #expect(try await again.verify().damaged == [])
    try await again.close()
  }

  @Test("uses the one that another process has made, with its limits, and harms nothing in it")
  func exchanged() async throws {
    let cache = try await opened()
    var random = SplitMix64(seed: 3)
    for index in 0..<20 { try await cache.set(random.noise(100_000), forKey: "old-\(index)") }
    try deleteFolder()
    let otherLimits = CacheLimits(byteLimit: 20 << 20)
    let other = try await opened(otherLimits)
    try await other.set(Data("theirs".utf8), forKey: "k")
    #expect(try await cache.data(forKey: "k") == Data("theirs".utf8))
    #expect(cache.limits == otherLimits)
    for index in 0..<20 { try await cache.set(random.noise(100_000), forKey: "new-\(index)") }
    #expect(try await other.data(forKey: "new-19")?.count == 100_000)
    #expect(try await other.data(forKey: "old-0") == nil)
    #expect(try await other.store.losses().summary == nil)
    #expect(try await other.store.verify().damaged == [])
    try await cache.close()
    #expect(try await other.store.collectGarbage().obstacles.isEmpty)
    try await other.close()
  }

  @Test("is closed without touching another store that was put there")
  func closedElsewhere() async throws {
    let cache = try await opened()
    try await cache.set(Data("old".utf8), forKey: "k")
    try deleteFolder()
    let other = try await BlobStore.create(at: path)
    try await other.put(.data(Data("kept".utf8)), forKey: "mine")
    try await cache.close()
    #expect(try await other.losses().summary == nil)
    // It is no cache, and its keys are not to be evicted.
    try await other.close()
    #expect(!FileManager.default.fileExists(atPath: path + "/cache"))
  }

  @Test("has no value and stores none where it cannot start again, and does later")
  func obstructed() async throws {
    let cache = try await opened()
    try await cache.set(Data("old".utf8), forKey: "k")
    try deleteFolder()
    try Data("a file".utf8).write(to: URL(filePath: path))
    #expect(try await cache.data(forKey: "k") == nil)
    #expect(try await cache.data(forKeys: ["k", "l"]) == [nil, nil])
    #expect(try await !cache.contains(key: "k"))
    #expect(try await !cache.set(Data("new".utf8), forKey: "k"))
    #expect(try await cache.value(Data.self, forKey: "k") { Data("made".utf8) } == Data("made".utf8))
    let error = await #expect(throws: BlobStorageError.self) { try await cache.put(Data(), forKey: "k") }
    #expect(error?.code == .notAStore)
    try deleteFolder()
    // It tries again after a second.
    while try await !cache.set(Data("new".utf8), forKey: "k") { await Task.yield() }
    #expect(try await cache.data(forKey: "k") == Data("new".utf8))
    try await cache.close()
  }

  @Test("makes no folder if it was closed, or if other keys were lost, too")
  func staysGone() async throws {
    let cache = try await opened()
    try await cache.close()
    try deleteFolder()
    let error = await #expect(throws: BlobStorageError.self) { try await cache.set(Data(), forKey: "k") }
    #expect(error?.code == .closed)
    #expect(!FileManager.default.fileExists(atPath: path))
    let store = try await BlobStore.create(at: path)
    let part = try await store.cache(prefix: "c/", limits: limits)
    try await part.set(Data("v".utf8), forKey: "k")
    try deleteFolder()
    _ = try? await part.data(forKey: "k")  // an error or nil: the store decides
    _ = try? await part.set(Data(count: 1 << 20), forKey: "k")
    #expect(!FileManager.default.fileExists(atPath: path + "/store"))
    try? await store.close()  // it may say that the folder is gone
  }

  @Test("neither fails nor lies while another process deletes it again and again")
  func deletedMeanwhile() async throws {
    let cache = try await opened()
    let isDone = Mutex(false)
    let path = path
    let deleter = Thread {
      while !isDone.withLock({ $0 }) {
        let process = Process()
        process.executableURL = URL(filePath: "/bin/rm")
        process.arguments = ["-rf", path]
        process.standardError = FileHandle.nullDevice
        guard (try? process.run()) != nil else { return }  // the counts below stay 0
        process.waitUntilExit()
      }
    }
    deleter.start()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for worker in 0..<4 {
        group.addTask {
          for index in 0..<150 {
            let key = "k\(index % 7)"
            let value = Data("\(key) \(worker)".utf8)
            switch (worker + index) % 3 {
            case 0: try await cache.set(value, forKey: key)
            case 1:
              if let found = try await cache.data(forKey: key) { #expect(found.starts(with: key.utf8)) }
            default:
              let made = try await cache.value(Data.self, forKey: key) { value }
              #expect(made.starts(with: key.utf8))
            }
          }
        }
      }
      try await group.waitForAll()
    }
    isDone.withLock { $0 = true }
    while !deleter.isFinished { await Task.yield() }
    while try await !cache.set(Data("last".utf8), forKey: "k") { await Task.yield() }
    #expect(try await cache.data(forKey: "k") == Data("last".utf8))
    try await cache.close()
    let again = try await opened()
    #expect(try await again.data(forKey: "k") == Data("last".utf8))
    #expect(try await again.store.verify().damaged == [])
    try await again.close()
  }
}
