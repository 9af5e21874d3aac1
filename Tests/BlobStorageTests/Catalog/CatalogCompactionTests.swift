import BlobStorage
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A catalog whose file is longer than it need be")
struct CatalogCompactionTests {
  private static func digests(_ catalog: Catalog) throws -> [BlobDigest] {
    try catalog.read { (transaction) throws(BlobStorageError) in
      var found: [BlobDigest] = []
      try transaction.forEachChunk { digest, _ in
        found.append(digest)
        return true
      }
      return found
    }
  }

  private static func generations(_ place: CatalogPlace) throws -> [String] {
    try SystemFiles().list(place.temporary.path.appending("catalog")).filter { $0.hasPrefix("g") }
  }

  @Test("is left without them by the last process that closes it, and says the same", .timeLimit(.minutes(5)))
  func shrinks() throws {
    let place = try CatalogPlace()
    var gone = SamplePack(PackPlace.header(sequence: 1))
    for number in 0..<30_000 { gone.append(.chunk(Array("chunk \(number)".utf8))) }
    var kept = SamplePack(PackPlace.header(sequence: 2))
    for number in 0..<500 { kept.append(.chunk(Array("kept \(number)".utf8))) }
    try place.apply(gone, 0..<gone.records.count)
    try place.apply(kept, 0..<kept.records.count, seals: true)
    try place.retract(gone)
    let digests = try Self.digests(place.catalog)
    #expect(digests.count == 500)
    let before = try place.catalog.allocatedByteCount()
    let generations = try Self.generations(place)
    place.catalog.close()

    #expect(try Self.generations(place).count == 1)
    #expect(try Self.generations(place) != generations)
    for generation in try Self.generations(place) {
      let file = place.temporary.path.appending("catalog").appending(generation).appending("data.mdb")
      #expect(try SystemFiles().status(of: file)?.permissions == 0o600)
    }
    let again = try CatalogPlace.open(in: place.temporary)
    defer { again.close() }
    #expect(try again.allocatedByteCount() * 4 < before)
    #expect(try Self.digests(again) == digests)
  }

  @Test("is written anew for many changes, not for a few")
  func changes() throws {
    let place = try CatalogPlace()
    var first = SamplePack(PackPlace.header(sequence: 1))
    for number in 0..<30_000 { first.append(.chunk(Array("chunk \(number)".utf8))) }
    try place.apply(first, 0..<first.records.count, seals: true)
    place.catalog.close()
    var generations = try Self.generations(place)
    // A row in one page of about 400; a row in nearly each.
    for (round, count) in [1, 1, 3_000, 1].enumerated() {
      var pack = SamplePack(PackPlace.header(sequence: UInt32(round) + 2))
      for number in 0..<count { pack.append(.chunk(Array("round \(round) \(number)".utf8))) }
      let catalog = try CatalogPlace.open(in: place.temporary)
      try CatalogPlace.apply(pack, 0..<count, to: catalog, seals: true)
      catalog.close()
      #expect(try (Self.generations(place) != generations) == (count > 1), "round \(round)")
      generations = try Self.generations(place)
    }
  }

  @Test("is left as it is, without the copy, on a disk without room for its state")
  func noRoom() throws {
    let temporary = try TemporaryFolder()
    let isFull = Mutex(false)
    let files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "rename", path.lastComponent?.string == "state.new", isFull.withLock({ $0 }) else {
        return
      }
      throw .systemCall("rename", path: path, errno: Errno.noSpace.rawValue)
    }
    let catalog = try CatalogPlace.open(in: temporary, files: files)
    var pack = SamplePack(PackPlace.header(sequence: 1))
    for number in 0..<30_000 { pack.append(.chunk(Array("chunk \(number)".utf8))) }
    try CatalogPlace.apply(pack, 0..<pack.records.count, to: catalog, seals: true)
    let generation = try #require(catalog.generation)
    isFull.withLock { $0 = true }
    catalog.close()
    let left = try SystemFiles().list(temporary.path.appending("catalog")).filter { $0.hasPrefix("g") }
    #expect(left == [generation])
  }

  @Test("is left alone while another has it open")
  func waits() throws {
    let place = try CatalogPlace()
    var gone = SamplePack(PackPlace.header(sequence: 1))
    for number in 0..<30_000 { gone.append(.chunk(Array("chunk \(number)".utf8))) }
    try place.apply(gone, 0..<gone.records.count)
    try place.retract(gone)
    let other = try CatalogPlace.open(in: place.temporary)
    defer { other.close() }
    let generations = try Self.generations(place)
    place.catalog.close()
    #expect(try Self.generations(place) == generations)
    #expect(try Self.digests(other) == [])
  }

  @Test(
    "is called clean by the last process that closes it, unless it knows of a pack that a killed writer left open"
  )
  func openPacks() throws {
    for isSealed in [true, false] {
      let place = try CatalogPlace()
      var pack = SamplePack(PackPlace.header(sequence: 1))
      pack.append(.chunk(Array("not forced to the medium".utf8)))
      try place.apply(pack, 0..<1, seals: isSealed)
      place.catalog.close()
      let state = try String(
        contentsOfFile: place.temporary.path.appending("catalog/state").string, encoding: .utf8)
      #expect(state.contains(" clean") == isSealed, "\(state)")
    }
  }
}
