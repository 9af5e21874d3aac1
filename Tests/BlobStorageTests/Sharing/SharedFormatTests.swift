import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Testing

@Suite("Objects of a shared store")
struct SharedFormatTests {
  static let storeID = (0..<16).map { UInt8($0) }

  /// One of each kind, by its name.
  private static func samples() throws -> [(name: String, bytes: [UInt8], read: ([UInt8]) throws -> Void)] {
    let place = SharedPlace()
    let pack = PackName(writer: 5, sequence: 3)
    _ = try Membership.join(
      place.objects, storeID: storeID, writer: 5,
      process: WriterProcess(machine: "Rechner ü", number: 4, command: "tool put", began: 9))
    _ = try #require(try place.log.condemn([pack], after: Collections(), by: 9))
    _ = try Membership.join(place.objects, storeID: storeID, writer: 6, process: WriterProcess(machine: ""))
    _ = try Fencing.fence(5, removed: RemovedPacks(), by: 9, place.objects, storeID: storeID)
    _ = try place.changes.append(Change(5, 3..<9)) { 0 }
    let fence = PackName(writer: 5, sequence: 1)
    let names: [(String, ([UInt8]) throws -> Void)] = [
      ("writers/0000000000000005", { try place.read(registration: $0) }),
      ("collections/00000001", { try place.read(entry: $0) }),
      ("packs/0000000000000005-00000001.pack", { _ = try Fence($0, fence, storeID: storeID) }),
      ("changes/00000001", { _ = try Change($0, number: 1, storeID: storeID) }),
      (
        "acks/00000001/0000000000000006",
        { _ = try SharedObject($0, .ack, storeID: storeID, name: "ack") }
      ),
    ]
    return try names.map { (name, read) in (name, try #require(place.objects.peek(name), "\(name)"), read) }
  }

  @Test("are read as they were written, and as nothing else")
  func damage() throws {
    for (name, bytes, read) in try Self.samples() {
      try read(bytes)
      for index in bytes.indices {
        var changed = bytes
        changed[index] ^= 1 << UInt8(index % 8)
        #expect(throws: BlobStorageError.self, "byte \(index) of \(name)") { try read(changed) }
      }
      for count in 0..<bytes.count {
        let error = #expect(throws: BlobStorageError.self) { try read(Array(bytes.prefix(count))) }
        #expect(error?.code == .corrupted)
      }
      #expect(throws: BlobStorageError.self) { try read(bytes + [0]) }
      #expect(throws: BlobStorageError.self) { try read([UInt8](repeating: 7, count: 70_000)) }
    }
  }

  @Test("are not taken for another kind, another place or another store's")
  func strangers() throws {
    let samples = try Self.samples()
    for (index, (_, _, read)) in samples.enumerated() {
      for (other, (name, bytes, _)) in samples.enumerated() where other != index {
        let error = #expect(throws: BlobStorageError.self, "\(name)") { try read(bytes) }
        #expect(error?.code == .corrupted)
      }
    }
    let fence = Fence(PackName(writer: 1, sequence: 2), by: 3).encoded(storeID: Self.storeID)
    #expect(throws: BlobStorageError.self) {
      try Fence(fence, PackName(writer: 1, sequence: 3), storeID: Self.storeID)
    }
    #expect(throws: BlobStorageError.self) {
      try Fence(fence, PackName(writer: 1, sequence: 2), storeID: [UInt8](repeating: 1, count: 16))
    }
  }

  @Test("a fence is shorter than any pack")
  func fenceLength() {
    let fence = Fence(PackName(writer: 1, sequence: 2), by: 3).encoded(storeID: Self.storeID)
    #expect(fence.count == Fence.byteCount)
    #expect(fence.count == 52)
    #expect(Fence.byteCount < PackHeader.byteCount)
  }

