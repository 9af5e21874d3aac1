import BlobStorage
import BlobStorageDropIn
import Dispatch
import Foundation
import Synchronization
import Testing

/// What happened, in order.
final class Events: Sendable {
  private let state = Mutex<[String]>([])
  var all: [String] { state.withLock { $0 } }
  func add(_ event: String) { state.withLock { $0.append(event) } }
}

@Suite struct DataArchiveTests {
  let root: Folder
  let archive: DataArchive

  init() throws {
    root = try Folder()
    archive = DataArchive(rootUrl: root.url)
  }

  @Test("DA-1: a value can be set, and after the deletion its key is not listed")
  func setAndDelete() async {
    #expect(await archive.set("person1", value: JSONValueConverter(value: Person("Maxim", 38))).isSuccess)
    #expect(archive.keys == ["person1"])
    #expect(await archive.delete("person1").isSuccess)
    #expect(archive.keys == [])
  }

  @Test("DA-2: a key that never was can be deleted, and is missing")
  func deleteUnknown() async {
    #expect(!(await archive.delete("person2").isSuccess))
    let (person, result) = await archive.person("person2")
    #expect(person == nil)
    #expect(result.isMissing)
  }

  @Test("DA-3: a get sees the set before it that the caller did not wait for")
  func setAndGet() async {
    archive.set(key: "person3", value: JSONValueConverter(value: Person("Maxim", 38)))
    #expect(await archive.person("person3").0 == Person("Maxim", 38))
  }

  @Test("DA-4: versions that the caller did not wait for are all there, the newest first")
  func versions() async {
    for age in 1...3 {
      archive.archiveCurrent(key: "persons", andSetNew: JSONValueConverter(value: Person("Maxim", age)))
    }
    let (people, result) = await archive.people("persons")
    #expect(people.map(\.age) == [3, 2, 1])
    #expect(result.isSuccess)
    #expect(archive.numberOfArchives(key: "persons") == 2)
  }

  @Test("DA-5: a reader sees what was there when it opened, and later operations on the key come after it")
  func lazyReader() async throws {
    for round in 0..<10 {
      let key = "persons\(round)"
      for age in 1...5 {
        archive.archiveCurrent(key: key, andSetNew: JSONValueConverter(value: Person("Maxim", age)))
      }
      let events = Events()
      await withCheckedContinuation { done in
        archive.lazyLockingReader(key: key) { reader in
          // Drained from its own callbacks, which hold it.
          func drain() {
            reader?.getNext(converterType: JSONValueConverter<Person>.self) { person, result in
              events.add(person.map { "\($0.age)" } ?? (result.isEnd ? "end" : "failure"))
              if person != nil { drain() }
            }
          }
          drain()
        }
        archive.archiveCurrent(key: key, andSetNew: JSONValueConverter(value: Person("Maxim", 11))) { _ in
          events.add("11 set")
        }
        archive.getAll(key: key, converterType: JSONValueConverter<Person>.self) { people, _ in
          events.add("all \(people.map(\.age))")
        }
        archive.delete(key: key) { _ in
          events.add("deleted")
          done.resume()
        }
      }
      let seen = events.all.filter { $0 != "end" }
      let expected = ["5", "4", "3", "2", "1", "11 set", "all [11, 5, 4, 3, 2, 1]", "deleted"]
      #expect(seen == expected)
    }
  }

