import BlobStorage
import BlobStorageMount
import BlobStorageTestSupport
import BlobStorageTransfer
import BlobStorageTrees
import Foundation
import SystemPackage
import Testing

/// States against a model: what was recorded is what is listed, whatever the states build on and whichever were dropped.
@Suite("States")
struct StateTests {
  private let place: StorePlace
  private let engine: Engine
  private var states: StateFile { StateFile(engine) }

  init() throws {
    place = try StorePlace()
    engine = try place.engine()
  }

  private typealias Model = [String: StateEntry.Content]

  /// Records a state of these entries, added in no order.
  private func record(
    _ model: Model, prefix: String = "", name: String? = nil, _ random: inout SplitMix64
  ) throws -> TreeState {
    let recorder = try StateRecorder(
      engine, prefix: prefix, name: name, origin: TreeOrigin(["source"]),
      created: Date(timeIntervalSince1970: Double(random.below(1_000_000))))
    for (key, content) in model.shuffled(using: &random) {
      switch content {
      case .version(let stamp): recorder.add(Array(key.utf8), BlobVersion.ID(stamp))
      case .folder(let metadata): recorder.addFolder(Array(key.utf8), metadata)
      case .removed: break
      }
    }
    recorder.state.fileCount = model.count
    return try recorder.finish()
  }

  private func listed(_ state: TreeState) throws -> Model {
    let walk = try states.walk(state)
    defer { walk.close() }
    var model: Model = [:]
    var last: [UInt8]?
    while let entry = try walk.next() {
      #expect(last?.lexicographicallyPrecedes(entry.key) ?? true)
      last = entry.key
      model[String(decoding: entry.key, as: UTF8.self)] = entry.content
    }
    return model
  }

  private func change(_ model: inout Model, count: Int, _ random: inout SplitMix64) {
    for _ in 0..<count {
      let key = "folder \(random.below(20))/\(random.below(60))"
      switch random.below(6) {
      case 0: model[key] = nil
      case 1: model[key + "/"] = .folder(Array(random.noise(random.below(40))))
      default:
        model[key] = .version(Stamp(time: random.next() >> 2, writer: UInt64(random.below(3))))
      }
    }
  }

