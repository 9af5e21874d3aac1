import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

/// A blob that is stored as one chunk and as several: an earlier build cut elsewhere, or a list of a manifest has its
/// bytes.
@Suite("A blob that is stored in two ways")
struct TwiceStoredTests {
  @Test("is healed by the one when the other is damaged, and both stay", arguments: [false, true])
  func healed(rebuilds: Bool) throws {
    let lab = try Lab()
    let data = noise(1, 9_000)
    let digest = BlobDigest.of(data)
    try lab.session { engine in
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        try commit.append(
          .chunk(ChunkRecord(digest: digest, plainByteCount: data.count, codecNumber: 0)), payload: data.bytes
        )
      }
      let put = try engine.put("k", .data(data), PutOptions())
      #expect(put.version.digest == digest)
    }
    let path = try #require(try DamageTests.paths(lab).first)
    try DamageTests.change(lab, path) { $0[64 + 300] ^= 1 }
    if rebuilds { try lab.forgetCatalog() }
    try lab.session { engine in
      for _ in 0..<2 {
        let read = try engine.data("k", nil)
        #expect(read == data)
        _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      }
      let blob = try #require(try engine.openBlob("k", nil))
      #expect(Data(try blob.read(0..<9_000)) == data)
      blob.close()
    }
  }

  /// Fails if a put shares the manifest of a commit that has failed: nothing protects the chunks that it names.
  @Test("has its own chunks after a commit has failed that had named others")
  func failedManifest() throws {
    let lab = try Lab()
    let data = noise(3, 9_000)
    let halves = [Data(data.prefix(4_500)), Data(data.suffix(4_500))]
    let layout = try BlobLayout(
      digest: BlobDigest.of(data),
      chunks: halves.map { ChunkEntry(digest: BlobDigest.of($0), plainByteCount: $0.count) })
    try lab.session { engine in
      let error = #expect(throws: BlobStorageError.self) {
        _ = try engine.writer.commit { (commit) throws(BlobStorageError) -> Void in
          _ = try commit.appendManifest(of: layout) { _ in false }
          throw BlobStorageError(.conditionFailed, "The commit fails.")
        }
      }
      #expect(error?.code == .conditionFailed)
      _ = try engine.put("k", .data(data), PutOptions())
      let read = try engine.data("k", nil)
      #expect(read == data)
    }
  }
}