  @Test("a reader holds up its own key only, until it is finished or gone")
  func heldKey() async throws {
    for key in ["k", "other"] {
      for text in ["1", "2"] { archive.archiveCurrent(key: key, andSetNewData: Data(text.utf8)) }
    }
    var reader = await archive.reader("k")
    #expect(await reader?.next().0 == Data("2".utf8))
    let events = Events()
    let (isDeleted, deleted) = AsyncStream<Void>.makeStream()
    archive.delete(key: "k") { _ in
      events.add("deleted")
      deleted.finish()
    }
    // Other keys, and users of another path, continue.
    #expect(await archive.delete("other").isSuccess)
    let elsewhere = DataArchive(rootUrl: try root.detour())
    #expect(await elsewhere.set("k", "3").isSuccess)
    #expect(archive.keys == ["k"])
    #expect(events.all == [])
    #expect(await reader?.next().0 == Data("1".utf8))
    for await _ in isDeleted {}
    #expect(archive.keys == [])
    #expect(reader?.isFinished == true)
    // Finished, or released without a call.
    for isFinished in [true, false] {
      #expect(await archive.set("k", "v").isSuccess)
      reader = await archive.reader("k")
      #expect(reader != nil)
      if isFinished { reader?.finish() }
      reader = nil
      #expect(await archive.text("k") == "v")
    }
  }

  @Test("DA-10: 100 handlers that wait for other keys' handlers get through", .timeLimit(.minutes(3)))
  func waitingHandlers() async {
    let (isDone, done) = AsyncStream<Void>.makeStream()
    let semaphores = (0..<100).map { _ in DispatchSemaphore(value: 0) }
    let last = DispatchSemaphore(value: 0)
    for (index, semaphore) in semaphores.enumerated() {
      archive.set(key: "key\(index)", data: Data("v".utf8)) { _ in
        (index + 1 < semaphores.count ? semaphores[index + 1] : last).wait()
        semaphore.signal()
        if index == 0 { done.finish() }
      }
    }
    archive.set(key: "last", data: Data("v".utf8)) { _ in last.signal() }
    for await _ in isDone {}
  }

