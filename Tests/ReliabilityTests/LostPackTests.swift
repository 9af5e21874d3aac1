import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// A pack that is missing, cut short or replaced is a loss that is reported until it is accepted; the census knows.
@Suite("Lost packs", .serialized)
struct LostPackTests {
  static let census = FilePath("\(Lab.storePath)/census")
  static let packs = FilePath("\(Lab.storePath)/packs")

  /// Sealed packs with old and new versions and a deletion, and the pack of a writer that was killed.
  static func store() throws -> Lab {
    let lab = try Lab()
    try lab.session { (engine) throws in
      try lab.put(engine, [("a", prose(1, 900))])
      try lab.put(engine, [("b", noise(2, 700))])
    }
    try lab.session { try lab.put($0, [("a", noise(3, 500))]) }
    try lab.session { try lab.delete($0, ["b"]) }
    let engine = try lab.open()
    try lab.put(engine, [("a", noise(4, 400)), ("c", noise(5, 300))])
    // The catalog has them: what lies in a tail only is lost with its pack.
    try engine.catalog.settle()
    lab.restart()
    return lab
  }

  static func names(_ lab: Lab) throws -> [String] {
    try lab.disk.list(packs).filter { $0.hasSuffix(".pack") }
  }

  /// What is asked while something is lost: never an old version, nothing removed, and always told.
  private static func checkLoss(_ lab: Lab, _ name: String, sourceLocation: SourceLocation = #_sourceLocation)
    throws
  {
    let engine = try lab.open()
    let pack = String(name.dropLast(5))
    let losses = try engine.losses()
    #expect(losses.lostPacks + losses.damagedPacks == [pack], sourceLocation: sourceLocation)
    let report = try engine.verify()
    #expect(!report.damaged.isEmpty, sourceLocation: sourceLocation)
    #expect(report.losses == losses, sourceLocation: sourceLocation)
    let before = try names(lab)
    let collected = try engine.collectGarbage()
    #expect(!collected.obstacles.isEmpty, sourceLocation: sourceLocation)
    #expect(collected.freedByteCount == 0, sourceLocation: sourceLocation)
    #expect(try Set(before).isSubset(of: names(lab)), sourceLocation: sourceLocation)
    // Writing goes on, and does not share what is lost.
    for (key, data) in [
      ("d", noise(6, 200)), ("e", noise(4, 400)), ("f", prose(1, 900)), ("g", noise(3, 500)),
    ] {
      _ = try engine.put(key, .data(data), PutOptions())
      #expect(try engine.data(key, nil) == data, sourceLocation: sourceLocation)
    }
    try engine.close()
  }

  @Test("Each pack removed in turn is missed, with the catalog and without", arguments: [true, false])
  func removed(keepsCatalog: Bool) throws {
    let whole = try Self.store()
    for name in try Self.names(whole) {
      let lab = try whole.copy()
      try lab.disk.remove(Self.packs.appending(name))
      if !keepsCatalog { try lab.forgetCatalog() }
      if keepsCatalog {
        // The catalog knows the newest state: what it cannot deliver is damage, and nothing old is.
        let engine = try lab.open()
        for (key, newest) in [("a", noise(4, 400)), ("c", noise(5, 300))] {
          do {
            #expect(try engine.data(key, nil) == newest)
          } catch { #expect(error.code == .corrupted) }
        }
        #expect(try engine.version("b", nil) == nil)
        try engine.close()
      }
      try Self.checkLoss(lab, name)
      // A repair tells it again; only when it is accepted all is quiet.
      let engine = try lab.open()
      #expect(try !engine.repair().losses.isEmpty)
      #expect(try !engine.losses().isEmpty)
      _ = try engine.repair(acceptsLosses: true)
      #expect(try engine.losses().isEmpty)
      #expect(try engine.verify().damaged.isEmpty)
      #expect(try engine.collectGarbage().obstacles.isEmpty)
      #expect(try engine.data("d", nil) == noise(6, 200))
      for key in ["a", "b", "c"] {
        guard let version = try engine.version(key, nil) else { continue }
        #expect(try Int64(engine.data(key, nil)?.count ?? -1) == version.byteCount)
      }
      try engine.close()
      for _ in 0..<2 {
        let again = try lab.open()
        #expect(try again.losses().isEmpty)
        try again.close()
        try lab.forgetCatalog()
      }
    }
  }

  @Test("An acceptance that could not be synced is on the medium once it is repeated")
  func acceptedAgain() throws {
    let lab = try Self.store()
    try lab.session { _ in }
    let name = try #require(try Self.names(lab).first)
    try lab.disk.remove(Self.packs.appending(name))
    let census = try lab.disk.open(Self.census, .readWrite)
    try census.synchronize()
    census.close()
    for folder in [Self.packs, FilePath(Lab.storePath)] { try lab.disk.syncDirectory(folder) }
    let engine = try lab.open()
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.kind == .synchronize, call.detail.hasPrefix("\(Self.census) ") else { return }
      throw BlobStorageError(.io, "The sync has failed.")
    }
    #expect(throws: BlobStorageError.self) { try engine.repair(acceptsLosses: true) }
    lab.disk.beforeMutations(nil)
    _ = try engine.repair(acceptsLosses: true)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let losses = try engine.losses()
      #expect(losses.isEmpty)
    }
    try engine.close()
  }

