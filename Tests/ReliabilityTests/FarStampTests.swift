import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import Testing

/// Versions whose stamps lie far ahead of the present.
@Suite("A stamp far ahead of the present")
struct FarStampTests {
  static let far: UInt64 = Stamp.timeMax - 2

  /// A store with a version of `key` that is stamped `time`.
  static func store(_ time: UInt64 = far) throws -> Lab {
    let lab = try Lab()
    try lab.session { engine in
      let version = try engine.put("source", .data(Data("far".utf8)), PutOptions()).version
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        try commit.append(
          .ref(
            RefRecord(
              key: Array("key".utf8), version: Stamp(time: time, writer: 7), replaced: .none,
              digest: version.digest, byteCount: 3, created: 0, metadata: [])))
      }
    }
    return lab
  }

  @Test("does not prevent putting, archiving and deleting", arguments: [false, true])
  func writing(rebuilds: Bool) throws {
    let lab = try Self.store()
    if rebuilds { try lab.forgetCatalog() }
    let archiving = PutOptions(replacement: .archiveCurrent)
    try lab.session { engine in
      #expect(try engine.data("key", nil) == Data("far".utf8))
      _ = try engine.put("elsewhere", .data(Data("x".utf8)), PutOptions())
      // There is room for one more version behind it, and it is the current one.
      _ = try engine.put("key", .data(Data("next".utf8)), archiving)
      #expect(try engine.data("key", nil) == Data("next".utf8))
      let error = #expect(throws: BlobStorageError.self) {
        _ = try engine.put("key", .data(Data("no room".utf8)), archiving)
      }
      #expect(error?.code == .limitExceeded)
      _ = try engine.delete(["key"], .durable)
      #expect(try engine.data("key", nil) == nil)
      _ = try engine.put("key", .data(Data("again".utf8)), archiving)
      let version = try engine.version("key", nil)
      #expect(version.map { $0.id.stamp.time < Self.far } == true)
    }
    try lab.forgetCatalog()
    try lab.session { engine in
      let data = try engine.data("key", nil)
      #expect(data == Data("again".utf8))
    }
  }

  @Test("is given to one version only, also when the clock comes to it")
  func once() throws {
    let lab = try Lab()
    let archiving = PutOptions(replacement: .archiveCurrent)
    try lab.session { engine in
      let first = try engine.put("source", .data(Data("first".utf8)), PutOptions()).version
      // The wall clock is set back by two days: from now on the store's clock counts up.
      lab.clock.set(lab.clock.now - 2 * Stamp.aheadMillisecondsMax)
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        try commit.append(
          .ref(
            RefRecord(
              key: Array("key".utf8), version: Stamp(time: first.id.stamp.time + 3, writer: 7),
              replaced: .none,
              digest: first.digest, byteCount: 5, created: 0, metadata: [])))
      }
      var stamps: Set<UInt64> = []
      for (key, options) in [
        ("key", archiving), ("b", PutOptions()), ("c", PutOptions()), ("d", PutOptions()),
        ("key", PutOptions()),
      ] {
        stamps.insert(try engine.put(key, .data(Data("new".utf8)), options).version.id.stamp.time)
      }
      #expect(stamps.count == 5)
    }
    try lab.forgetCatalog()
    try lab.session { engine in
      let versions = try engine.versions("key")
      #expect(try versions.map { try engine.data("key", $0.id) } == [Data("new".utf8), Data("first".utf8)])
    }
  }

  @Test("is replaced by a version with a stamp of the present")
  func replaced() throws {
    let lab = try Self.store()
    try lab.session { engine in
      let version = try engine.put("key", .data(Data("new".utf8)), PutOptions()).version
      #expect(!Stamp.isFarAhead(version.id.stamp.time, wallClock: lab.clock.now))
      #expect(try engine.data("key", nil) == Data("new".utf8))
    }
  }

  @Test("of an archived version is no reason to take it for newer than what replaces the one behind it")
  func archived() throws {
    let lab = try Self.store(Self.far - 9)
    try lab.session { engine in
      let digest = try #require(try engine.version("source", nil)).digest
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        try commit.append(
          .ref(
            RefRecord(
              key: Array("key".utf8), version: Stamp(time: Self.far, writer: 7), replaced: .none,
              digest: digest, byteCount: 3, created: 0, metadata: [])))
      }
      #expect(try engine.versions("key").count == 2)
      let version = try engine.put("key", .data(Data("new".utf8)), PutOptions()).version
      #expect(try engine.data("key", nil) == Data("new".utf8))
      #expect(try engine.versions("key").map(\.id.stamp.time) == [version.id.stamp.time, Self.far - 9])
    }
  }

  @Test("is reported by verify, and is no damage")
  func verified() throws {
    let lab = try Self.store()
    try lab.session { engine in
      let report = try engine.verify()
      #expect(report.damaged == [])
      #expect(report.versionsAhead.map(\.key) == ["key"])
    }
  }

  @Test(
    "is told of each version that has one, archived ones too, and of no other; of the first thousand keys")
  func several() throws {
    let plain = Array("far".utf8)
    let digest = BlobDigest.of(plain)
    let chunk = ChunkRecord(digest: digest, plainByteCount: 3, codecNumber: 0)
    func planted(_ refs: [(key: String, time: UInt64)]) throws -> Lab {
      let lab = try Lab()
      var records: [(content: PackRecord.Content, payload: [UInt8])] = [(.chunk(chunk), plain)]
      for ref in refs { records.append(HostileTests.ref(ref.key, digest, byteCount: 3, time: ref.time)) }
      try HostileTests.plant(lab, 1, records)
      return lab
    }
    let near = (try Lab().clock.now + 3_600_000) << 16
    let few = try planted([
      ("a", Self.far), ("mixed", Self.far - 1), ("mixed", Self.far - 5), ("mixed", 1 << 41), ("near", near),
      ("old", 1 << 41 + 1), ("z", Self.far - 7),
    ])
    try few.session { engine in
      let mixed = try engine.versions("mixed").map(\.id)
      #expect(mixed.count == 3)
      let report = try engine.verify()
      #expect(report.damaged == [] && report.versionsAhead.map(\.key) == ["a", "mixed", "mixed", "z"])
      let times = [Self.far, Self.far - 1, Self.far - 5, Self.far - 7]
      #expect(report.versionsAhead.map(\.version.stamp.time) == times)
      #expect(report.versionsAhead.dropFirst().prefix(2).map(\.version) == Array(mixed.prefix(2)))
    }
    let many = try planted((0..<1_003).map { (key: "k\($0)", time: Self.far - UInt64($0)) })
    try many.session { engine in
      let told = try engine.verify(.structure).versionsAhead
      #expect(told.count == 1_000 && Set(told.map(\.key)).count == 1_000)
    }
  }

  @Test("does not come along in a copy")
  func copied() throws {
    let (source, target) = (try Self.store(), try Lab(seed: 9))
    try source.session { from in
      try target.session { to in
        let report = try Copier(from: from, to: to, CopyOptions(), nil).run()
        #expect(report.damaged.map(\.key) == ["key"])
        #expect(try to.data("source", nil) == Data("far".utf8))
        #expect(try to.data("key", nil) == nil)
      }
    }
  }

  @Test("that is not copied takes nothing's place in the target", arguments: [false, true])
  func keepsPredecessor(isMirror: Bool) throws {
    let (source, target) = (try Lab(), try Lab(seed: 9))
    try source.session { from in
      try target.session { to in
        let old = try from.put("key", .data(Data("old".utf8)), PutOptions()).version
        #expect(try Copier(from: from, to: to, CopyOptions(), nil).run().newVersionCount == 1)
        let digest = try from.put("source", .data(Data("far".utf8)), PutOptions()).version.digest
        _ = try from.writer.commit { (commit) throws(BlobStorageError) in
          try commit.append(
            .ref(
              RefRecord(
                key: Array("key".utf8), version: Stamp(time: Self.far, writer: 7), replaced: old.id.stamp,
                digest: digest, byteCount: 3, created: 0, metadata: [])))
        }
        #expect(try from.versions("key").map(\.id.stamp.time) == [Self.far])
        for newCount in [1, 0] {
          let options = CopyOptions(isMirror: isMirror, isForced: isMirror)
          let report = try Copier(from: from, to: to, options, nil).run()
          #expect(report.damaged.map(\.key) == ["key"])
          #expect(report.newVersionCount == newCount && report.droppedVersionCount == 0)
          #expect(try to.data("key", nil) == Data("old".utf8))
          #expect(try to.data("source", nil) == Data("far".utf8))
        }
      }
    }
  }

  @Test("of another writer less than a day ahead advances the clock, when it is applied and after a rebuild")
  func near() throws {
    let ahead = (try Lab().clock.now + 3_600_000) << 16
    for rebuilds in [false, true] {
      let lab = try Self.store(ahead)
      if rebuilds { try lab.forgetCatalog() }
      try lab.session { engine in
        let version = try engine.put("elsewhere", .data(Data("x".utf8)), PutOptions()).version
        #expect(version.id.stamp.time > ahead, "rebuilt: \(rebuilds)")
      }
    }
  }
}