  @Test(
    "DA-10: values that were replaced and deleted give their space back by themselves",
    .timeLimit(.minutes(3)))
  func space() async throws {
    for round in 0..<16 {
      #expect(await archive.set("k", randomBytes(1 << 20, seed: UInt64(round + 1))).isSuccess)
    }
    try await settle(below: 3 << 20)
    #expect(await archive.get("k").0 == randomBytes(1 << 20, seed: 16))
    for index in 0..<4 {
      #expect(await archive.set("k\(index)", randomBytes(1 << 20, seed: UInt64(index + 100))).isSuccess)
    }
    for index in 0..<4 { #expect(await archive.delete("k\(index)").isSuccess) }
    #expect(await archive.delete("k").isSuccess)
    try await settle(below: 1 << 20)
  }

  /// Waits until the packs take less than so much; the test's time limit ends it otherwise.
  private func settle(below byteCount: Int) async throws {
    let packs = archivePath + "/.blobstore/packs"
    while true {
      let names = try FileManager.default.contentsOfDirectory(atPath: packs)
      let sizes = names.map { name in
        (try? FileManager.default.attributesOfItem(atPath: packs + "/" + name))?[.size] as? Int ?? 0
      }
      if sizes.reduce(0, +) < byteCount { return }
      try await Task.sleep(for: .milliseconds(20))
    }
  }

  @Test("DA-6: keep leaves the current version and the youngest archives")
  func keep() async {
    for age in 1...10 {
      archive.archiveCurrent(key: "person5", andSetNew: JSONValueConverter(value: Person("Maxim", age)))
    }
    #expect(await archive.person("person5").0?.age == 10)
    #expect(await archive.keep(5, of: "person5").isSuccess)
    #expect(await archive.people("person5").0.map(\.age) == [10, 9, 8, 7, 6, 5])
  }

  @Test("DA-7: bytes come back")
  func bytes() async {
    archive.set(key: "data1", data: Data([1, 2, 3, 4, 5]))
    let data = await archive.get("data1").0
    #expect(sha256(data) == "74f81fe167d99b4cb41d6d0ccda82278caee9f3e2f25d5e5a3936ff3dcec60d0")
  }

  @Test("DA-8: a reader that stops early blocks no other")
  func keepAfterReader() async throws {
    for last in UInt8(1)...10 { archive.archiveCurrent(key: "data2", andSetNewData: Data([1, 2, 3, last])) }
    let reader = try #require(await archive.reader("data2"))
    #expect(await reader.next().0 == Data([1, 2, 3, 10]))
    reader.finish()
    #expect(reader.isFinished)
    #expect(await reader.next().1.isEnd)
    #expect(await archive.keep(2, of: "data2").isSuccess)
    #expect(await archive.all("data2").0 == [10, 9, 8].map { Data([1, 2, 3, $0]) })
  }

  @Test("DA-9: keys do not get mixed up")
  func manyKeys() async {
    await withTaskGroup(of: Void.self) { group in
      for last in UInt8(1)...10 {
        group.addTask { #expect(await archive.set("key\(last)", Data([1, 2, 3, last])).isSuccess) }
      }
    }
    for last in UInt8(1)...10 {
      #expect(await archive.get("key\(last)").0 == Data([1, 2, 3, last]))
      #expect(await archive.delete("key\(last)").isSuccess)
    }
    #expect(archive.keys == [])
  }

  @Test("DA-E1: a deleted key can be set again")
  func setAfterDelete() async {
    for _ in 0..<2 {
      #expect(await archive.set("k", "value").isSuccess)
      #expect(await archive.text("k") == "value")
      #expect(await archive.delete("k").isSuccess)
    }
  }

  @Test("DA-E2: getting an unknown key does not make it")
  func getUnknown() async {
    #expect(await archive.get("unknown").1.isMissing)
    #expect(await archive.all("unknown").1.isMissing)
    #expect(await archive.reader("unknown") == nil)
    #expect(await archive.keep(1, of: "unknown").isMissing)
    #expect(archive.keys == [])
  }

  @Test("DA-E3: a reader of a single version gives it once")
  func readerOfOne() async throws {
    archive.archiveCurrent(key: "k", andSetNewData: Data("v".utf8))
    let reader = try #require(await archive.reader("k"))
    #expect(await reader.next().0 == Data("v".utf8))
    for _ in 0..<2 {
      let (data, result) = await reader.next()
      #expect(data == nil)
      #expect(result.isEnd)
    }
  }

  @Test("DA-E4: a value that cannot be converted leaves the old one")
  func unconvertible() async {
    #expect(await archive.set("k", "v1").isSuccess)
    #expect(await archive.set("k", value: Unconvertible()).isUnconverted)
    #expect(await archive.texts("k") == ["v1"])
    #expect(await archive.person("k").1.isUnconverted)
  }

  @Test("a version that cannot be converted ends getAll, and a reader goes on behind it")
  func unconvertibleVersion() async throws {
    for text in [#"{"name":"Ama","age":1}"#, "junk", #"{"name":"Ama","age":3}"#] {
      #expect(await archive.archive("k", Data(text.utf8)).isSuccess)
    }
    let (people, result) = await archive.people("k")
    #expect(people.map(\.age) == [3])
    guard case .couldNotConvertFile(let url, _) = result else {
      Issue.record("\(result)")
      return
    }
    // The original's name of the second youngest of three.
    #expect(url.path.hasSuffix("/data_archive/k/2.dat"))
    let reader = try #require(await archive.reader("k"))
    var seen: [String] = []
    for _ in 0..<4 {
      let (person, result) = await reader.nextPerson()
      if let person { seen.append("\(person.age)") }
      if result.isUnconverted { seen.append("unconverted") }
      if result.isEnd { seen.append("end") }
    }
    #expect(seen == ["3", "unconverted", "1", "end"])
    #expect(await archive.delete("k").isSuccess)
  }

  @Test("a reader that was finished answers what it was asked before")
  func finishedReader() async throws {
    for text in ["1", "2", "3"] { archive.archiveCurrent(key: "k", andSetNewData: Data(text.utf8)) }
    let reader = try #require(await archive.reader("k"))
    let events = Events()
    let gate = DispatchSemaphore(value: 0)
    await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
      // The reader's thread is held until all calls are made.
      reader.getNext { _, _ in gate.wait() }
      reader.getNext { data, _ in events.add(data.map { String(decoding: $0, as: UTF8.self) } ?? "failure") }
      reader.finish()
      reader.getNext { _, result in
        events.add(result.isEnd ? "end" : "more")
        done.resume()
      }
      gate.signal()
    }
    #expect(events.all == ["2", "end"])
    #expect(await archive.texts("k") == ["3", "2", "1"])
  }

  /// A value whose conversion waits until it is let go.
  private struct Waiting: ValueConverter {
    var value: String
    let gate: DispatchSemaphore

    var toData: Data? { gate.wait(timeout: .now() + 300) == .success ? Data(value.utf8) : nil }
    static func from(data: Data) -> Waiting? { nil }
  }

  @Test("a value is converted without the caller's waiting, and what is called later comes behind it")
  func conversionElsewhere() async {
    let gate = DispatchSemaphore(value: 0)
    archive.set(key: "k", value: Waiting(value: "1", gate: gate))
    archive.archiveCurrent(key: "k", andSetNewData: Data("2".utf8))
    // Other keys go on meanwhile.
    #expect(await archive.set("other", "value").isSuccess)
    gate.signal()
    #expect(await archive.texts("k") == ["2", "1"])
  }

  @Test("thousands of operations that wait for one of their key are done in the order of the calls")
  func longLane() async {
    #expect(await archive.set("k", "v").isSuccess)
    let events = Events()
    let gate = DispatchSemaphore(value: 0)
    await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
      archive.get(key: "k") { _, _ in gate.wait() }
      for number in 0..<2_500 {
        archive.get(key: "k") { _, _ in
          events.add("\(number)")
          if number == 2_499 { done.resume() }
        }
      }
      gate.signal()
    }
    #expect(events.all == (0..<2_500).map { "\($0)" })
  }

