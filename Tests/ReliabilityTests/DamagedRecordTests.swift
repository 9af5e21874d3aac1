import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// Damage that puts whole records where they do not belong, and what is said about damage.
@Suite("Damage of records", .serialized)
struct DamagedRecordTests {
  /// Where the records of a pack lie.
  static func records(_ lab: Lab, _ path: FilePath) throws -> [Range<Int>] {
    let name = try #require(PackName(fileName: path.lastComponent?.string ?? ""))
    let file = try lab.disk.open(path, .read)
    defer { file.close() }
    var ranges: [Range<Int>] = []
    _ = try PackScanner(file: file, name: name, codecs: CodecPool()).scan { record in
      guard record.beginsRecord else { return }
      ranges.append(Int(record.recordRange.lowerBound)..<Int(record.recordRange.upperBound))
    }
    return ranges
  }

  static func bytes(_ lab: Lab, _ path: FilePath) throws -> [UInt8] {
    var bytes: [UInt8] = []
    try DamageTests.change(lab, path) { bytes = $0 }
    return bytes
  }

  /// A store whose chunks are encoded against each other.
  static func similarStore() throws -> Lab {
    let lab = try Lab(StoreOptions(averageChunkByteCount: 1 << 10, usesSimilarity: true))
    let text = noise(9, 900) + prose(9, 2_000)
    try lab.session { engine in
      try lab.put(engine, [("first", text)])
      try lab.put(engine, [("second", text + Data("a little more".utf8))])
      try lab.put(engine, [("second", Data("and before".utf8) + text)], archives: true)
    }
    return lab
  }

  @Test(
    "a record of a dead writer's pack costs nothing that was durable behind it", arguments: [true, false])
  func inDeadPack(keepsCatalog: Bool) throws {
    let lab = try Lab()
    let engine = try lab.open()
    for (number, key) in ["a", "b", "c", "d"].enumerated() {
      try lab.put(engine, [(key, noise(UInt64(number), 300))])
    }
    lab.restart()
    let path = try #require(DamageTests.paths(lab).first)
    let first = try #require(try Self.records(lab, path).first)
    try DamageTests.change(lab, path) { $0[first.lowerBound + 20] ^= 4 }
    if !keepsCatalog { try lab.forgetCatalog() }
    try lab.session { engine in
      for (number, key) in ["a", "b", "c"].enumerated().dropFirst() {
        let data = try engine.data(key, nil)
        #expect(data == noise(UInt64(number), 300), "\(key)")
      }
      let damaged = try engine.verify().damaged
      #expect(!damaged.isEmpty)
    }
    withExtendedLifetime(engine) {}
  }

  @Test("a chunk that several keys need is told with all of them, and with no other")
  func sharedChunk() throws {
    let lab = try Lab()
    try lab.session { engine in
      for key in ["a", "b", "d"] { try lab.put(engine, [(key, noise(1, 3_000))]) }
      try lab.put(engine, [("c", noise(2, 3_000))])
    }
    let path = try #require(DamageTests.paths(lab).first)
    let chunk = try #require(try Self.records(lab, path).first)
    try DamageTests.change(lab, path) { $0[chunk.upperBound - 8] ^= 1 }
    try lab.session { engine in
      let damaged = try engine.verify().damaged
      #expect(damaged.map(\.keys) == [["a", "b", "d"]], "\(damaged)")
    }
  }