  @Test("list what was recorded, in order, however many build on each other", arguments: 1...4)
  func model(_ seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    var model: Model = [:]
    var known: [(TreeState, Model)] = []
    for round in 0..<40 {
      change(&model, count: round == 0 ? 800 : random.below(30), &random)
      known.append((try record(model, &random), model))
      if random.below(5) == 0 {
        let index = random.below(known.count)
        try states.drop([known.remove(at: index).0])
      }
    }
    for (state, model) in known { #expect(try listed(state) == model) }
    let found = try states.states()
    #expect(Set(found.map(\.id)) == Set(known.map(\.0.id)))
    // Links go with the last state that builds on them.
    try states.drop(known.map(\.0))
    #expect(try engine.internalVersions().isEmpty)
  }

  @Test("store what has changed, and no more")
  func size() throws {
    var random = SplitMix64(seed: 5)
    var model: Model = [:]
    for index in 0..<20_000 {
      model["folder/\(index)"] = .version(Stamp(time: 1 << 40 + UInt64(index), writer: 7))
    }
    let first = try record(model, &random)
    model["folder/700"] = nil
    model["folder/701"] = .version(Stamp(time: 1 << 50, writer: 7))
    let second = try record(model, &random)
    func byteCount(_ state: TreeState) throws -> Int64 {
      let versions = try engine.internalVersions()
      return try #require(versions.first { $0.key.suffix(16).elementsEqual(state.id.description.utf8) }).row
        .byteCount
    }
    #expect(try byteCount(second) < 60)
    #expect(try byteCount(first) > 20_000)
    #expect(try listed(second) == model)
  }

  @Test("have all entries again when the changes become long")
  func rebuilt() throws {
    var random = SplitMix64(seed: 6)
    var model: Model = [:]
    change(&model, count: 1_200, &random)
    var last: TreeState?
    for _ in 0..<250 {
      change(&model, count: 3, &random)
      last = try record(model, &random)
    }
    let state = try #require(last)
    try states.drop(try states.states().filter { $0.id != state.id })
    #expect(try listed(state) == model)
    // Fewer than all that were recorded.
    #expect(try engine.internalVersions().count < 220)
  }

  @Test("are told apart by prefix: one builds on the last of its own")
  func prefixes() throws {
    var random = SplitMix64(seed: 7)
    var models: [String: Model] = [:]
    for round in 0..<12 {
      let prefix = ["", "a/", "a/b/"][round % 3]
      change(&models[prefix, default: [:]], count: 20, &random)
      let state = try record(models[prefix] ?? [:], prefix: prefix, &random)
      #expect(try listed(state) == models[prefix])
    }
  }

  @Test("say what is wrong with a name")
  func names() throws {
    var random = SplitMix64(seed: 8)
    _ = try record(["a": .version(Stamp(time: 1, writer: 1))], name: "one", &random)
    for name in ["one", "", "a/b", "..", String(repeating: "x", count: 256)] {
      expectThrows(.invalidArgument) {
        _ = try StateRecorder(engine, prefix: "", name: name, origin: TreeOrigin([]), created: Date())
      }
    }
  }

  @Test("that are named alike by imports at the same time get a number behind the name")
  func sameName() throws {
    let recorders = try (0..<3).map { _ in
      try StateRecorder(engine, prefix: "", name: "one", origin: TreeOrigin([]), created: Date())
    }
    for (recorder, name) in zip(recorders, ["one", "one-2", "one-3"]) {
      recorder.add(Array("a".utf8), BlobVersion.ID(Stamp(time: 1, writer: 1)))
      #expect(try recorder.finish().name == name)
    }
    #expect(try Set(states.states().map(\.name)) == ["one", "one-2", "one-3"])
  }

  @Test("of one name, which a copy can bring, have names of their own in a mount")
  func mountedNames() throws {
    let other = try StorePlace()
    let source = try other.engine()
    for engine in [engine, source] {
      let recorder = try StateRecorder(
        engine, prefix: "", name: "one", origin: TreeOrigin([]), created: Date(timeIntervalSince1970: 1))
      recorder.addFolder([], [])
      _ = try recorder.finish()
    }
    _ = try Copier(from: source, to: engine, CopyOptions()).run()
    let tree = StatesTree(engine)
    let children = try tree.page(of: [], after: nil).children
    #expect(children.count == 2 && Set(children.map(\.name)).count == 2)
    #expect(Set(children.map(\.item)).count == 2)
    for child in children { #expect(try tree.item(named: child.name, in: []) == child.item) }
    try source.close()
  }

  @Test("are listed in a mount with the attributes of their folders, without their other entries")
  func mounted() async throws {
    let store = try await place.opened()
    let folder = place.temporary.path.string + "/tree"
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    for name in ["a", "b", "c"] { try Data("a".utf8).write(to: URL(filePath: folder + "/" + name)) }
    let state = try #require(
      try await store.importFiles([folder], options: ImportOptions(prefix: "t/")).state)
    let key = InternalKey.Purpose.state.key(Array(state.id.description.utf8))
    let record = try #require(try engine.internalVersions(key).first)
    let entries = try #require(try engine.data(record.row.digest))
    // Bytes that are no entry.
    try engine.putInternal(key, .data(entries + Data([9, 9, 9])), metadata: record.row.metadata)
    let tree = StatesTree(engine)
    let children = try tree.page(of: [], after: nil).children
    #expect(children.count == 1)
    for child in children {
      guard case .folder(let path) = child.item else { continue }
      for _ in 0..<2 { #expect(try tree.mark(ofFolder: path) != nil) }
      expectThrows(.corrupted) { _ = try tree.page(of: path, after: nil) }
    }
    try await store.close()
  }

  @Test(
    "are listed in a mount by their IDs if a forged name is none of a folder", arguments: ["a/b", "a\0b"])
  func forgedName(_ name: String) async throws {
    let store = try await place.opened()
    let folder = place.temporary.path.string + "/tree"
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try Data("a".utf8).write(to: URL(filePath: folder + "/a"))
    let options = ImportOptions(prefix: "t/", stateName: "a-b")
    let state = try #require(try await store.importFiles([folder], options: options).state)
    let key = InternalKey.Purpose.state.key(Array(state.id.description.utf8))
    let record = try #require(try engine.internalVersions(key).first)
    let entries = try #require(try engine.data(record.row.digest))
    let metadata = Data(record.row.metadata)
    var forged = metadata
    forged.replaceSubrange(try #require(metadata.firstRange(of: Data("a-b".utf8))), with: Data(name.utf8))
    try engine.putInternal(key, .data(entries), metadata: Array(forged))
    #expect(try await store.states().map(\.name) == [name])
    let tree = StatesTree(engine)
    let names = try tree.page(of: [], after: nil).children.map(\.name)
    #expect(names == [Array(state.id.description.utf8)])
    #expect(try tree.item(named: try #require(names.first), in: []) != nil)
    try await store.close()
  }

  private func expectThrows(_ code: BlobStorageError.Code, _ body: () throws -> Void) {
    do {
      try body()
      Issue.record("nothing was thrown")
    } catch { #expect((error as? BlobStorageError)?.code == code) }
  }

  @Test("that others build on are missed, and not passed over")
  func missingParent() throws {
    var random = SplitMix64(seed: 9)
    var model: Model = [:]
    change(&model, count: 900, &random)
    let first = try record(model, &random)
    change(&model, count: 2, &random)
    let second = try record(model, &random)
    try engine.dropInternal([InternalKey.Purpose.state.key(Array(first.id.description.utf8))])
    expectThrows(.corrupted) { _ = try listed(second) }
    // The next one builds on nothing that cannot be read.
    #expect(try listed(record(model, &random)) == model)
  }

  @Test("survive the loss of the catalog, and gc, and come along with a copy")
  func lasting() throws {
    var random = SplitMix64(seed: 10)
    var model: Model = [:]
    change(&model, count: 900, &random)
    _ = try record(model, &random)
    change(&model, count: 9, &random)
    let state = try record(model, &random)
    _ = try engine.collectGarbage()
    try engine.close()
    try FileManager.default.removeItem(atPath: place.path + "/catalog")
    let reopened = try place.engine()
    let walk = try StateFile(reopened).walk(state)
    defer { walk.close() }
    var count = 0
    while let entry = try walk.next() {
      #expect(model[String(decoding: entry.key, as: UTF8.self)] == entry.content)
      count += 1
    }
    #expect(count == model.count)
    // No list of keys shows them.
    #expect(try reopened.keys("", after: nil, limit: 10).isEmpty)
    try reopened.close()
  }
}
