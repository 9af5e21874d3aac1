import BlobStorage
import Testing

@Suite("A copy of what lies in a pack that is about to go")
struct CondemnedCopyTests {
  @Test("counts from then on, though its pack is older", arguments: ["chunk", "manifest"])
  func older(kind: String) throws {
    let place = try CatalogPlace()
    let plain: [UInt8] = [1, 2, 3]
    let digest = BlobDigest.of(plain)
    let entry = ChunkEntry(digest: BlobDigest.of([9]), plainByteCount: 1)
    let record: SampleRecord = kind == "chunk" ? .chunk(plain) : .manifest(digest, [entry, entry])
    var elder = SamplePack(PackPlace.header(writer: 1, created: 1))
    var younger = SamplePack(PackPlace.header(writer: 2, created: 2))
    elder.append(record)
    younger.append(record)
    try place.apply(younger, 0..<1)
    try place.condemn(younger)
    try place.apply(elder, 0..<1)
    try place.retract(younger)
    let found = try place.catalog.read { (transaction) throws(BlobStorageError) -> PackName? in
      var row = try transaction.chunkRow(digest)?.place
      if row == nil { row = try transaction.manifestRow(digest)?.place }
      guard let row else { return nil }
      return try transaction.packRow(row.pack)?.name
    }
    #expect(found == elder.header.name)
  }

  /// Two machines stored the same chunk, one of them with a base. A third has encoded another against the one without,
  /// before its pack was condemned; its pack comes last.
  @Test(
    "with a base does not take the place of one without, when others have published it",
    arguments: [true, false])
  func base(isTakenIn: Bool) throws {
    let place = try CatalogPlace()
    let (plain, base): ([UInt8], [UInt8]) = ([1, 2, 3], [4, 5, 6])
    var without = SamplePack(PackPlace.header(writer: 1))
    without.append(.chunk(plain))
    var with = SamplePack(PackPlace.header(writer: 2))
    with.append(.chunk(base))
    with.append(.chunk(plain, base: BlobDigest.of(base)))
    var dependent = SamplePack(PackPlace.header(writer: 3))
    dependent.append(.chunk([7, 8, 9], base: BlobDigest.of(plain)))
    try place.apply(without, 0..<1, isTakenIn: isTakenIn)
    try place.condemn(without)
    try place.apply(with, 0..<2, isTakenIn: isTakenIn)
    try place.apply(dependent, 0..<1, isTakenIn: isTakenIn)
    let found = try place.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.chunkRow(BlobDigest.of(plain))
    }
    // A machine stores it so itself only if no chunk of its one catalog can depend on the other copy.
    #expect((found?.base == nil) == isTakenIn)
  }
}
