import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import BlobStorageTrees
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("What a copy changes in its target")
struct CopyRuleTests {
  private func put(_ engine: Engine, _ key: String, _ text: String, archives: Bool = true) throws
    -> BlobVersion.ID
  {
    let options = PutOptions(replacement: archives ? .archiveCurrent : .replaceCurrent)
    return try engine.put(key, Array(text.utf8), options).version.id
  }

  private func texts(_ engine: Engine, _ key: String) throws -> [String] {
    try engine.versions(key).map { String(decoding: try engine.data(key, $0.id) ?? Data(), as: UTF8.self) }
  }

  @Test(
    "is what the source knows: what it dropped goes, and what it shows comes back", arguments: CopyPlace.pairs
  )
  func drops(_ fromRemote: Bool, _ toRemote: Bool) throws {
    let sourcePlace = try CopyPlace(isRemote: fromRemote)
    let source = try sourcePlace.engine()
    let targetPlace = try CopyPlace(isRemote: toRemote)
    let target = try targetPlace.engine()
    let first = try put(source, "k", "first")
    _ = try put(source, "k", "second")
    try runCopy(source, to: target)
    _ = try put(source, "k", "third", archives: false)
    #expect(try runCopy(source, to: target).droppedVersionCount == 1)
    #expect(try texts(target, "k") == ["third", "first"])

    // What the target puts by itself is newer, and stays.
    _ = try put(target, "k", "own", archives: false)
    #expect(try texts(target, "k") == ["own", "first"])
    #expect(try runCopy(source, to: target).newVersionCount == 1)
    #expect(try texts(target, "k") == ["own", "third", "first"])
    #expect(try runCopy(source, to: target).newVersionCount == 0)
    #expect(try target.versions("k").last?.id == first)

    // An ID that was dropped is hidden for good: what comes back has others, and its old time.
    _ = try target.delete(["k"], .durable)
    #expect(try runCopy(source, to: target).newVersionCount == 2)
    #expect(try texts(target, "k") == ["third", "first"])
    #expect(try target.versions("k").last?.id != first)
    #expect(try target.versions("k").map(\.created) == source.versions("k").map(\.created))
    #expect(try runCopy(source, to: target).newVersionCount == 0)

    // Dropped in the source, it goes under whatever ID it has.
    _ = try source.delete(["k"], .durable)
    #expect(try runCopy(source, to: target).droppedVersionCount == 2)
    #expect(try texts(target, "k") == [])
    #expect(try runCopy(source, to: target).droppedVersionCount == 0)
  }

  @Test("is nothing that it has alone, unless it is to be a mirror; and only keys of the prefix")
  func mirror() throws {
    let sourcePlace = try CopyPlace(isRemote: false)
    let source = try sourcePlace.engine()
    let targetPlace = try CopyPlace(isRemote: false)
    let target = try targetPlace.engine()
    for key in ["a/1", "a/2", "b/1"] { _ = try put(source, key, key) }
    #expect(try runCopy(source, to: target, prefix: "a/").keyCount == 2)
    #expect(try target.keys("", after: nil, limit: 10).map(\.key) == ["a/1", "a/2"])
    for key in ["a/1", "a/own", "c"] { _ = try put(target, key, "own") }
    try runCopy(source, to: target)
    #expect(try target.keys("", after: nil, limit: 10).map(\.key) == ["a/1", "a/2", "a/own", "b/1", "c"])
    #expect(try texts(target, "a/1") == ["own", "a/1"])
    #expect(try runCopy(source, to: target, prefix: "a/", isMirror: true).droppedVersionCount == 2)
    #expect(try target.keys("", after: nil, limit: 10).map(\.key) == ["a/1", "a/2", "b/1", "c"])
    #expect(try runCopy(source, to: target, isMirror: true).droppedVersionCount == 1)
    #expect(try contents(of: target) == contents(of: source))
  }

