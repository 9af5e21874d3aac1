import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Damage of every file, a place at a time: each read gives the right bytes or says what is damaged, and never traps.
@Suite("Damage", .serialized)
struct DamageTests {
  /// A small store of everything: chunks, manifests, refs, drops, sealed packs.
  static func store() throws -> Lab {
    let lab = try Lab()
    try lab.session { engine in
      try lab.put(engine, [("a", prose(1, 900))])
      try lab.put(engine, [("b", noise(2, 3_000))])
      try lab.put(engine, [("a", noise(3, 500))], archives: true)
      try lab.delete(engine, ["b"])
    }
    try lab.session { engine in
      try lab.put(engine, [("c", noise(2, 3_000) + prose(4, 400))])
      try lab.put(engine, [("f", prose(5, 300)), ("g", prose(6, 200)), ("h", prose(7, 250))])
    }
    return lab
  }

  @Test("is tried on every kind of record")
  func kinds() throws {
    let lab = try Self.store()
    var types: Set<UInt8> = []
    for path in try Self.paths(lab) {
      let bytes = try Self.bytes(lab, path)
      for range in try DamagedRecordTests.records(lab, path) { types.insert(bytes[range.lowerBound + 2]) }
    }
    #expect(types == [1, 2, 3, 4])
  }