  @Test("a damaged footer is told, and costs nothing", arguments: [false, true])
  func footer(isQuick: Bool) throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 3_000)), ("b", noise(2, 300))]) }
    let path = try #require(DamageTests.paths(lab).first)
    let end = try #require(try Self.records(lab, path).last).upperBound
    let byteCount = try Self.bytes(lab, path).count
    for offset in stride(from: end, to: byteCount, by: 7) {
      let damaged = try lab.copy()
      try DamageTests.change(damaged, path) { $0[offset] ^= 1 }
      try damaged.session { engine in
        let report = try engine.verify(isQuick ? .structure : .chunks)
        #expect(!report.damaged.isEmpty, "\(offset)")
        #expect(report.damaged.allSatisfy { $0.keys.isEmpty }, "\(report.damaged)")
        let data = try engine.data("a", nil)
        #expect(data == noise(1, 3_000))
      }
    }
  }

  @Test("two records of a pack in each other's place")
  func swappedWithin() throws {
    let origin = try DamageTests.store()
    for path in try DamageTests.paths(origin) {
      let records = try Self.records(origin, path)
      for first in records.indices {
        for second in records.indices.dropFirst(first + 1) where Soak.isOn || (first + second) % 16 == 1 {
          try check("records \(first) and \(second) of \(path)") { keepsCatalog in
            try DamageTests.examine(origin, keepsCatalog: keepsCatalog) { lab in
              try DamageTests.change(lab, path) { bytes in
                let (a, b) = (records[first], records[second])
                bytes =
                  Array(bytes[..<a.lowerBound]) + bytes[b] + bytes[a.upperBound..<b.lowerBound] + bytes[a]
                  + bytes[b.upperBound...]
              }
            }
          }
        }
      }
    }
  }

  @Test("a record of another pack in a record's place, and at the end")
  func swappedBetween() throws {
    let origin = try DamageTests.store()
    let paths = try DamageTests.paths(origin)
    for path in paths {
      let targets = try Self.records(origin, path)
      for other in paths where other != path {
        let from = try Self.bytes(origin, other)
        for (index, source) in try Self.records(origin, other).enumerated() {
          for (place, target) in targets.enumerated() where Soak.isOn || (index + place) % 16 == 0 {
            try check("record \(index) of \(other) for record \(place) of \(path)") { keepsCatalog in
              try DamageTests.examine(origin, keepsCatalog: keepsCatalog) { lab in
                try DamageTests.change(lab, path) { $0.replaceSubrange(target, with: from[source]) }
              }
            }
          }
          guard Soak.isOn || index % 4 == 0 else { continue }
          try check("record \(index) of \(other) behind \(path)") { keepsCatalog in
            try DamageTests.examine(origin, keepsCatalog: keepsCatalog) { lab in
              try DamageTests.change(lab, path) { $0.append(contentsOf: from[source]) }
            }
          }
        }
      }
    }
  }

  @Test("a pack under the name of another, and the header of another store")
  func foreignPacks() throws {
    let origin = try DamageTests.store()
    let other = try DamageTests.store()
    let path = try #require(try DamageTests.paths(origin).first)
    let foreign = try Self.bytes(other, try #require(try DamageTests.paths(other).first))
    let second = try Self.bytes(origin, try #require(try DamageTests.paths(origin).last))
    for bytes in [foreign, second] {
      try check("another pack") { keepsCatalog in
        try DamageTests.examine(origin, keepsCatalog: keepsCatalog) { lab in
          try DamageTests.change(lab, path) { $0 = bytes }
        }
      }
    }
    let header = try Self.bytes(other, FilePath("\(Lab.storePath)/store"))
    try check("another header") { keepsCatalog in
      try DamageTests.examine(origin, keepsCatalog: keepsCatalog) { lab in
        try DamageTests.change(lab, FilePath("\(Lab.storePath)/store")) { $0 = header }
      }
    }
  }

  @Test("a pack of another store under its own name shows none of its keys, and is told")
  func foreignStore() throws {
    let (lab, other) = (try Lab(), try Lab(seed: 31))
    try lab.session { try lab.put($0, [("mine", noise(1, 300))]) }
    try other.session { try other.put($0, [("theirs", noise(2, 300))]) }
    let path = try #require(try DamageTests.paths(other).first)
    let foreign = try Self.bytes(other, path)
    let file = try lab.disk.open(path, .create)
    try foreign.withUnsafeBytes { try file.write($0, at: 0) }
    file.close()
    let name = try #require(path.lastComponent?.string.dropLast(5))
    for keepsCatalog in [true, false] {
      if !keepsCatalog { try lab.forgetCatalog() }
      try lab.session { engine in
        let (keys, losses) = (try engine.keys("", after: nil, limit: 9), try engine.losses())
        #expect(keys.map(\.key) == ["mine"], "catalog kept: \(keepsCatalog)")
        #expect(losses.damagedPacks == [String(name)])
      }
    }
  }

  @Test("the header, cut at any length, is told apart from no store")
  func cutHeader() throws {
    let origin = try DamageTests.store()
    for length in 0..<64 {
      let lab = try origin.copy()
      try DamageTests.change(lab, FilePath("\(Lab.storePath)/store")) { $0.removeLast(64 - length) }
      let error = #expect(throws: BlobStorageError.self) { try lab.open() }
      #expect([.corrupted, .notAStore].contains(error?.code), "\(length): \(error?.message ?? "")")
    }
  }

  @Test("a chunk or its base with a flipped bit, in any byte")
  func bases() throws {
    let origin = try Self.similarStore()
    let path = try #require(try DamageTests.paths(origin).first)
    let count = try Self.bytes(origin, path).count
    for offset in stride(from: 64, to: count, by: Soak.isOn ? 1 : 607) {
      try check("byte \(offset) of \(path)") { keepsCatalog in
        try DamageTests.examine(origin, keepsCatalog: keepsCatalog) { lab in
          try DamageTests.change(lab, path) { $0[offset] ^= 1 << UInt8(offset % 8) }
        }
      }
    }
    Soak.printCounts("bases")
  }

  @Test("every damaged chunk is named with its place and the keys that need it, and is healed by a put")
  func names() throws {
    let origin = try DamageTests.store()
    for path in try DamageTests.paths(origin) {
      let pack = String(path.lastComponent?.string.dropLast(5) ?? "")
      for range in try Self.records(origin, path) {
        let lab = try origin.copy()
        var isChunk = false
        try DamageTests.change(lab, path) { bytes in
          isChunk = bytes[range.lowerBound + 2] == RecordType.chunk.rawValue
          // The last byte of the payload, before its checksum.
          bytes[range.upperBound - 5] ^= 1
        }
        guard isChunk else { continue }
        let engine = try lab.open()
        let damaged = try engine.verify().damaged
        #expect(
          damaged.map(\.pack) == [pack] && damaged.map(\.offset) == [Int64(range.lowerBound)], "\(damaged)")
        let keys = damaged.first?.keys ?? []
        for key in keys {
          var errors: [BlobStorageError] = []
          for version in try engine.versions(key) {
            do throws(BlobStorageError) { _ = try engine.data(key, version.id) } catch {
              errors.append(error)
            }
          }
          #expect(!errors.isEmpty, "\(key) is named and can be read")
          for error in errors {
            #expect(error.code == .corrupted && error.digest == damaged.first?.digest)
            #expect(error.pack == pack && error.offset == Int64(range.lowerBound), "\(error)")
            #expect(error.message.contains(pack) && error.key == key)
          }
        }
        let lost = try engine.repair().unreadable.map(\.key)
        #expect(Set(lost) == Set(keys), "repair names \(lost), verify \(keys)")
        try engine.close()
      }
    }
  }

  @Test(
    "all of more records than are looked at together are verified, counted, kept and taken in, and each once")
  func manyRecords() throws {
    let lab = try Lab()
    lab.packByteCountTarget = 8 << 20
    // More than a page of versions to mark, and more than a group of records to verify; "zz" is behind all of them.
    let count = 33_000
    let (shared, last) = (Array("shared".utf8), Array(noise(9, 300)))
    func chunk(_ plain: [UInt8]) -> (content: PackRecord.Content, payload: [UInt8]) {
      (.chunk(ChunkRecord(digest: BlobDigest.of(plain), plainByteCount: plain.count, codecNumber: 0)), plain)
    }
    var records = [chunk(shared)]
    for number in 0..<count {
      records.append(
        HostileTests.ref("many", BlobDigest.of(shared), byteCount: 6, time: 1 << 41 + UInt64(number)))
    }
    records += [chunk(last), HostileTests.ref("zz", BlobDigest.of(last), byteCount: 300)]
    try HostileTests.plant(lab, 1, records)
    try lab.session { engine in
      let statistics = try engine.statistics()
      #expect(statistics.keyCount == 2 && statistics.versionCount == count + 1)
      #expect(statistics.blobCount == 2 && statistics.chunkCount == 2 && statistics.unreadable == [])
      #expect(statistics.plainByteCount == Int64(6 * count + 300) && statistics.garbageByteCount == 0)
      let quick = try engine.verify(.structure)
      #expect(quick.chunkCount == 2 && quick.blobCount == 2 && quick.damaged == [])
    }
    let path = try #require(DamageTests.paths(lab).first)
    let place = try #require(Data(try Self.bytes(lab, path)).range(of: Data(last))).lowerBound
    try DamageTests.change(lab, path) { $0[place + 5] ^= 1 }
    try lab.session { engine in
      let report = try engine.verify()
      #expect(report.damaged.map(\.keys) == [["zz"]] && report.damaged.map(\.digest) == [BlobDigest.of(last)])
      #expect(report.chunkCount == 1 && report.byteCount == 6 && report.blobCount == 2)
    }
    try DamageTests.change(lab, path) { $0[place + 5] ^= 1 }
    try lab.session { engine in
      // What was found damaged does not count until it is put again.
      _ = try engine.put("zz", .data(Data(last)), PutOptions())
      let result = try engine.keep(upTo: 10, keys: ["many"], .durable)
      #expect(result.droppedVersionCount == count - 11)
      let collected = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      #expect(collected.obstacles == [] && collected.freedByteCount > 0)
    }
    let times: [UInt64] = (1...11).map { 1 << 41 + UInt64(count - $0) }
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { engine in
        let (versions, data) = (try engine.versions("many"), try engine.data("zz", nil))
        #expect(versions.map(\.id.stamp.time) == times, "forgotten: \(forgets)")
        #expect(data == Data(last), "forgotten: \(forgets)")
      }
    }
  }

  // MARK: Records that are lost in both copies

  /// Damages the records that `isMeant` says, and the footers that list them.
  private static func lose(_ lab: Lab, _ isMeant: (PackRecord.Content) -> Bool) throws {
    for path in try DamageTests.paths(lab) {
      let name = try #require(PackName(fileName: path.lastComponent?.string ?? ""))
      let file = try lab.disk.open(path, .read)
      defer { file.close() }
      let scanner = try PackScanner(file: file, name: name, codecs: CodecPool())
      let footer = try #require(try scanner.trailer()).footerOffset
      var offsets: [Int] = []
      _ = try scanner.scan { if isMeant($0.content) { offsets.append(Int($0.offset)) } }
      if offsets.isEmpty { continue }
      try DamageTests.change(lab, path) { bytes in
        for offset in offsets { bytes[offset + 20] ^= 4 }
        bytes[Int(footer) + 30] ^= 4
      }
    }
  }

  /// A version that is replaced and a key that is deleted, by records in a pack of their own.
  private static func storeWithHiddenVersions() throws -> Lab {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("replaced", noise(1, 300)), ("deleted", noise(2, 300))]) }
    try lab.session { engine in
      try lab.put(engine, [("replaced", noise(3, 300))])
      try lab.delete(engine, ["deleted"])
    }
    return lab
  }

  private static func hides(_ content: PackRecord.Content, _ what: String) -> Bool {
    switch content {
    case .ref(let ref): what == "replaced" && ref.replaced != .none
    case .drop: what == "deleted"
    default: false
    }
  }

  @Test(
    "of what hides a version: a repair writes down anew what the catalog knows",
    arguments: ["replaced", "deleted"])
  func hiding(_ what: String) throws {
    let lab = try Self.storeWithHiddenVersions()
    var before: [BlobVersion] = []
    try lab.session { before = try $0.versions("replaced") }
    try Self.lose(lab) { Self.hides($0, what) }
    // What is restored is not put again.
    lab.clock.set(lab.clock.now + 60_000)
    try lab.session { engine in
      let report = try engine.repair()
      #expect(report.setAside.count == 1 && report.losses.isEmpty && report.unreadable == [])
    }
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { engine in
        let versions = try engine.versions("replaced")
        #expect(versions == before, "with the time of its put")
        let (found, report) = (try lab.observed(engine), try engine.verify())
        #expect(found == lab.model.state, "forgotten: \(forgets)")
        #expect(report.damaged == [] && report.losses.isEmpty)
      }
    }
  }

  @Test("of what hides more versions than are looked at together: a repair writes all of it down anew")
  func hidingMany() throws {
    let lab = try Lab()
    lab.packByteCountTarget = 8 << 20
    let keys = (0..<1_100).map { "k\($0)" }
    try lab.session { engine in
      _ = try engine.put(keys.map { PutItem(key: $0, data: Data([1])) }, PutOptions())
    }
    try lab.session { engine in
      _ = try engine.delete(keys, .durable)
      _ = try engine.put("left", .data(Data([2])), PutOptions())
    }
    try Self.lose(lab) { content in
      if case .drop = content { return true }
      return false
    }
    try lab.session { engine in
      let report = try engine.repair()
      #expect(report.setAside.count == 1 && report.losses.isEmpty && report.unreadable == [])
      #expect(report.keyCount == 1)
    }
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { engine in
        let found = try engine.keys("", after: nil, limit: 10_000).map(\.key)
        #expect(found == ["left"], "forgotten: \(forgets)")
      }
    }
  }

  @Test(
    "of what hides a version, and that no catalog knows: a repair tells it until it is accepted",
    arguments: ["replaced", "deleted"])
  func hidingUnknown(_ what: String) throws {
    let lab = try Self.storeWithHiddenVersions()
    try Self.lose(lab) { Self.hides($0, what) }
    try lab.forgetCatalog()
    for _ in 0..<2 {
      try lab.session { engine in
        let report = try engine.repair()
        #expect(report.losses.damagedPacks.count == 1)
        let collected = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        #expect(!collected.obstacles.isEmpty && collected.freedByteCount == 0)
      }
      try lab.forgetCatalog()
    }
    try lab.session { engine in
      let losses = try engine.losses()
      #expect(losses.damagedPacks.count == 1)
      _ = try engine.repair(acceptsLosses: true)
      let (accepted, collected) = (try engine.losses(), try engine.collectGarbage())
      #expect(accepted.isEmpty && collected.obstacles == [])
    }
  }

  @Test("of versions, archived ones too: a repair writes each of them down anew as it was put")
  func versions() throws {
    let lab = try Lab()
    try lab.session { engine in
      for number in 1...4 as ClosedRange<UInt64> {
        try lab.put(engine, [("a", noise(number, 300))], archives: true)
        lab.clock.set(lab.clock.now + 60_000)
      }
      try lab.put(engine, [("b", noise(2, 300))])
    }
    var before: [[BlobVersion]] = []
    try lab.session { before = [try $0.versions("a"), try $0.versions("b")] }
    #expect(before.map(\.count) == [4, 1])
    try Self.lose(lab) { content in
      if case .ref = content { return true }
      return false
    }
    lab.clock.set(lab.clock.now + 60_000)
    try lab.session { engine in
      let report = try engine.repair()
      #expect(report.setAside.count == 1 && report.losses.isEmpty && report.unreadable == [])
      #expect(report.keyCount == 2)
    }
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { engine in
        let after = [try engine.versions("a"), try engine.versions("b")]
        #expect(after == before, "with times and metadata; forgotten: \(forgets)")
        for (version, number) in zip(after[0], [4, 3, 2, 1] as [UInt64]) {
          let data = try engine.data("a", version.id)
          #expect(data == noise(number, 300), "\(number), forgotten: \(forgets)")
        }
        let damaged = try engine.verify().damaged
        #expect(damaged == [])
      }
    }
  }

  @Test("of a chunk and of a manifest: a repair stores anew what can be read where the catalog says it is")
  func contents() throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("long", noise(1, 5_000))]) }
    try Self.lose(lab) { content in
      switch content {
      case .chunk, .manifest: true
      default: false
      }
    }
    try lab.session { engine in
      let report = try engine.repair()
      #expect(report.setAside.count == 1 && report.losses.isEmpty && report.unreadable == [])
    }
    try lab.forgetCatalog()
    try lab.session { try lab.checkSound($0, "after the repair") }
  }

  @Test("of chunks among more than are looked at together: a repair stores all of them anew")
  func manyChunks() throws {
    let lab = try Lab()
    lab.packByteCountTarget = 8 << 20
    var plain: [BlobDigest: [UInt8]] = [:]
    for number in 0..<10_500 {
      let bytes = Array("chunk \(number)".utf8)
      plain[BlobDigest.of(bytes)] = bytes
    }
    let sorted = plain.keys.sorted()
    let needed = stride(from: 0, to: sorted.count, by: 300).map { sorted[$0] } + sorted.suffix(3)
    var records: [(content: PackRecord.Content, payload: [UInt8])] = []
    for digest in sorted {
      let bytes = plain[digest] ?? []
      let record = ChunkRecord(digest: digest, plainByteCount: bytes.count, codecNumber: 0)
      records.append((.chunk(record), bytes))
    }
    for (number, digest) in needed.enumerated() {
      let byteCount = Int64(plain[digest]?.count ?? 0)
      records.append(
        HostileTests.ref("k\(number)", digest, byteCount: byteCount, time: 1 << 41 + UInt64(number)))
    }
    try HostileTests.plant(lab, 1, records)
    try lab.session { _ in }
    let lost = Set(needed)
    try Self.lose(lab) { content in
      guard case .chunk(let chunk) = content else { return false }
      return lost.contains(chunk.digest)
    }
    try lab.session { engine in
      let report = try engine.repair()
      #expect(report.setAside.count == 1 && report.losses.isEmpty && report.unreadable == [])
      #expect(report.keyCount == needed.count)
    }
    try lab.forgetCatalog()
    try lab.session { engine in
      for (number, digest) in needed.enumerated() {
        let data = try engine.data("k\(number)", nil)
        #expect(data.map { Array($0) } == plain[digest], "\(number)")
      }
      let damaged = try engine.verify().damaged
      #expect(damaged == [])
    }
  }

  private func check(_ what: String, _ body: (_ keepsCatalog: Bool) throws -> Void) throws {
    for keepsCatalog in [true, false] {
      do { try body(keepsCatalog) } catch {
        Issue.record("\(what), catalog kept: \(keepsCatalog): \(error)")
        throw error
      }
      Soak.count("misplaced records")
    }
  }
}