  @Test("is no chunk that it has, however it was cut there")
  func otherChunks() throws {
    var random = SplitMix64.announced()
    let sourcePlace = try CopyPlace(isRemote: false, StoreOptions(averageChunkByteCount: 1_024))
    let source = try sourcePlace.engine()
    let targetPlace = try CopyPlace(isRemote: false, StoreOptions(averageChunkByteCount: 4_096))
    let target = try targetPlace.engine()
    let bytes = [random.bytes(0), random.bytes(700), random.bytes(50_000), CopyContent.long(&random)]
    for (index, bytes) in bytes.enumerated() {
      _ = try source.put("\(index)", bytes)
      _ = try target.put("own \(index)", bytes)
    }
    let report = try runCopy(source, to: target)
    #expect(report.chunkCount == 0 && report.newVersionCount == bytes.count)
    // What it has no more is brought, under the manifest of the source.
    let otherPlace = try CopyPlace(isRemote: false, StoreOptions(averageChunkByteCount: 4_096))
    let other = try otherPlace.engine()
    #expect(try runCopy(source, to: other).chunkCount > 6_000_000 / 4_096)
    for engine in [target, other] {
      for (index, bytes) in bytes.enumerated() { #expect(try engine.data("\(index)", nil) == Data(bytes)) }
      #expect(try engine.verify().damaged == [])
    }
  }

  @Test("names no chunks any more that were cut otherwise, once the same bytes are put")
  func ownManifest() throws {
    var random = SplitMix64.announced()
    let sourcePlace = try CopyPlace(isRemote: false, StoreOptions(averageChunkByteCount: 1_024))
    let source = try sourcePlace.engine()
    let targetPlace = try CopyPlace(isRemote: false, StoreOptions(averageChunkByteCount: 4_096))
    let target = try targetPlace.engine()
    for (index, bytes) in [random.bytes(50_000), CopyContent.long(&random)].enumerated() {
      _ = try source.put("\(index)", bytes)
      let digest = try #require(try source.version("\(index)", nil)).digest
      func chunkCount(_ engine: Engine) throws -> Int64 {
        try #require(try engine.blobs.layout(digest)).chunkCount
      }
      try runCopy(source, to: target)
      let copied = try chunkCount(target)
      #expect(try copied == chunkCount(source))
      // Those chunks may be collected, for all that the put knows.
      _ = try target.put("own", bytes)
      #expect(try chunkCount(target) < copied / 2)
      let again = try target.put("again", bytes)
      #expect(again.newByteCount == 0 && again.storedByteCount < 200)
      #expect(try target.data("\(index)", nil) == Data(bytes))
    }
    #expect(try target.verify().damaged == [])
  }

  @Test("is all but what the source cannot read", arguments: [false, true])
  func damaged(_ isRemote: Bool) throws {
    var random = SplitMix64.announced()
    let from = try CopyPlace(isRemote: isRemote)
    let source = try from.engine()
    for index in 0..<3 { _ = try source.put("\(index)", random.bytes(10_000), PutOptions()) }
    let digest = try #require(try source.version("1", nil)).digest
    try source.close()
    try damageRecord(of: digest, in: from)
    try from.remote?.removeState("one")
    let opened = try from.engine()
    let targetPlace = try CopyPlace(isRemote: false)
    let target = try targetPlace.engine()
    let report = try runCopy(opened, to: target)
    #expect(report.damaged.map(\.key) == ["1"])
    #expect(report.damaged.first?.digest == digest)
    #expect(report.newVersionCount == 2)
    #expect(try target.keys("", after: nil, limit: 10).map(\.key) == ["0", "2"])
    #expect(try target.verify().damaged == [])
  }

  @Test("is all but what the source cannot read of the versions that it keeps for states")
  func damagedReplaced() throws {
    var random = SplitMix64.announced()
    let from = try CopyPlace(isRemote: false)
    let source = try from.engine()
    _ = try source.put("k", random.bytes(10_000), PutOptions())
    let digest = try #require(try source.version("k", nil)).digest
    var options = PutOptions()
    options.keepsReplaced = true
    _ = try source.put("k", random.bytes(10_000), options)
    try source.close()
    try damageRecord(of: digest, in: from)
    let (opened, targetPlace) = (try from.engine(), try CopyPlace(isRemote: false))
    let target = try targetPlace.engine()
    let report = try runCopy(opened, to: target)
    #expect(report.damaged.map(\.key) == ["a state of “k”"])
    #expect(report.damaged.map(\.digest) == [digest])
    #expect(try target.keys("", after: nil, limit: 10).map(\.key) == ["k"])
    #expect(try target.verify().damaged == [])
  }

  @Test("is what the source has dropped of its states, also in a mirror that cannot copy a version")
  func statesBesideDamage() throws {
    var random = SplitMix64.announced()
    let (from, folder) = (try CopyPlace(isRemote: false), try TemporaryFolder())
    let source = try from.engine()
    try SystemFiles().write([1], to: folder.path.appending("a"))
    let report = try Importer(source, ImportOptions(prefix: "i/"), nil).run([folder.path.string])
    let state = try #require(report.state)
    let targetPlace = try CopyPlace(isRemote: false)
    let target = try targetPlace.engine()
    try runCopy(source, to: target)
    #expect(try StateFile(target).states().map(\.id) == [state.id])
    try StateFile(source).drop([state])
    _ = try source.put("k", random.bytes(10_000), PutOptions())
    let digest = try #require(try source.version("k", nil)).digest
    try source.close()
    try damageRecord(of: digest, in: from)
    let opened = try from.engine()
    let copied = try Copier(from: opened, to: target, CopyOptions(isMirror: true)).run()
    #expect(copied.damaged.map(\.key) == ["k"])
    #expect(try StateFile(target).states().isEmpty)
  }

  @Test("is no chunk that is not what its digest says, though its checksum is right")
  func wrongDigest() throws {
    let sourcePlace = try CopyPlace(isRemote: false)
    let source = try sourcePlace.engine()
    let targetPlace = try CopyPlace(isRemote: false)
    let target = try targetPlace.engine()
    _ = try put(source, "good", "good")
    let (right, wrong) = (Array("as it should be".utf8), Array("as it really is".utf8))
    let digest = BlobDigest.of(right)
    _ = try source.writer.commit { (commit) throws(BlobStorageError) in
      try commit.append(
        .chunk(ChunkRecord(digest: digest, plainByteCount: wrong.count, codecNumber: 0)),
        payload: wrong.span.bytes)
      _ = try commit.append(
        .ref(
          RefRecord(
            key: Array("bad".utf8), version: try commit.stamp(), replaced: .none, digest: digest,
            byteCount: Int64(wrong.count), created: 0, metadata: [])))
    }
    let report = try runCopy(source, to: target)
    #expect(report.damaged.map(\.key) == ["bad"])
    #expect(report.damaged.first?.digest == digest)
    #expect(report.newVersionCount == 1 && report.chunkCount == 1)
    #expect(try target.keys("", after: nil, limit: 10).map(\.key) == ["good"])
    // The right bytes are new there.
    #expect(try target.put("bad", right, PutOptions()).newByteCount == Int64(right.count))
    #expect(try target.data("bad", nil) == Data(right))
    #expect(try target.verify().damaged == [])
  }

  /// Changes a byte of the one chunk of a blob.
  private func damageRecord(of digest: BlobDigest, in place: CopyPlace) throws {
    let engine = try place.engine()
    let (pack, offset) = try #require(
      try engine.catalog.read { (transaction) throws(BlobStorageError) -> (PackName, Int64)? in
        guard let row = try transaction.chunkRow(digest),
          let pack = try transaction.packRow(row.place.pack)
        else { return nil }
        return (pack.name, row.payloadOffset + 20)
      })
    try engine.close()
    if let remote = place.remote {
      remote.objects.objects["packs/\(pack.fileName)"]?[Int(offset)] ^= 1
    } else {
      let url = URL(filePath: place.folderPath).appending(path: "packs/\(pack.fileName)")
      var bytes = try Data(contentsOf: url)
      bytes[Int(offset)] ^= 1
      try bytes.write(to: url)
    }
  }

