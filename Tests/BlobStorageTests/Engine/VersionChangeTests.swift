import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A version that is made of another")
struct VersionChangeTests {
  private let place: StorePlace
  private let store: BlobStore

  init() async throws {
    place = try StorePlace()
    store = try await place.opened()
  }

  private func archive(_ key: String, _ text: String) async throws -> BlobVersion {
    let options = PutOptions(replacement: .archiveCurrent, metadata: Array("about \(text)".utf8))
    return try await store.put(.data(Data(text.utf8)), forKey: key, options: options).version
  }

  private func texts(_ key: String) async throws -> [String] {
    var texts: [String] = []
    for version in try await store.versions(of: key) {
      let data = try #require(try await store.data(forKey: key, version: version.id))
      #expect(version.metadata == Array("about \(String(decoding: data, as: UTF8.self))".utf8))
      texts.append(String(decoding: data, as: UTF8.self))
    }
    return texts
  }

  /// What one process says, and a rebuilt catalog.
  private func expect(_ expected: [String: [String]]) async throws {
    for isRebuilt in [false, true] {
      if isRebuilt { try store.engine.catalog.rebuild(because: nil) }
      let keys = try await store.keys(limit: 100).map(\.key)
      #expect(keys == expected.keys.sorted())
      for (key, values) in expected {
        #expect(try await texts(key) == values, "\(key), rebuilt: \(isRebuilt)")
      }
      #expect(try await store.verify().damaged == [])
    }
  }

  @Test("is the current one again, and what was current stays in the history, or goes")
  func restore() async throws {
    var ids: [BlobVersion.ID] = []
    for text in ["one", "two", "three"] { ids.append(try await archive("k", text).id) }
    let restored = try #require(try await store.restore(ids[0], of: "k"))
    #expect(restored.newByteCount == 0 && restored.version.id.description > ids[2].description)
    try await expect(["k": ["one", "three", "two", "one"]])
    try await store.restore(ids[1], of: "k", replacement: .replaceCurrent)
    try await expect(["k": ["two", "three", "two", "one"]])
    // The original goes, and what was made of it stays.
    #expect(try await store.delete(version: ids[1], of: "k"))
    #expect(try await !store.delete(version: ids[1], of: "k"))
    #expect(try await store.restore(ids[1], of: "k") == nil)
    #expect(try await store.restore(ids[0], of: "absent") == nil)
    try await expect(["k": ["two", "three", "one"]])
    #expect(try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)).obstacles == [])
    try await expect(["k": ["two", "three", "one"]])
    try await store.close()
  }

