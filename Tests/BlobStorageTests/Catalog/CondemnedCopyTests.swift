import BlobStorage
import Testing

@Suite("A copy of what lies in a pack that is about to go")
struct CondemnedCopyTests {
  @Test("counts from then on, though its pack is older", arguments: ["chunk", "manifest"])
  func older(kind: String) throws {
    let place = try CatalogPlace()
    let plain: [UInt8] = [1, 2, 3]
    let digest = Digest.of(plain)
    let entry = ChunkEntry(digest: Digest.of([9]), plainByteCount: 1)
    let record: SampleRecord = kind == "chunk" ? .chunk(plain) : .manifest(digest, [entry, entry])
    var elder = SamplePack(PackPlace.header(writer: 1, created: 1))
    var younger = SamplePack(PackPlace.header(writer: 2, created: 2))
    elder.append(record)
    younger.append(record)
    try place.apply(younger, 0..<1)
    try place.catalog.write { (transaction) throws(BlobStorageError) in
      guard let number = try transaction.packNumber(younger.header.name),
        var row = try transaction.packRow(number)
      else { return }
      row.state = .condemned
      try transaction.setPackRow(number, row)
    }
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
}
