import BlobStorageDropIn
import Dispatch
import Foundation
import Testing

@Suite struct PersistentDataStoreTests {
  let home: Folder
  let store: PersistentDataStore

  init() throws {
    let home = try Folder()
    self.home = home
    store = try UserFolders.$environment.withValue(home.environment) {
      try PersistentDataStore(name: "images")
    }
  }

  private func put(_ data: Data?, _ identifier: String) async -> PersistentDataStore.Result {
    await withCheckedContinuation { done in
      store.storeData({ data }, identifier: identifier) { done.resume(returning: $0) }
    }
  }

  private func text(_ identifier: String) async -> String? {
    await withCheckedContinuation { done in
      store.loadData(forIdentifier: identifier, dataTransformer: { String(decoding: $0, as: UTF8.self) }) {
        done.resume(returning: $0)
      }
    }
  }

  @Test("the folder is made with the data store")
  func folder() throws {
    var isDirectory: ObjCBool = false
    let path = home.url.appendingPathComponent("Documents/images").path
    #expect(FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory) && isDirectory.boolValue)
    try home.write("a file", to: "Documents/taken")
    #expect(throws: (any Error).self) {
      try UserFolders.$environment.withValue(home.environment) {
        try PersistentDataStore(name: "taken/images")
      }
    }
  }

  @Test("PD-1: what a provider gives is loaded by a transformer")
  func storeAndLoad() async {
    let result = await put(Data("Data".utf8), "abc")
    guard case .success("abc") = result else {
      Issue.record("\(result)")
      return
    }
    #expect(await text("abc") == "Data")
    let data = await withCheckedContinuation { done in
      store.loadData(forIdentifier: "abc", dataTransformer: { $0 }) { done.resume(returning: $0) }
    }
    #expect(sha256(data) == "cec3a9b89b2e391393d0f68e4bc12a9fa6cf358b3cdf79496dc442d52b8dd528")
  }

  @Test("PD-6: white space around an identifier does not count, and the given one is handed back")
  func trimmed() async throws {
    let result = await put(Data("value".utf8), " padded \n")
    guard case .success(" padded \n") = result else {
      Issue.record("\(result)")
      return
    }
    for identifier in ["padded", " padded \n", "\tpadded"] { #expect(await text(identifier) == "value") }
    guard case .failed = await put(Data("value".utf8), " \n") else {
      Issue.record("an identifier of white space alone names nothing")
      return
    }
    store.removeData(forIdentifier: "padded ")
    #expect(await text("padded") == nil)
  }

  @Test("PD-6: a file that the original has written for a padded identifier is found")
  func trimmedFile() async throws {
    try home.write("old", to: "Documents/images/a")
    #expect(await text(" a ") == "old")
  }

  @Test("PD-2: data without a name gets one of its own")
  func generatedIdentifiers() async throws {
    var identifiers: [String] = []
    for text in ["x", "y"] {
      let result = await withCheckedContinuation { done in
        store.storeData({ Data(text.utf8) }) { done.resume(returning: $0) }
      }
      guard case .success(let identifier) = result else {
        Issue.record("\(result)")
        return
      }
      identifiers.append(identifier)
    }
    #expect(identifiers[0] != identifiers[1])
    #expect(await text(identifiers[0]) == "x")
    #expect(await text(identifiers[1]) == "y")
  }

  @Test("PD-3, PD-4: no data leaves the old data", arguments: [nil, Data()])
  func noData(_ data: Data?) async {
    _ = await put(Data("x".utf8), "abc")
    let result = await put(data, "abc")
    guard case .noData = result else {
      Issue.record("\(result)")
      return
    }
    #expect(await text("abc") == "x")
  }

  @Test("an empty identifier is a failure")
  func emptyIdentifier() async {
    let result = await put(Data("x".utf8), "")
    guard case .failed = result else {
      Issue.record("\(result)")
      return
    }
    #expect(await text("") == nil)
  }

  @Test("PD-5: removing all leaves loads with the whole old data or nil")
  func removeAll() async {
    let values = (0..<100).map {
      String(decoding: Data(repeating: UInt8(65 + $0 % 26), count: 4_000 + $0), as: UTF8.self)
    }
    for (number, value) in values.enumerated() { _ = await put(Data(value.utf8), "key\(number)") }
    await withTaskGroup(of: (Int, String?).self) { group in
      for number in 0..<100 { group.addTask { (number, await text("key\(number)")) } }
      store.removeAll()
      for number in 0..<100 { group.addTask { (number, await text("key\(number)")) } }
      for await (number, value) in group { #expect(value == nil || value == values[number]) }
    }
    for number in 0..<100 { #expect(await text("key\(number)") == nil) }
  }

  @Test("a removal comes after the store before it and before the load after it")
  func barriers() async {
    for round in 0..<20 {
      store.storeData({ Data("\(round)".utf8) }, identifier: "k") { _ in }
      async let loaded = text("k")
      #expect(["\(round)"] == [await loaded])
      store.removeData(forIdentifier: "k")
      #expect(await text("k") == nil)
    }
  }

  @Test("completions arrive on the main queue, closures run elsewhere")
  func queues() async {
    await withCheckedContinuation { done in
      store.storeData({
        dispatchPrecondition(condition: .notOnQueue(.main))
        return Data("x".utf8)
      }) { _ in
        dispatchPrecondition(condition: .onQueue(.main))
        done.resume()
      }
    }
    _ = await put(Data("x".utf8), "k")
    let loaded = await withCheckedContinuation { (done: CheckedContinuation<Data?, Never>) in
      store.loadData(
        forIdentifier: "k",
        dataTransformer: { (data: Data) -> Data? in
          dispatchPrecondition(condition: .notOnQueue(.main))
          return data
        },
        completionHandler: { (data: Data?) in
          dispatchPrecondition(condition: .onQueue(.main))
          done.resume(returning: data)
        })
    }
    #expect(loaded == Data("x".utf8))
  }

  /// Loads; the transformer says that it has begun, and whether another has.
  private func meets(_ mine: DispatchSemaphore, _ other: DispatchSemaphore) async -> Bool? {
    await withCheckedContinuation { (done: CheckedContinuation<Bool?, Never>) in
      store.loadData(
        forIdentifier: "k",
        dataTransformer: { (_: Data) -> Bool? in
          mine.signal()
          return other.wait(timeout: .now() + 300) == .success
        },
        completionHandler: { (isMet: Bool?) in done.resume(returning: isMet) })
    }
  }

  @Test("loads run side by side")
  func sideBySide() async {
    _ = await put(Data("x".utf8), "k")
    let (first, second) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    async let one = meets(first, second)
    async let two = meets(second, first)
    let met = [await one, await two]
    #expect(met == [true, true])
  }

  /// The text of an identifier, read through an instance of its own, which waits for no other.
  private func textElsewhere(_ identifier: String) async throws -> String? {
    let other = try UserFolders.$environment.withValue(["HOME": home.detour().path]) {
      try PersistentDataStore(name: "images")
    }
    return await withCheckedContinuation { done in
      other.loadData(forIdentifier: identifier, dataTransformer: { String(decoding: $0, as: UTF8.self) }) {
        done.resume(returning: $0)
      }
    }
  }

  @Test(
    "a store or removal waits for the loads before it", arguments: ["store", "removal", "removal of all"])
  func changeBehindLoad(_ change: String) async throws {
    _ = await put(Data("old".utf8), "k")
    let gate = DispatchSemaphore(value: 0)
    let (hasBegun, begun) = AsyncStream<Void>.makeStream()
    let (hasEnded, ended) = AsyncStream<Bool>.makeStream()
    store.loadData(
      forIdentifier: "k",
      dataTransformer: { (_: Data) -> Bool? in
        begun.finish()
        return gate.wait(timeout: .now() + 300) == .success
      },
      completionHandler: { (isReleased: Bool?) in
        ended.yield(isReleased == true)
        ended.finish()
      })
    for await _ in hasBegun {}
    switch change {
    case "store": store.storeData({ Data("new".utf8) }, identifier: "k") { _ in }
    case "removal": store.removeData(forIdentifier: "k")
    default: store.removeAll()
    }
    // What does not wait is done by then.
    try await Task.sleep(for: .milliseconds(200))
    #expect(try await textElsewhere("k") == "old")
    gate.signal()
    for await isReleased in hasEnded { #expect(isReleased) }
    #expect(await text("k") == (change == "store" ? "new" : nil))
  }

  @Test("the work does not wait for the main queue", .timeLimit(.minutes(3)))
  func busyMainQueue() async {
    let store = store
    let isLoaded = DispatchSemaphore(value: 0)
    let isDone = await withCheckedContinuation { (done: CheckedContinuation<Bool, Never>) in
      DispatchQueue.main.async { done.resume(returning: isLoaded.wait(timeout: .now() + 300) == .success) }
      store.storeData({ Data("x".utf8) }, identifier: "k") { _ in }
      store.loadData(
        forIdentifier: "k",
        dataTransformer: { (data: Data) -> Data? in
          isLoaded.signal()
          return data
        },
        completionHandler: { (_: Data?) in })
    }
    #expect(isDone)
  }
}