  @Test("is durable on return, also what another process has put there and not published")
  func unpublished() throws {
    let sourcePlace = try CopyPlace(isRemote: false)
    let source = try sourcePlace.engine()
    _ = try put(source, "k", "value")
    let place = try CopyPlace(isRemote: true)
    let remote = try #require(place.remote)
    // It writes the version, and never publishes it.
    let other = try place.engine()
    try other.writer.join()
    remote.objects.setDown(true)
    #expect(throws: BlobStorageError.self) { try runCopy(source, to: other) }
    remote.objects.setDown(false)
    let target = try place.engine()
    #expect(try target.versions("k").count == 1)
    #expect(try runCopy(source, to: target).newVersionCount == 1)
    #expect(try contents(of: place.engine("elsewhere")) == contents(of: source))
    try other.close()
    #expect(try runCopy(source, to: target).newVersionCount == 0)
    #expect(try target.verify().damaged == [])
  }

  @Test("is nothing when it is the same store, or names blobs by another digest")
  func refused() throws {
    for isRemote in [false, true] {
      let place = try CopyPlace(isRemote: isRemote)
      let one = try place.engine("one")
      _ = try put(one, "k", "x")
      let same = #expect(throws: BlobStorageError.self) { try runCopy(one, to: place.engine("two")) }
      #expect(same?.code == .invalidArgument)
      #expect(same?.message.contains("cannot be copied to itself") == true)
    }
    let sourcePlace = try CopyPlace(isRemote: false)
    let source = try sourcePlace.engine()
    let targetPlace = try CopyPlace(isRemote: false, StoreOptions(digestAlgorithm: .sha256))
    let target = try targetPlace.engine()
    let other = #expect(throws: BlobStorageError.self) { try runCopy(source, to: target) }
    #expect(other?.message.contains("names blobs by blake3") == true)
  }

