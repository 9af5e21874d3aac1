import BlobStorage
import Testing

@Suite("Chunk sizes")
struct ChunkSizesTests {
  @Test("go from a quarter to four times the average", arguments: [1 << 10, 64 << 10, 2 << 20])
  func accepted(average: Int) throws {
    let sizes = try ChunkSizes(average: average)
    #expect(sizes.minimum == average / 4)
    #expect(sizes.average == average)
    #expect(sizes.maximum == average * 4)
    #expect(sizes.maximum <= BlobLimits.chunkByteCountMax)
  }

  @Test(
    "are refused outside the range, or between powers of two",
    arguments: [-1024, 0, 512, 1_025, 65_535, 4 << 20])
  func refused(average: Int) {
    let error = #expect(throws: BlobStorageError.self) { try ChunkSizes(average: average) }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains("from 1024 to 2097152 bytes") == true)
  }

  @Test("are 16, 64 and 256 KiB by default")
  func standard() throws {
    #expect(ChunkSizes.standard == (try ChunkSizes(average: 64 << 10)))
  }
}