  /// Reads everything: right bytes, nothing, or an error that says that something is damaged.
  static func readAll(_ lab: Lab, _ engine: Engine) throws {
    for (key, numbers) in lab.model.state {
      do {
        let versions = try engine.versions(key)
        for version in versions {
          guard let data = try engine.data(key, version.id) else { continue }
          let known = lab.model.changes.flatMap(\.made).filter { $0.key == key }
          guard known.contains(where: { lab.model.contents[$0.number] == data }) else {
            throw Broken("key \(key) reads as bytes that no process put (\(numbers))")
          }
        }
      } catch let error as BlobStorageError {
        guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error }
      }
    }
  }

  static func paths(_ lab: Lab) throws -> [FilePath] {
    let folder = FilePath("\(Lab.storePath)/packs")
    return try lab.disk.list(folder).map { folder.appending($0) }
  }

  static func change(_ lab: Lab, _ path: FilePath, _ body: (inout [UInt8]) -> Void) throws {
    let file = try lab.disk.open(path, .readWrite)
    defer { file.close() }
    let count = Int(try file.status().byteCount)
    var bytes = [UInt8](repeating: 0, count: count)
    _ = try bytes.withUnsafeMutableBytes { try file.read(into: $0, at: 0) }
    body(&bytes)
    try file.truncate(to: 0)
    try bytes.withUnsafeBytes { try file.write($0, at: 0) }
  }

  static func bytes(_ lab: Lab, _ path: FilePath) throws -> [UInt8] {
    var found: [UInt8] = []
    try change(lab, path) { found = $0 }
    return found
  }

  /// Whether the pack has a ref of the key; for keys of one letter.
  static func holds(_ lab: Lab, _ path: FilePath, key: String) throws -> Bool {
    let name = try #require(PackName(fileName: path.lastComponent?.string ?? ""))
    let file = try lab.disk.open(path, .read)
    defer { file.close() }
    var isThere = false
    _ = try PackScanner(file: file, name: name, codecs: CodecPool()).scan { record in
      if case .ref(let ref) = record.content, ref.key == Array(key.utf8) { isThere = true }
    }
    return isThere
  }

  /// Where the payload of the pack's first manifest begins.
  static func manifestOffset(_ lab: Lab, _ path: FilePath) throws -> Int {
    let name = try #require(PackName(fileName: path.lastComponent?.string ?? ""))
    let file = try lab.disk.open(path, .read)
    defer { file.close() }
    var offset: Int?
    _ = try PackScanner(file: file, name: name, codecs: CodecPool()).scan { record in
      if case .manifest = record.content {
        offset = offset ?? Int(record.payloadOffset)
      }
    }
    return try #require(offset)
  }

  /// Opens with and without the old catalog, reads, verifies, repairs, heals.
  static func examine(_ origin: Lab, keepsCatalog: Bool, _ damage: (Lab) throws -> Void) throws {
    let lab = try origin.copy()
    try damage(lab)
    if !keepsCatalog { try lab.forgetCatalog() }
    let engine: Engine
    do { engine = try lab.open() } catch let error as BlobStorageError {
      guard [.corrupted, .notAStore, .unsupportedFormat].contains(error.code) else { throw error }
      return
    }
    try readAll(lab, engine)
    do {
      _ = try engine.verify()
      let report = try engine.repair()
      try readAll(lab, engine)
      // The same bytes heal what is lost.
      for (key, numbers) in lab.model.state {
        guard let number = numbers.first, let data = lab.model.contents[number] else { continue }
        _ = try engine.put(key, .data(data), PutOptions())
        let read = try engine.data(key, nil)
        guard read == data else { throw Broken("key \(key) is not healed after \(report)") }
      }
      try engine.close()
    } catch let error as BlobStorageError {
      guard error.code == .unsupportedFormat else { throw error }
    }
  }

  /// A tail that was torn is cut off. What had been synced, by any record behind the damage, stays.
  @Test(
    "in a pack that a killed writer has left takes nothing that a drop behind it says to have been synced")
  func damageBeforeDrop() throws {
    let lab = try Lab()
    let engine = try lab.open()
    try lab.put(engine, [("gone", noise(1, 300))])
    try lab.put(engine, [("damaged", noise(2, 3_000))])
    try lab.delete(engine, ["gone"])
    let path = try #require(try Self.paths(lab).first)
    let place = try #require(try Self.bytes(lab, path).firstRange(of: Array(noise(2, 3_000).prefix(100))))
    lab.restart()
    try lab.forgetCatalog()
    try Self.change(lab, path) { $0[place.lowerBound + 1_000] ^= 1 }
    let next = try lab.open()
    #expect(try next.versions("gone").isEmpty)
    #expect(try next.versions("damaged").count == 1)
    let error = #expect(throws: BlobStorageError.self) { _ = try next.data("damaged", nil) }
    #expect(error?.code == .corrupted)
    #expect(try !next.verify().damaged.isEmpty)
    try next.close()
  }

  @Test("a flipped bit in any byte of a pack or of the header")
  func flips() throws {
    let origin = try Self.store()
    let paths = try Self.paths(origin) + [FilePath("\(Lab.storePath)/store")]
    for path in paths {
      let count = Int(try origin.disk.status(of: path)?.byteCount ?? 0)
      // A step that shares no factor with the sizes of records, so that fields of all kinds are hit.
      for offset in stride(from: 0, to: count, by: Soak.isOn ? 1 : 307) {
        for keepsCatalog in [true, false] {
          do {
            try Self.examine(origin, keepsCatalog: keepsCatalog) { lab in
              try Self.change(lab, path) { $0[offset] ^= 1 << UInt8(offset % 8) }
            }
          } catch {
            Issue.record("byte \(offset) of \(path), catalog kept: \(keepsCatalog): \(error)")
            return
          }
          Soak.count("flipped bytes")
        }
      }
    }
    Soak.printCounts("flips")
  }

  @Test("a file cut at any length")
  func cuts() throws {
    let origin = try Self.store()
    for path in try Self.paths(origin) {
      let count = Int(try origin.disk.status(of: path)?.byteCount ?? 0)
      for length in stride(from: 0, to: count, by: Soak.isOn ? 1 : 509) {
        do {
          try Self.examine(origin, keepsCatalog: length.isMultiple(of: 2)) { lab in
            try Self.change(lab, path) { $0.removeLast(count - length) }
          }
        } catch {
          Issue.record("\(path) cut at \(length): \(error)")
          return
        }
        Soak.count("cut files")
      }
    }
  }

  @Test("packs that are missing, or there twice")
  func missingAndDoubled() throws {
    let origin = try Self.store()
    for path in try Self.paths(origin) {
      for keepsCatalog in [true, false] {
        try Self.examine(origin, keepsCatalog: keepsCatalog) { try $0.disk.remove(path) }
        try Self.examine(origin, keepsCatalog: keepsCatalog) { lab in
          let twin = path.removingLastComponent().appending("00000000000000aa-00000001.pack")
          var copy: [UInt8] = []
          try Self.change(lab, path) { copy = $0 }
          _ = try lab.disk.open(twin, .create)
          try Self.change(lab, twin) { $0 = copy }
        }
      }
    }
  }

  @Test("a closed catalog of noise, cut short, or with any byte changed is made anew")
  func catalog() throws {
    let origin = try Self.store()
    let manager = FileManager.default
    func data(_ lab: Lab) throws -> String {
      let folder = lab.catalog.path.string
      let name = try #require(try manager.contentsOfDirectory(atPath: folder).first { $0.hasPrefix("g") })
      return "\(folder)/\(name)/data.mdb"
    }
    let whole = try Data(contentsOf: URL(fileURLWithPath: try data(origin)))
    func check(_ changed: Data, _ what: String) throws {
      let lab = try origin.copy()
      let before = try data(lab)
      try changed.write(to: URL(fileURLWithPath: before))
      do { try lab.session { try lab.checkSound($0, what) } } catch { Issue.record("\(what): \(error)") }
      #expect(try data(lab) != before, "\(what): it was not made anew")
      Soak.count("damaged catalogs")
    }
    try check(noise(1, whole.count), "noise")
    try check(Data(), "empty")
    for length in stride(from: 1, to: whole.count, by: Soak.isOn ? 512 : 7_919) {
      try check(whole.prefix(length), "cut at \(length)")
    }
    var generator = SplitMix64(seed: Soak.firstSeed)
    for round in 0..<(Soak.isOn ? 20_000 : 200) {
      var changed = whole
      // Page headers and their lists of nodes are where it would hurt LMDB most.
      let page = Int(generator.next() % UInt64(whole.count / 4_096))
      let offset = round.isMultiple(of: 2) ? Int(generator.next() % 64) : Int(generator.next() % 4_096)
      let bit = UInt8(1) << UInt8(generator.next() % 8)
      changed[page * 4_096 + offset] ^= bit
      try check(changed, "bit \(bit) of byte \(offset) of page \(page)")
    }
    Soak.printCounts("catalogs")
  }

  // MARK: What the medium cannot read

  /// Has each read of these bytes of a pack fail from now on.
  static func breakMedium(_ lab: Lab, _ path: FilePath, _ range: Range<Int64>) throws {
    let name = try #require(path.lastComponent?.string)
    lab.disk.beforeCalls { (call) throws(BlobStorageError) in
      guard call.kind == .read, call.detail.contains(name),
        let bounds = call.detail.split(separator: " ").last?.split(separator: "."),
        let start = bounds.first.flatMap({ Int64($0) }),
        let end = bounds.last.flatMap({ Int64($0.drop { $0 == "<" }) }), range.overlaps(start..<end)
      else { return }
      throw .systemCall("read", path: path, errno: Errno.ioError.rawValue)
    }
  }

  @Test("a read of a range that the medium refuses only once finds no damage")
  func refusedOnce() throws {
    let lab = try Lab()
    let data = noise(1, 900)
    try lab.session { _ = try $0.put("k", .data(data), PutOptions()) }
    try lab.session { engine in
      let blob = try #require(try engine.openBlob("k", nil))
      defer { blob.close() }
      // That of the page cache, and the one of the medium.
      let count = Mutex(2)
      lab.disk.beforeCalls { (call) throws(BlobStorageError) in
        guard call.kind == .read, call.detail.contains("/packs/") else { return }
        let fails = count.withLock { count in
          count -= 1
          return count >= 0
        }
        if fails { throw .systemCall("read", path: FilePath(call.detail), errno: Errno.ioError.rawValue) }
      }
      let read = Data(try blob.read(0..<900))
      lab.disk.beforeCalls(nil)
      #expect(read == data)
      let row = try engine.catalog.read { (view) throws(BlobStorageError) in
        try view.chunkRow(BlobDigest.of(data))
      }
      #expect(row?.isSuspect == false && count.withLock { $0 } < 0)
    }
  }

  @Test(
    "a part that the medium cannot read costs what lies there, and nothing else", arguments: [true, false])
  func unreadable(keepsCatalog: Bool) throws {
    let lab = try Lab()
    let keys = ["a", "b", "c", "d"]
    func value(_ index: Int) -> Data { noise(UInt64(index + 1), 3_000) }
    try lab.session { engine in
      for (index, key) in keys.enumerated() { try lab.put(engine, [(key, value(index))]) }
      try lab.put(engine, [("garbage", noise(9, 3_000))])
      try lab.delete(engine, ["garbage"])
    }
    let path = try #require(try Self.paths(lab).first)
    let name = try #require(path.lastComponent?.string)
    let whole = try Self.bytes(lab, path)
    let place = Int64(try #require(Data(whole).range(of: value(1).prefix(100))).lowerBound)
    try Self.breakMedium(lab, path, place..<place + 100)
    if !keepsCatalog { try lab.forgetCatalog() }
    func checkOthers(_ engine: Engine) throws {
      for (index, key) in keys.enumerated() where key != "b" {
        let data = try engine.data(key, nil)
        #expect(data == value(index), "\(key)")
      }
    }
    try lab.session { engine in
      let error = #expect(throws: BlobStorageError.self) { _ = try engine.data("b", nil) }
      #expect(error?.code == .corrupted && error?.key == "b" && error?.path == path.string)
      #expect(error?.errno == Errno.ioError.rawValue)
      try checkOthers(engine)
      let damaged = try engine.verify().damaged
      #expect(damaged.count == 1 && damaged.first?.keys == ["b"], "\(damaged)")
      #expect(damaged.first?.reason.contains("The medium cannot read \(path) at ") == true, "\(damaged)")
      let collected = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      #expect(!collected.obstacles.isEmpty && collected.freedByteCount == 0)
      let repaired = try engine.repair()
      #expect(repaired.setAside.count == 1 && repaired.unreadable.map(\.key) == ["b"])
      try checkOthers(engine)
      // What is put again is stored again.
      _ = try engine.put("b", .data(value(1)), PutOptions())
      let data = try engine.data("b", nil)
      #expect(data == value(1))
    }
    lab.disk.beforeCalls(nil)
    let aside = try Self.bytes(lab, FilePath("\(Lab.storePath)/set-aside").appending(name))
    #expect(aside == whole)
  }

  /// A writer that was killed has left its pack open.
  private static func storeOfOpenPack() throws -> Lab {
    let lab = try Lab()
    let engine = try lab.open()
    for number in 0..<12 { try lab.put(engine, [("k\(number)", noise(UInt64(number), 900))]) }
    lab.restart()
    return lab
  }

  /// Fails if a part that cannot be read is taken for a torn tail, or stays damaged for good.
  @Test("an open pack that the medium cannot read is not cut, and is whole again once it can be read")
  func unreadableOpenPack() throws {
    let origin = try Self.storeOfOpenPack()
    let path = try #require(try Self.paths(origin).first)
    let whole = try Self.bytes(origin, path)
    let last = Int64(try #require(Data(whole).range(of: noise(11, 900).prefix(100))).lowerBound)
    for (range, readable) in [(0..<Int64.max, []), (4_096..<8_192, [0, 11]), (last..<last + 1, [0, 5])]
      as [(Range<Int64>, [Int])]
    {
      for keepsCatalog in [true, false] {
        let (lab, moment) = (try origin.copy(), "\(range), catalog kept: \(keepsCatalog)")
        if !keepsCatalog { try lab.forgetCatalog() }
        try Self.breakMedium(lab, path, range)
        try lab.session { engine in
          for number in readable {
            let data = try engine.data("k\(number)", nil)
            #expect(data == noise(UInt64(number), 900), "k\(number), \(moment)")
          }
          let collected = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
          #expect(!collected.obstacles.isEmpty && collected.freedByteCount == 0, "\(moment)")
        }
        lab.disk.beforeCalls(nil)
        #expect(try Self.bytes(lab, path) == whole, "\(moment)")
        try lab.session { engine in
          for number in 0..<12 {
            let data = try engine.data("k\(number)", nil)
            #expect(data == noise(UInt64(number), 900), "k\(number), \(moment)")
          }
          let (damaged, losses) = (try engine.verify().damaged, try engine.losses())
          #expect(damaged == [] && losses.isEmpty, "\(moment)")
          #expect(try engine.collectGarbage().obstacles == [], "\(moment)")
        }
      }
    }
  }

  /// Fails if gc takes records that it cannot read any more for garbage.
  @Test("a medium that fails in the middle of a collection costs nothing")
  func unreadableMeanwhile() throws {
    let origin = try Lab()
    try origin.session { engine in
      for number in 0..<4 { try origin.put(engine, [("k\(number)", noise(UInt64(number), 900))]) }
    }
    try origin.session { try origin.delete($0, ["k1", "k2"]) }
    var number = 0
    while true {
      number += Soak.isOn ? 1 : 7
      let lab = try origin.copy()
      let engine = try lab.open()
      let rest = Mutex(number)
      lab.disk.beforeCalls { (call) throws(BlobStorageError) in
        guard call.kind == .read, call.detail.contains("/packs/") else { return }
        let isBroken = rest.withLock { rest in
          rest -= 1
          return rest < 0
        }
        if isBroken { throw .systemCall("read", path: "pack", errno: Errno.ioError.rawValue) }
      }
      do { _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)) } catch {
        // An error is an answer.
      }
      lab.disk.beforeCalls(nil)
      try engine.close()
      for forgets in [false, true] {
        if forgets { try lab.forgetCatalog() }
        try lab.session { engine in
          for kept in [0, 3] {
            let data = try engine.data("k\(kept)", nil)
            #expect(data == noise(UInt64(kept), 900), "k\(kept), read \(number)")
          }
          let found = try engine.keys("", after: nil, limit: 9).map(\.key)
          #expect(found == ["k0", "k3"], "read \(number)")
          let damaged = try engine.verify().damaged
          #expect(damaged == [], "read \(number)")
        }
      }
      if rest.withLock({ $0 >= 0 }) { break }
      guard number < 2_000 else { throw Broken("a collection reads \(number) times") }
    }
    #expect(number > 20)
  }
}
