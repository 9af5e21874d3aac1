import BlobStorage
import Foundation
import Testing

@Suite("The pending records of a session")
struct PendingRecordsTests {
  private static func chunk(_ byte: UInt8) -> PackRecord.Content {
    let digest = BlobDigest.of(Data([byte]), by: .blake3)
    return .chunk(ChunkRecord(digest: digest, plainByteCount: 1, codecNumber: 0))
  }

  @Test("shows an attempt to commit what became visible since it began, and no later one")
  func attempts() {
    var records = PendingRecords()
    let first = records.beginAttempt()
    let second = records.beginAttempt()
    records.remove([Self.chunk(1)])
    let third = records.beginAttempt()
    for attempt in [first, second] {
      #expect(records.has(Self.chunk(1), in: attempt))
      #expect(!records.has(Self.chunk(2), in: attempt))
    }
    // Its view shows the chunk, unless gc has condemned the chunk's pack: then it must not count on it (H2).
    #expect(!records.has(Self.chunk(1), in: third))
    #expect(!records.has(Self.chunk(1), in: .max))
    records.endAttempt(first)
    #expect(records.has(Self.chunk(1), in: second))
    records.endAttempt(second)
    records.endAttempt(third)
    #expect(!records.has(Self.chunk(1), in: second))
  }

  @Test("shows an old attempt what became visible when newer ones had ended")
  func oldAttempt() {
    var records = PendingRecords()
    let old = records.beginAttempt()
    for number in 0..<3 {
      let new = records.beginAttempt()
      records.remove([Self.chunk(UInt8(number))])
      records.endAttempt(new)
    }
    for number in 0..<3 { #expect(records.has(Self.chunk(UInt8(number)), in: old)) }
  }

  /// Fails if a commit counts on a chunk whose base it has not looked up, or on a manifest whose commit has failed.
  @Test(
    "shows only the put that has a chunk's base that the chunk became visible, and no put a failed manifest")
  func basedChunk() {
    var records = PendingRecords()
    let (digest, base) = (BlobDigest.of(Data([1]), by: .blake3), BlobDigest.of(Data([2]), by: .blake3))
    let chunk = ChunkRecord(digest: digest, plainByteCount: 1, codecNumber: 0, base: base)
    let manifest = ManifestRecord(digest: digest, byteCount: 1, chunkCount: 1, depth: 0, listedCount: 1)
    let attempt = records.beginAttempt()
    records.remove([.chunk(chunk), .manifest(manifest)])
    #expect(!records.has(.chunk(chunk), in: attempt))
    #expect(!records.has(.manifest(manifest), in: attempt))
    #expect(records.hasOwnChunk(digest, in: attempt))
    let next = records.beginAttempt()
    #expect(!records.hasOwnChunk(digest, in: next))
  }

  @Test("forgets at the end of all attempts what it has shown them")
  func noAttempts() {
    var records = PendingRecords()
    records.remove([Self.chunk(1)])
    let first = records.beginAttempt()
    #expect(!records.has(Self.chunk(1), in: first))
  }
}
