import BlobStorage
import Testing

struct CodecChoiceTests {
  @Test func theNumbersOnDiskNeverChange() {
    #expect(CodecKind.allCases.map(\.rawValue) == [0, 1, 2])
    #expect(CodecKind.allCases.map(\.name) == ["none", "zstd", "zlib"])
    for kind in CodecKind.allCases { #expect(CodecKind(name: kind.name) == kind) }
    #expect(CodecKind(name: "lz4") == nil)
    #expect(CodecKind(rawValue: 3) == nil)
  }

  @Test(arguments: [(CodecKind.none, [0, 0, 0]), (.zstd, [1, 4, 19]), (.zlib, [1, 6, 9])])
  func aWordStandsForALevelOfEachCodec(kind: CodecKind, levels: [Int]) throws {
    #expect(try [.fast, .default, .max].map { try CodecChoice(kind, level: $0).level } == levels)
    #expect(try CodecChoice(kind).level == levels[1])
  }

  @Test(arguments: [
    (CodecKind.none, 0, true), (.none, 1, false),
    (.zstd, 0, false), (.zstd, 1, true), (.zstd, 19, true), (.zstd, 20, false), (.zstd, -1, false),
    (.zlib, 0, false), (.zlib, 1, true), (.zlib, 9, true), (.zlib, 10, false),
  ])
  func aLevelIsTakenExactlyInItsRange(kind: CodecKind, level: Int, isTaken: Bool) throws {
    if isTaken {
      #expect(try CodecChoice(kind, level: .number(level)).level == level)
    } else {
      let error = try #require(throws: BlobStorageError.self) { try CodecChoice(kind, level: .number(level)) }
      #expect(error.code == .invalidArgument)
      for word in ["\(level)", kind.name, "fast", "default", "max", "\(kind.levels.upperBound)"] {
        #expect(error.message.contains(word), "\(word)")
      }
    }
  }
}