  @Test("all keys are listed, however many there are", arguments: [999, 1_000, 2_001])
  func allKeys(count: Int) async throws {
    let store = try await BlobStore.create(at: archivePath + "/.blobstore")
    let names = (0..<count).map { "\(10_000 + $0)" }
    try await store.put(names.map { PutItem(key: "a/" + $0, data: Data()) })
    try await store.close()
    #expect(archive.keys == names)
  }

  @Test("DA-E5: archiving on a new key is a plain success")
  func archiveNew() async {
    #expect(await archive.archive("k", Data("v".utf8)).isSuccess)
    #expect(archive.numberOfArchives(key: "k") == 0)
  }

  @Test("DA-E6: keys that are no names of folders are keys")
  func strangeKeys() async throws {
    let keys = [
      "a", "a/b", "../x", ".hidden", String(repeating: "k", count: 300), "\u{E9}", "e\u{301}", "A", "\u{301}",
      ".blobstore",
    ]
    for key in keys { #expect(await archive.set(key, "value of \(key)").isSuccess) }
    // As strings, the composed and the decomposed letter would be equal.
    #expect(Set(archive.keys.map { Array($0.utf8) }) == Set(keys.map { Array($0.utf8) }))
    #expect(archive.keys.count == keys.count)
    for key in keys { #expect(await archive.get(key).0 == Data("value of \(key)".utf8)) }
    #expect(await archive.delete("a").isSuccess)
    #expect(await archive.text("a/b") == "value of a/b")
    #expect(try FileManager.default.contentsOfDirectory(atPath: root.url.path) == ["data_archive"])
    #expect(try FileManager.default.contentsOfDirectory(atPath: archivePath) == [".blobstore"])
    #expect(await archive.set("", "value").isUnwritten)
    #expect(await archive.set("nul\0", "value").isUnwritten)
    #expect(!(await archive.get("").1.isSuccess))
    #expect(!(await archive.all("").1.isSuccess))
    #expect(!(await archive.delete("").isSuccess))
    #expect(await archive.reader("") == nil)
    #expect(archive.numberOfArchives(key: "") == 0)
  }

  private var archivePath: String { root.url.appendingPathComponent("data_archive").path }

  @Test("DA-E7: no bytes are a value")
  func empty() async {
    #expect(await archive.set("k", Data()).isSuccess)
    let (data, result) = await archive.get("k")
    #expect(data == Data())
    #expect(result.isSuccess)
  }

  @Test(
    "DA-E8: a limit of 0 or less is refused here",
    arguments: [(-1, false), (0, false), (10, true), (Int.max, true)])
  func limits(limit: Int, isTaken: Bool) async throws {
    for text in ["1", "2", "3"] { archive.archiveCurrent(key: "k", andSetNewData: Data(text.utf8)) }
    let result = await archive.keep(limit, of: "k")
    #expect(result.isSuccess == isTaken)
    #expect(result.isLimit == !isTaken)
    #expect(await archive.texts("k") == ["3", "2", "1"])
    let store = try await BlobStore.open(at: archivePath + "/.blobstore")
    let retention = try await store.keep(upTo: 0, of: "a/k")
    #expect(retention.droppedVersionCount == 2)
    #expect(await archive.texts("k") == ["3"])
    try await store.close()
  }

  @Test("DA-E10: damage is an error, not a value")
  func damage() async throws {
    let value = randomBytes(5_000, seed: 10)
    #expect(await archive.set("k", value).isSuccess)
    try #require(try root.damage(value) == 1)
    let other = DataArchive(rootUrl: try root.detour())
    let (data, result) = await other.get("k")
    #expect(data == nil)
    #expect(result.isUnconverted)
  }

  @Test("damage in an older version is told with its place, and what is younger and older is read")
  func damagedVersion() async throws {
    let values = (0..<3).map { randomBytes(5_000, seed: UInt64($0 + 20)) }
    for value in values { #expect(await archive.archive("k", value).isSuccess) }
    try #require(try root.damage(values[1]) == 1)
    let other = DataArchive(rootUrl: try root.detour())
    let (read, result) = await other.all("k")
    #expect(read == [values[2]])
    guard case .couldNotConvertFile(let url, _) = result else {
      Issue.record("\(result)")
      return
    }
    #expect(url.path.hasSuffix("/data_archive/k/2.dat"))
    let reader = try #require(await other.reader("k"))
    #expect(await reader.next().0 == values[2])
    let (damaged, told) = await reader.next()
    #expect(damaged == nil)
    #expect(told.isUnconverted)
    #expect(await reader.next().0 == values[0])
    #expect(await reader.next().1.isEnd)
    #expect(await other.get("k").0 == values[2])
  }

  @Test("an archive touches nothing before its first operation")
  func noInputOutput() throws {
    #expect(try FileManager.default.contentsOfDirectory(atPath: root.url.path) == [])
  }

  @Test("the bytes of an image come back as they are")
  func image() async {
    let png = Data([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) + randomBytes(1_000, seed: 1)
    #expect(await archive.set("image", value: ImageDataConverter(value: png)).isSuccess)
    let image = await withCheckedContinuation { done in
      archive.get(key: "image", converterType: ImageDataConverter.self) { value, _ in
        done.resume(returning: value)
      }
    }
    #expect(image == png)
    #expect(await archive.set("image", value: ImageDataConverter(value: Data())).isUnconverted)
    #expect(await archive.set("empty", Data()).isSuccess)
    let result = await withCheckedContinuation { (done: CheckedContinuation<DataArchiveResult, Never>) in
      archive.get(key: "empty", converterType: ImageDataConverter.self) { _, result in
        done.resume(returning: result)
      }
    }
    #expect(result.isUnconverted)
  }

  @Test("two archives on one root share what they hold, and so does one in another way there")
  func severalArchives() async throws {
    let second = DataArchive(rootUrl: root.url)
    let third = DataArchive(rootUrl: try root.detour())
    archive.set(key: "k", data: Data("1".utf8))
    #expect(await second.text("k") == "1")
    #expect(await third.archive("k", Data("2".utf8)).isSuccess)
    #expect(await archive.texts("k") == ["2", "1"])
  }
}