  @Test("is a version that comes back as often as it was dropped there, each time under another ID")
  func comesBack() throws {
    let (sourcePlace, targetPlace) = (try CopyPlace(isRemote: false), try CopyPlace(isRemote: false))
    let (source, target) = (try sourcePlace.engine(), try targetPlace.engine())
    var ids: Set<BlobVersion.ID> = [try put(source, "k", "value")]
    try runCopy(source, to: target)
    #expect(try target.versions("k").map(\.id) == Array(ids))
    for round in 2...5 {
      _ = try target.delete(["k"], .relaxed)
      #expect(try runCopy(source, to: target).newVersionCount == 1)
      let again = try runCopy(source, to: target)
      #expect(again.newVersionCount == 0 && again.unchangedVersionCount == 1)
      #expect(try texts(target, "k") == ["value"])
      #expect(try target.versions("k").map(\.created) == source.versions("k").map(\.created))
      ids.formUnion(try target.versions("k").map(\.id))
      #expect(ids.count == round)
    }
    #expect(try runCopy(source, to: target, isMirror: true).droppedVersionCount == 0)
    #expect(try texts(target, "k") == ["value"])
  }

  @Test(
    "is nothing when the same folder is reached by another path, and all of a folder that is a copy of it")
  func sameFolder() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    _ = try put(engine, "k", "first")
    let root = place.temporary.path.string
    func open(_ path: String) throws -> Engine {
      try Engine(
        path: "\(root)/\(path)", configuration: StoreConfiguration(threadCount: 2),
        environment: Engine.Environment())
    }
    try FileManager.default.createSymbolicLink(atPath: "\(root)/linked", withDestinationPath: ".")
    let same = try open("linked/store")
    let error = #expect(throws: BlobStorageError.self) { try runCopy(engine, to: same) }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains("cannot be copied to itself") == true)
    try same.close()
    try engine.close()
    // A backup made by copying files has the same ID, and is another store all the same.
    try FileManager.default.copyItem(atPath: place.path, toPath: "\(root)/backup")
    try FileManager.default.removeItem(atPath: "\(root)/backup/catalog")
    let (reopened, backup) = (try place.engine(), try open("backup"))
    #expect(reopened.header.storeID == backup.header.storeID)
    _ = try put(reopened, "k", "second")
    let report = try runCopy(reopened, to: backup)
    #expect(report.newVersionCount == 1 && report.unchangedVersionCount == 1)
    #expect(try texts(backup, "k") == ["second", "first"])
  }

  @Test("reports nothing as left out that was dropped while it was copied", arguments: [false, true])
  func droppedMeanwhile(_ isDropped: Bool) throws {
    var random = SplitMix64(seed: 71)
    let (from, to) = (try CopyPlace(isRemote: false), try CopyPlace(isRemote: false))
    let whole = try from.engine()
    for key in ["bad", "good"] { _ = try whole.put(key, random.bytes(10_000), PutOptions()) }
    let digest = try #require(try whole.version("bad", nil)).digest
    try whole.close()
    try damageRecord(of: digest, in: from)
    // It tells ten times a second, and a second passes whenever it looks.
    let seconds = Atomic<Int>(0)
    let time = PassingTime(
      now: { Double(seconds.wrappingAdd(1, ordering: .relaxed).newValue) }, wait: { _ in })
    let (source, target) = (try from.engine(), try to.engine(time: time))
    let count = Mutex(0)
    let report = try Copier(from: source, to: target, CopyOptions()) { _ in
      let number = count.withLock { count in
        count += 1
        return count
      }
      // What the keys have is known by the second time, and nothing is read yet.
      guard number == 2, isDropped else { return }
      do { _ = try source.delete(["bad"], .relaxed) } catch { Issue.record(error) }
    }.run()
    #expect(count.withLock { $0 } > 1)
    #expect(report.damaged.map(\.key) == (isDropped ? [] : ["bad"]))
    #expect(report.newVersionCount == 1)
    #expect(try target.keys("", after: nil, limit: 9).map(\.key) == ["good"])
  }

  @Test("is no state that an import records in the source meanwhile, until the next copy")
  func importedMeanwhile() throws {
    let (from, to, folder) = (
      try CopyPlace(isRemote: false), try CopyPlace(isRemote: false), try TemporaryFolder()
    )
    try SystemFiles().write([1], to: folder.path.appending("a"))
    // It tells ten times a second, and a second passes whenever it looks.
    let seconds = Atomic<Int>(0)
    let time = PassingTime(
      now: { Double(seconds.wrappingAdd(1, ordering: .relaxed).newValue) }, wait: { _ in })
    let (source, target) = (try from.engine(), try to.engine(time: time))
    _ = try put(source, "k", "value")
    let options = ImportOptions(prefix: "i/")
    let first = try #require(try Importer(source, options, nil).run([folder.path.string]).state)
    try SystemFiles().write([2], to: folder.path.appending("b"))
    let count = Mutex(0)
    _ = try Copier(from: source, to: target, CopyOptions()) { _ in
      let number = count.withLock { count in
        count += 1
        return count
      }
      // The keys are read by the second time, and the states are not.
      guard number == 2 else { return }
      do { _ = try Importer(source, options, nil).run([folder.path.string]) } catch { Issue.record(error) }
    }.run()
    #expect(try StateFile(source).states().count == 2)
    #expect(try StateFile(target).states().map(\.id) == [first.id])
    #expect(try target.keys("", after: nil, limit: 9).map(\.key) == ["i/a", "k"])
    try runCopy(source, to: target)
    #expect(try StateFile(target).states().map(\.id) == StateFile(source).states().map(\.id))
    #expect(try target.keys("", after: nil, limit: 9).map(\.key) == ["i/a", "i/b", "k"])
  }

  @Test("is a state with all that it builds on, also if the source drops a part of that meanwhile")
  func droppedStateMeanwhile() throws {
    let (from, to, folder) = (
      try CopyPlace(isRemote: false), try CopyPlace(isRemote: false), try TemporaryFolder()
    )
    let seconds = Atomic<Int>(0)
    let time = PassingTime(
      now: { Double(seconds.wrappingAdd(1, ordering: .relaxed).newValue) }, wait: { _ in })
    let (source, target) = (try from.engine(), try to.engine(time: time))
    var states: [TreeState] = []
    for number in 0..<3 {
      try SystemFiles().write([UInt8(number)], to: folder.path.appending("a"))
      let report = try Importer(source, ImportOptions(prefix: "i/"), nil).run([folder.path.string])
      states.append(try #require(report.state))
    }
    let (first, second) = (states[0], states[1])
    try StateFile(source).drop([first])
    let count = Mutex(0)
    _ = try Copier(from: source, to: target, CopyOptions()) { _ in
      let number = count.withLock { count in
        count += 1
        return count
      }
      // It begins, then it comes to the key, to what was replaced, and to the link.
      guard number == 4 else { return }
      do { try StateFile(source).drop([second]) } catch { Issue.record(error) }
    }.run()
    #expect(try StateFile(target).states().map(\.id) == [states[2].id])
    let walk = try StateFile(target).walk(states[2])
    defer { walk.close() }
    #expect(try walk.next() != nil)
  }

  @Test("is extended attributes that are stored apart before the versions that need them")
  func attributesFirst() throws {
    let (from, to) = (try CopyPlace(isRemote: false), try CopyPlace(isRemote: false))
    let seconds = Atomic<Int>(0)
    let time = PassingTime(
      now: { Double(seconds.wrappingAdd(1, ordering: .relaxed).newValue) }, wait: { _ in })
    let (source, target) = (try from.engine(), try to.engine(time: time))
    // More than one commit takes.
    for index in 0..<600 { _ = try source.put("k\(index)", [1], PutOptions(durability: .relaxed)) }
    let prefix = InternalKey.Purpose.attributes.prefix
    try source.putInternal(InternalKey.Purpose.attributes.key([1]), .data(Data([2])))
    _ = try Copier(from: source, to: target, CopyOptions()) { _ in
      do {
        let isBegun = try !target.keys("", after: nil, limit: 1).isEmpty
        let count = try target.internalVersions(prefix).count
        #expect(!isBegun || count == 1)
      } catch { Issue.record(error) }
    }.run()
    #expect(try target.keys("", after: nil, limit: 700).count == 600)
  }

  @Test("reports its progress, in bytes and keys")
  func progress() throws {
    let sourcePlace = try CopyPlace(isRemote: false)
    let source = try sourcePlace.engine()
    let targetPlace = try CopyPlace(isRemote: false)
    let target = try targetPlace.engine()
    _ = try put(source, "k", "abc")
    let told = ToldProgress()
    _ = try Copier(from: source, to: target, CopyOptions()) { told.append($0) }.run()
    #expect(told.all.first?.phase == "copying")
    #expect(told.all.first?.totalByteCount == 3)
    #expect(
      told.all.last
        == WorkProgress(phase: "syncing", doneByteCount: 3, totalByteCount: 3, doneCount: 1, totalCount: 1))
  }
}