  @Test("A lost pack that comes back is part of the store again", arguments: [true, false])
  func cameBack(keepsCatalog: Bool) throws {
    let lab = try Self.store()
    try lab.session { _ in }
    let name = try #require(try Self.names(lab).first)
    let aside = FilePath("/kept")
    try lab.disk.rename(Self.packs.appending(name), to: aside)
    try lab.session { (engine) throws in #expect(try !engine.losses().isEmpty) }
    if !keepsCatalog { try lab.forgetCatalog() }
    try lab.disk.rename(aside, to: Self.packs.appending(name))
    let engine = try lab.open()
    #expect(try engine.losses().isEmpty)
    #expect(try engine.verify().damaged.isEmpty)
    #expect(try engine.data("a", nil) == noise(4, 400))
    #expect(try engine.version("b", nil) == nil)
    try engine.close()
  }

  @Test("A sealed pack cut at any of its records is damaged once the catalog is rebuilt, and stays as it is")
  func cutShort() throws {
    let whole = try Self.store()
    try whole.session { _ in }
    for name in try Self.names(whole) {
      let path = Self.packs.appending(name)
      let bytes = try DamageTests.bytes(whole, path)
      let file = try whole.disk.open(path, .read)
      let pack = try #require(PackName(fileName: name))
      var ends: [Int64] = []
      _ = try PackScanner(file: file, name: pack, codecs: CodecPool()).scan { ends.append($0.offset) }
      for end in ends {
        let lab = try whole.copy()
        try DamageTests.change(lab, path) { $0 = Array(bytes.prefix(Int(end))) }
        try lab.forgetCatalog()
        try Self.checkLoss(lab, name)
        #expect(try DamageTests.bytes(lab, path).count == Int(end))
      }
    }
  }

  /// Fails if gc takes a pack by the records that are left of it.
  @Test("gc leaves a sealed pack alone that was cut beside its catalog, and it is whole once it is put back")
  func cutShortBesideCatalog() throws {
    let everything = GarbageCollectionOptions(minimumGarbageShare: 0)
    let whole = try Self.store()
    try whole.session { _ in }
    for name in try Self.names(whole) {
      let path = Self.packs.appending(name)
      // gc does not look at a pack without garbage.
      if try DamageTests.holds(whole, path, key: "c") { continue }
      let bytes = try DamageTests.bytes(whole, path)
      for end in try DamagedRecordTests.records(whole, path).map(\.lowerBound) {
        let lab = try whole.copy()
        try DamageTests.change(lab, path) { $0 = Array(bytes.prefix(end)) }
        try lab.session { (engine) throws in
          let report = try engine.collectGarbage(everything)
          #expect(!report.obstacles.isEmpty && report.freedByteCount == 0, "\(name) cut at \(end)")
        }
        #expect(try DamageTests.bytes(lab, path).count == end)
        try DamageTests.change(lab, path) { $0 = bytes }
        try lab.session { (engine) throws in
          #expect(try engine.data("a", nil) == noise(4, 400))
          #expect(try engine.data("c", nil) == noise(5, 300))
          #expect(try engine.version("b", nil) == nil)
          #expect(try engine.verify().damaged == [])
          let report = try engine.collectGarbage(everything)
          #expect(report.obstacles == [] && report.freedByteCount > 0, "\(name) put back")
        }
      }
    }
  }

  @Test("A removed pack that is put back brings nothing back", arguments: [true, false])
  func putBack(keepsCatalog: Bool) throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 600))]) }
    let name = try #require(try Self.names(lab).first)
    let bytes = try DamageTests.bytes(lab, Self.packs.appending(name))
    try lab.session { (engine) throws in
      try lab.delete(engine, ["a"])
      _ = try engine.collectGarbage()
      _ = try engine.collectGarbage()
    }
    try lab.session { try lab.put($0, [("b", noise(2, 600))]) }
    #expect(try !Self.names(lab).contains(name))
    let file = try lab.disk.open(Self.packs.appending(name), .create)
    try bytes.withUnsafeBytes { try file.write($0, at: 0) }
    file.close()
    if !keepsCatalog { try lab.forgetCatalog() }
    try lab.session { (engine) throws in
      #expect(try engine.version("a", nil) == nil)
      #expect(try engine.losses().isEmpty)
      #expect(try engine.collectGarbage().obstacles.isEmpty)
      #expect(try engine.version("a", nil) == nil)
      #expect(try engine.data("b", nil) == noise(2, 600))
    }
    #expect(try !Self.names(lab).contains(name))
  }

  @Test("A census that is lost is made anew, and then knows every pack")
  func lostCensus() throws {
    let lab = try Self.store()
    try lab.disk.remove(Self.census)
    try lab.session { (engine) throws in #expect(try engine.losses().isEmpty) }
    let name = try #require(try Self.names(lab).last)
    try lab.disk.remove(Self.packs.appending(name))
    try lab.forgetCatalog()
    try Self.checkLoss(lab, name)
  }

  @Test(
    "A pack that was open, and is lost with the census, is reported: what only its tail had is not forgotten")
  func openPackLost() throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 500))]) }
    let before = Set(try Self.names(lab))
    let writer = try lab.open()
    try lab.put(writer, [("a", noise(2, 500))])
    let name = try #require(try Self.names(lab).first { !before.contains($0) })
    // In the copy, its process has ended.
    let copy = try lab.afterKill(lab.catalog)
    for path in [Self.census, Self.packs.appending(name)] { try copy.disk.remove(path) }
    try copy.session { (engine) throws in
      #expect(try engine.losses().lostPacks == [String(name.dropLast(5))])
      #expect(try engine.verify().losses.lostPacks.count == 1)
    }
    try writer.close()
  }

  @Test("A lost pack that only the catalog knew is reported even if the catalog is lost after that")
  func catalogLostLater() throws {
    let whole = try Self.store()
    try whole.session { _ in }
    for name in try Self.names(whole) {
      let origin = try whole.copy()
      try origin.disk.remove(Self.census)
      try origin.disk.remove(Self.packs.appending(name))
      // That they are gone is on the medium.
      let lab = try origin.copy()
      let pack = String(name.dropLast(5))
      try lab.session { (engine) throws in #expect(try engine.losses().lostPacks == [pack]) }
      try lab.afterPowerCut { $0.powerCut() }.session { (engine) throws in
        #expect(try engine.losses().lostPacks == [pack])
        #expect(try engine.verify().losses.lostPacks == [pack])
        #expect(try engine.collectGarbage().freedByteCount == 0)
      }
    }
  }

  @Test("A census that is cut or flipped raises no alarm, and loses nothing")
  func damagedCensus() throws {
    let whole = try Self.store()
    try whole.session { (engine) throws in
      try whole.put(engine, [("h", noise(7, 100))])
      try whole.delete(engine, ["h"])
      _ = try engine.collectGarbage()
    }
    let bytes = try DamageTests.bytes(whole, Self.census)
    #expect(Census(bytes: bytes).removedCount > 0)
    for offset in stride(from: 0, to: bytes.count, by: 29) {
      var flipped = bytes
      flipped[offset] ^= UInt8(1 << (offset % 8))
      let lab = try whole.copy()
      try DamageTests.change(lab, Self.census) { $0 = flipped }
      try lab.session { (engine) throws in
        #expect(try engine.losses().isEmpty, "byte \(offset)")
        #expect(try engine.data("a", nil) == noise(4, 400))
        #expect(try engine.version("b", nil) == nil)
      }
    }
    for count in stride(from: 0, to: bytes.count, by: 61) {
      let lab = try whole.copy()
      try DamageTests.change(lab, Self.census) { $0 = Array(bytes.prefix(count)) }
      let engine = try lab.open()
      let isQuiet = try engine.losses().isEmpty
      #expect(try engine.data("a", nil) == noise(4, 400))
      // Of a pack that was removed, the cut may have taken the word: it is told, and accepting that loses nothing.
      if !isQuiet { _ = try engine.repair(acceptsLosses: true) }
      #expect(try engine.losses().isEmpty)
      #expect(try engine.collectGarbage().obstacles.isEmpty)
      #expect(try engine.data("a", nil) == noise(4, 400))
      try engine.close()
    }
  }

  @Test("A repair that accepts a loss can be cut at every call")
  func acceptanceCut() throws {
    let whole = try Self.store()
    try whole.session { _ in }
    let name = try #require(try Self.names(whole).last)
    try whole.disk.remove(Self.packs.appending(name))
    var isDone = false
    var number = 0
    while !isDone {
      let lab = try whole.copy()
      let engine = try lab.open()
      number += 1
      lab.disk.stop(beforeMutation: lab.disk.mutationCount + number)
      do {
        _ = try engine.repair(acceptsLosses: true)
        isDone = true
      } catch { #expect(error.code == .simulatedStop || error.code == .poisoned) }
      lab.disk.heal()
      for after in [lab, try lab.afterPowerCut { $0.powerCut() }] {
        after.restart(with: try CatalogFolder())
        try after.session { (engine) throws in
          let losses = try engine.losses()
          #expect(losses.lostPacks.isEmpty || losses.lostPacks == [String(name.dropLast(5))])
          if isDone { #expect(losses.isEmpty) }
          // Cut between accepting the loss and dropping what cannot be read, gc still waits.
          let isWhole = try engine.verify().damaged.isEmpty
          #expect(try engine.collectGarbage().obstacles.isEmpty == (losses.isEmpty && isWhole))
          if isDone { #expect(isWhole) }
          _ = try engine.repair(acceptsLosses: true)
          #expect(try engine.losses().isEmpty)
          #expect(try engine.verify().damaged.isEmpty)
          #expect(try engine.collectGarbage().obstacles.isEmpty)
        }
      }
    }
  }

  @Test("gc removes nothing while a version lacks a chunk, and goes on once that is accepted")
  func missingChunk() throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 600)), ("x", noise(2, 600))]) }
    // The ref goes into another pack than the chunk.
    try lab.session { try lab.put($0, [("b", noise(1, 600))]) }
    let first = try #require(
      try Self.names(lab).first { try DamageTests.holds(lab, Self.packs.appending($0), key: "a") })
    try lab.disk.remove(Self.packs.appending(first))
    try lab.forgetCatalog()
    try lab.session { (engine) throws in
      let other = try engine.repair()
      #expect(other.unreadable.map(\.key) == ["b"])
      let report = try engine.collectGarbage()
      #expect(!report.obstacles.isEmpty)
      #expect(report.freedByteCount == 0)
      let accepted = try engine.repair(acceptsLosses: true)
      #expect(accepted.dropped.map(\.key) == ["b"])
      #expect(accepted.unreadable.isEmpty)
      #expect(try engine.version("b", nil) == nil)
      #expect(try engine.verify().damaged.isEmpty)
      #expect(try engine.collectGarbage().obstacles.isEmpty)
    }
  }

  @Test("A loss of what very many keys need is told of each of them, and all are dropped when it is accepted")
  func missingForMany() throws {
    let lab = try Lab()
    lab.packByteCountTarget = 8 << 20
    let (shared, own) = (noise(1, 200), noise(2, 200))
    try lab.session { _ = try $0.put("first", .data(shared), PutOptions()) }
    let first = try #require(try Self.names(lab).first)
    let keys = (0..<1_100).map { "k\($0)" }
    try lab.session { (engine) throws in
      let items = keys.map { PutItem(key: $0, data: shared) } + [PutItem(key: "whole", data: own)]
      _ = try engine.put(items, PutOptions())
    }
    try lab.disk.remove(Self.packs.appending(first))
    try lab.forgetCatalog()
    try lab.session { (engine) throws in
      let verified = try engine.verify()
      let missing = verified.damaged.filter { $0.digest != nil }
      #expect(missing.count == 1 && missing.first?.keys == keys.sorted())
      #expect(verified.blobCount == 2)
      let report = try engine.repair(acceptsLosses: true)
      #expect(report.dropped.map(\.key).sorted() == keys.sorted() && report.unreadable == [])
      #expect(report.keyCount == 1)
    }
    try lab.forgetCatalog()
    try lab.session { (engine) throws in
      #expect(try engine.keys("", after: nil, limit: 10_000).map(\.key) == ["whole"])
      #expect(try engine.data("whole", nil) == own)
      #expect(try engine.verify().damaged.isEmpty)
    }
  }

  @Test("gc removes nothing once a read or verify has found a chunk damaged", arguments: [true, false])
  func damagedChunk(byVerify: Bool) throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 600))]) }
    try lab.session { try lab.put($0, [("x", noise(2, 600))]) }
    let hurt = try #require(
      try Self.names(lab).first { try DamageTests.holds(lab, Self.packs.appending($0), key: "a") })
    try DamageTests.change(lab, Self.packs.appending(hurt)) { $0[300] ^= 1 }
    try lab.session { (engine) throws in
      _ = try engine.delete(["x"], .durable)
      if byVerify {
        #expect(try engine.verify().damaged.count == 1)
      } else {
        #expect(throws: BlobStorageError.self) { try engine.data("a", nil) }
      }
      let report = try engine.collectGarbage()
      #expect(report.obstacles.count == 1)
      #expect(report.freedByteCount == 0)
      _ = try engine.put("a", .data(noise(1, 600)), PutOptions())
      #expect(try engine.collectGarbage().obstacles.isEmpty)
      #expect(try engine.data("a", nil) == noise(1, 600))
    }
  }

  @Test("The census stays short while packs come and go")
  func staysShort() throws {
    let lab = try Lab()
    for round in 0..<60 {
      try lab.session { try lab.put($0, [("a", noise(UInt64(round), 200))]) }
    }
    try lab.session { _ = try $0.collectGarbage() }
    let census = try Census(bytes: DamageTests.bytes(lab, Self.census))
    #expect(census.lineCount < 200)
    try lab.session { (engine) throws in
      #expect(try engine.losses().isEmpty)
      #expect(try engine.data("a", nil) == noise(59, 200))
    }
  }

  @Test("A census with damaged lines is written anew by a collection, and not by a dry run")
  func damagedLinesGo() throws {
    let lab = try Self.store()
    try lab.session { _ in }
    func damagedLineCount() throws -> Int {
      try Census(bytes: DamageTests.bytes(lab, Self.census)).damagedLineCount
    }
    #expect(try damagedLineCount() == 0)
    try DamageTests.change(lab, Self.census) { $0[$0.count / 2] ^= 1 }
    #expect(try damagedLineCount() > 0)
    try lab.session { (engine) throws in
      var options = GarbageCollectionOptions()
      options.isDryRun = true
      _ = try engine.collectGarbage(options)
      #expect(try damagedLineCount() > 0)
      #expect(try engine.collectGarbage().obstacles == [])
      #expect(try damagedLineCount() == 0)
    }
    // It still knows every pack.
    let name = try #require(try Self.names(lab).last)
    try lab.disk.remove(Self.packs.appending(name))
    try lab.forgetCatalog()
    try Self.checkLoss(lab, name)
  }

  @Test("The file store is restored from the census, and without it from the packs")
  func storeFile() throws {
    let whole = try Self.store()
    let path = FilePath("\(Lab.storePath)/store")
    let bytes = try DamageTests.bytes(whole, path)
    let other = try Lab(seed: 77)
    let foreign = try DamageTests.bytes(other, path)
    var flipped = bytes
    flipped[40] ^= 1
    var flippedVersion = bytes
    flippedVersion[8] ^= 4
    for content in [nil, [], Array("something else".utf8), flipped, flippedVersion, foreign] as [[UInt8]?] {
      for hasCensus in [true, false] {
        let lab = try whole.copy()
        try lab.disk.remove(path)
        if let content {
          let file = try lab.disk.open(path, .create)
          try content.withUnsafeBytes { try file.write($0, at: 0) }
          file.close()
        }
        if !hasCensus { try lab.disk.remove(Self.census) }
        if hasCensus || content != foreign {
          #expect(throws: BlobStorageError.self) { try lab.open() }
        }
        // No call creates a new store over the rest of this one.
        #expect(throws: BlobStorageError.self) {
          try Engine.create(
            at: Lab.storePath, options: Lab.options, environment: lab.environment(lab.disk.process()))
        }
        #expect(try Engine.restoreHeader(at: Lab.storePath, environment: lab.environment(lab.disk.process())))
        if hasCensus { #expect(try DamageTests.bytes(lab, path) == bytes) }
        #expect(
          try !Engine.restoreHeader(at: Lab.storePath, environment: lab.environment(lab.disk.process())))
        try lab.forgetCatalog()
        try lab.session { (engine) throws in
          #expect(engine.header.storeID == whole.storeID(bytes))
          #expect(try engine.data("a", nil) == noise(4, 400))
          #expect(try engine.losses().isEmpty)
        }
      }
    }
  }

  @Test("The census of another store is set aside and made anew", arguments: [true, false])
  func foreignCensus(hasStoreFile: Bool) throws {
    let lab = try Self.store()
    let foreign = try DamageTests.bytes(Lab(seed: 77), Self.census)
    try DamageTests.change(lab, Self.census) { $0 = foreign }
    let error = #expect(throws: BlobStorageError.self) { try lab.open() }
    #expect(error?.code == .corrupted)
    if !hasStoreFile { try lab.disk.remove(FilePath("\(Lab.storePath)/store")) }
    let isRestored = try Engine.restoreHeader(
      at: Lab.storePath, environment: lab.environment(lab.disk.process()))
    #expect(isRestored == !hasStoreFile)
    #expect(try DamageTests.bytes(lab, FilePath("\(Lab.storePath)/set-aside/census")) == foreign)
    try lab.session { (engine) throws in
      #expect(try engine.data("a", nil) == noise(4, 400))
      #expect(try engine.losses().isEmpty)
    }
    let count = try Self.names(lab).count
    #expect(try Census(bytes: DamageTests.bytes(lab, Self.census)).packs.count == count)
  }

  @Test("A look for the file store goes on when a collection removes a pack meanwhile")
  func collectedMeanwhile() throws {
    let lab = try Self.store()
    let count = try Self.names(lab).count
    let isFirst = Atomic(true)
    lab.disk.beforeCalls { [disk = lab.disk] (call) throws(BlobStorageError) in
      guard call.kind == .open, call.detail.contains(".pack"),
        isFirst.exchange(false, ordering: .relaxed), let name = call.detail.split(separator: " ").first
      else { return }
      try disk.remove(FilePath(String(name)))
    }
    #expect(try !Engine.restoreHeader(at: Lab.storePath, environment: lab.environment(lab.disk.process())))
    lab.disk.beforeCalls(nil)
    #expect(try Self.names(lab).count == count - 1)
  }
}

extension Lab {
  fileprivate func storeID(_ header: [UInt8]) -> [UInt8] { Array(header[32..<48]) }
}

extension Census {
  fileprivate init(bytes: [UInt8]) { self = bytes.withUnsafeBytes { Census($0) } }

  fileprivate var removedCount: Int {
    events.count { if case .removed = $0 { true } else { false } }
  }
}