  @Test("a machine's name is cut where a character ends")
  func longName() throws {
    let place = SharedPlace()
    let machine = String(repeating: "ü", count: 200)
    _ = try Membership.join(
      place.objects, storeID: Self.storeID, writer: 5, process: WriterProcess(machine: machine))
    let found = try #require(
      try Membership.registration(of: 5, place.objects, storeID: Self.storeID))
    #expect(found.process.machine == String(repeating: "ü", count: 127))
  }

  @Test("names are spelled in one way")
  func names() {
    #expect(SharedNames.writerNumber("writers/00000000000000ff") == 255)
    #expect(SharedNames.collectionNumber("collections/00000010") == 16)
    #expect(SharedNames.ackWriter("acks/00000001/000000000000000a", epoch: 1) == 10)
    #expect(
      SharedNames.packName("packs/000000000000000a-00000001.pack") == PackName(writer: 10, sequence: 1))
    for name in [
      "writers/", "writers/00000000000000FF", "writers/ff", "writers/00000000000000ff0",
      "packs/0000000000000005",
    ] { #expect(SharedNames.writerNumber(name) == nil, "\(name)") }
    #expect(SharedNames.collectionNumber("collections/0000001") == nil)
    #expect(SharedNames.ackWriter("acks/00000002/000000000000000a", epoch: 1) == nil)
    #expect(SharedNames.packName("packs/000000000000000a-00000000.pack") == nil)
  }

  @Test("what was removed is kept as a set, whatever the order")
  func removedPacks() throws {
    for seed in UInt64(1)...200 {
      var random = SplitMix64(seed: seed)
      var removed = RemovedPacks()
      var model: Set<PackName> = []
      for _ in 0..<Int.random(in: 0...60, using: &random) {
        let name = PackName(
          writer: .random(in: 1...3, using: &random), sequence: .random(in: 1...30, using: &random))
        removed.insert(name)
        model.insert(name)
      }
      for writer in UInt64(0)...4 {
        for sequence in UInt32(1)...31 {
          let name = PackName(writer: writer, sequence: sequence)
          #expect(removed.contains(name) == model.contains(name), "seed \(seed), \(name)")
        }
        #expect(removed.last(of: writer) == model.filter { $0.writer == writer }.map(\.sequence).max())
      }
      for ranges in removed.ranges.values {
        for (one, next) in zip(ranges, ranges.dropFirst()) { #expect(one.upperBound + 1 < next.lowerBound) }
      }
      // And through the log.
      let place = SharedPlace()
      let mine = try #require(try place.log.condemn(model, after: Collections(), by: 1))
      let done = try #require(try place.log.remove(model, after: mine, by: 1))
      #expect(done.removed == removed)
      #expect(try place.log.read(after: Collections()) == done, "seed \(seed)")
    }
  }
}

/// An object store with the log of collections.
struct SharedPlace {
  let objects: SimulatedObjectStore
  var log: CollectionLog { CollectionLog(objects, storeID: SharedFormatTests.storeID) }
  var changes: ChangeList { ChangeList(objects, storeID: SharedFormatTests.storeID) }
  private var storeID: [UInt8] { SharedFormatTests.storeID }

  init(_ faults: ObjectFaults = ObjectFaults(), seed: UInt64 = 1) {
    objects = SimulatedObjectStore(seed: seed, faults: faults)
  }

  func read(registration bytes: [UInt8]) throws {
    _ = try WriterRegistration(bytes, writer: 5, storeID: storeID)
  }

  func read(entry bytes: [UInt8]) throws {
    _ = try Collections(bytes, .collection, number: 1, storeID: storeID, name: "entry")
  }

  /// A published pack.
  func addPack(_ writer: UInt64, _ sequence: UInt32, _ byte: UInt8 = 0) {
    let name = PackName(writer: writer, sequence: sequence)
    objects.set(SharedNames.pack(name), [UInt8](repeating: byte, count: 100))
  }

  func publish(_ writer: UInt64, _ sequence: UInt32, _ byte: UInt8 = 0) throws -> Publication.Outcome {
    try Publication.publish(
      PackName(writer: writer, sequence: sequence), .bytes([UInt8](repeating: byte, count: 100)), objects,
      storeID: storeID)
  }

  func fence(
    _ writer: UInt64, _ removed: RemovedPacks = RemovedPacks(), _ weaknesses: Weaknesses = []
  ) throws -> UInt32? {
    try Fencing.fence(writer, removed: removed, by: 77, objects, storeID: storeID, weaknesses: weaknesses)
  }

  func listing(_ weaknesses: Weaknesses = []) throws -> StoreListing {
    try StoreListing.read(objects, storeID: storeID, known: Collections(), weaknesses: weaknesses)
  }
}