  @Test("shares the bytes under another key, which outlive the first, and heeds conditions")
  func duplicate() async throws {
    let first = try await archive("a", "one")
    _ = try await archive("a", "two")
    #expect(try await store.duplicate("a", as: "b")?.newByteCount == 0)
    try await store.duplicate("a", version: first.id, as: "c")
    #expect(try await store.duplicate("absent", as: "d") == nil)
    var options = PutOptions(condition: .absent)
    let error = await #expect(throws: BlobStorageError.self) {
      try await store.duplicate("a", as: "b", options: options)
    }
    #expect(error?.code == .conditionFailed)
    options = PutOptions(replacement: .archiveCurrent)
    try await store.duplicate("a", version: first.id, as: "b", options: options)
    #expect(try await store.contains(first.digest))
    #expect(try await store.delete("a"))
    #expect(try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)).obstacles == [])
    try await expect(["b": ["one", "two"], "c": ["one"]])
    try await store.deleteAllKeys()
    _ = try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(try await !store.contains(first.digest))
    try await store.close()
  }

  @Test("is of a key with another name, with all its history and dates")
  func rename() async throws {
    for text in ["one", "two", "three"] { _ = try await archive("a", text) }
    let dates = try await store.versions(of: "a").map(\.created)
    _ = try await archive("taken", "here")
    var error = await #expect(throws: BlobStorageError.self) { try await store.rename("a", to: "taken") }
    #expect(error?.code == .conditionFailed)
    error = await #expect(throws: BlobStorageError.self) { try await store.rename("a", to: "a") }
    #expect(error?.code == .invalidArgument)
    #expect(try await store.rename("a", to: "b"))
    #expect(try await !store.rename("a", to: "c"))
    #expect(try await store.versions(of: "b").map(\.created) == dates)
    try await expect(["b": ["three", "two", "one"], "taken": ["here"]])
    #expect(try await store.rename("b", to: "a"))
    #expect(try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)).obstacles == [])
    try await expect(["a": ["three", "two", "one"], "taken": ["here"]])
    try await store.close()
  }

  /// gc may have passed the new key and not yet the old one (H2). Fails if a version counts on a pack that gc may be about
  /// to remove.
  @Test(
    "counts on no pack that is condemned, unless it is of the same key", arguments: [0, 1_000, 3_000_000])
  func condemned(byteCount: Int) async throws {
    var random = SplitMix64.announced()
    let bytes = Data(random.bytes(byteCount))
    let id = try await store.put(.data(bytes), forKey: "a").version.id
    try await store.set("elsewhere", to: Data("text".utf8))
    try store.engine.writer.rollOver()
    let names = try store.engine.packRows().map(\.name)
    func set(_ state: PackRow.State) throws {
      try store.engine.catalog.write { (transaction) throws(BlobStorageError) in
        for name in names { try transaction.updatePack(name) { $0.state = state } }
      }
    }
    try set(.condemned)
    do {
      let lock = try CollectionLock(store.engine, waitSeconds: 0)
      defer { withExtendedLifetime(lock) {} }
      for attempt in 0..<2 {
        let error = await #expect(throws: BlobStorageError.self) {
          if attempt == 0 {
            try await store.duplicate("a", as: "b")
          } else {
            try await store.rename("a", to: "b")
          }
        }
        #expect(error?.code == .busy && error?.message.contains("gc") == true)
      }
    }
    #expect(try await store.versions(of: "b").isEmpty)
    #expect(try await store.restore(id, of: "a") != nil)
    // The collection has ended, and was killed.
    #expect(try await store.duplicate("a", as: "after") != nil)
    #expect(try store.engine.packRows().allSatisfy { $0.state == .live })
    // Another pack is condemned, and this one is not.
    try set(.live)
    try await store.set("other", to: Data("garbage".utf8))
    try store.engine.writer.rollOver()
    let other = try #require(try store.engine.packRows().first { !names.contains($0.name) }).name
    _ = try store.engine.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.updatePack(other) { $0.state = .condemned }
    }
    #expect(try await store.duplicate("a", version: id, as: "b") != nil)
    #expect(try await store.rename("b", to: "c"))
    #expect(try await store.data(forKey: "c") == bytes)
    try await store.close()
  }

  @Test("is what a model says, whatever two processes do in turn", arguments: 0..<3)
  func model(round: Int) async throws {
    var random = SplitMix64.announced()
    let other = try await BlobStore.open(at: place.path)
    let names = (0..<5).map { "k\($0)" }
    var model: [String: [String]] = [:]
    for step in 0..<150 {
      let store = Bool.random(using: &random) ? store : other
      let durability: Durability = Bool.random(using: &random) ? .durable : .relaxed
      let key = names.randomElement(using: &random) ?? ""
      let target = names.randomElement(using: &random) ?? ""
      let known = model[key] ?? []
      let versions = try await store.versions(of: key)
      try #require(versions.count == known.count, "step \(step)")
      let index = versions.indices.randomElement(using: &random)
      switch (Int.random(in: 0..<10, using: &random), index) {
      case (0..<3, _), (_, nil):
        model[key, default: []].insert("\(step % 7)", at: 0)
        let options = PutOptions(
          durability: durability, replacement: .archiveCurrent, metadata: Array("about \(step % 7)".utf8))
        try await store.put(.data(Data("\(step % 7)".utf8)), forKey: key, options: options)
      case (3, let index?):
        model[key]?.insert(known[index], at: 0)
        #expect(try await store.restore(versions[index].id, of: key, durability: durability) != nil)
      case (4, let index?):
        var changed = model[target] ?? []
        if !changed.isEmpty { changed.removeFirst() }
        model[target] = [known[index]] + changed
        let options = PutOptions(durability: durability)
        let result = try await store.duplicate(key, version: versions[index].id, as: target, options: options)
        #expect(result != nil)
      case (5, _):
        guard model[target] == nil else { continue }
        (model[key], model[target]) = (nil, known)
        #expect(try await store.rename(key, to: target, durability: durability))
      case (6, let index?):
        model[key]?.remove(at: index)
        if model[key]?.isEmpty == true { model[key] = nil }
        #expect(try await store.delete(version: versions[index].id, of: key, durability: durability))
      case (7, _): try store.engine.writer.rollOver()
      default:
        #expect(
          try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)).obstacles == [])
      }
    }
    try await expect(model)
    try await other.close()
    try await store.close()
  }

  /// The commit of a deletion begins again when it has to begin a pack. Fails if it remembers what it found before.
  @Test("is deleted for one caller only, also if another deletes it while the first begins a pack")
  func deletedMeanwhile() throws {
    let place = try StorePlace()
    let other = try place.engine()
    let version = try other.put("k", .data(Data([1])), PutOptions()).version
    let isFirst = Atomic<Bool>(true)
    var environment = Engine.Environment()
    environment.files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "rename", path.string.contains("/packs/"),
        isFirst.exchange(false, ordering: .acquiringAndReleasing)
      else { return }
      let isDeleted = try VersionChanges(other).delete(version: version.id, of: "k", .durable)
      #expect(isDeleted)
    }
    let engine = try place.engine(environment)
    #expect(try !VersionChanges(engine).delete(version: version.id, of: "k", .durable))
    let isStillFirst = isFirst.load(ordering: .acquiring)
    #expect(!isStillFirst, "no pack was begun")
  }
}
