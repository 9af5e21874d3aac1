import BlobStorage
import Testing

@Suite("The mark of an imported file")
struct FileMarkTests {
  private static let time = FileTime(seconds: 1_700_000_000, nanoseconds: 500_000_000)
  private static let later = FileTime(seconds: 1_800_000_000, nanoseconds: 0)

  private static func status(
    byteCount: Int64 = 5, inode: UInt64 = 7, modified: FileTime = time, changed: FileTime = time
  ) -> FileStatus {
    FileStatus(
      kind: .regular, byteCount: byteCount, allocatedByteCount: 0, linkCount: 1, inode: inode, device: 1,
      modified: modified, changed: changed, permissions: 0)
  }

  @Test("matches the same file, and no other length, inode or time, also after its metadata was read back")
  func matches() throws {
    let mark = FileMark(Self.status(), readFrom: Self.later)
    let read = try #require(FileMark(metadata: mark.metadata))
    #expect(read == mark)
    #expect(mark.metadata.count == 44)
    for mark in [mark, read] {
      #expect(mark.matches(Self.status()))
      #expect(!mark.matches(Self.status(byteCount: 6)))
      #expect(!mark.matches(Self.status(inode: 8)))
      #expect(!mark.matches(Self.status(modified: Self.later)))
      #expect(!mark.matches(Self.status(changed: Self.later)))
    }
  }

  /// Milliseconds from a time of the file to the beginning of its reading, and whether it is known again.
  @Test(
    "does not match a file that changed in the moment when it was read",
    arguments: [(-1_000, false), (0, false), (10, false), (20, false), (21, true), (5_000, true)])
  func racy(_ milliseconds: Int, _ isKnown: Bool) {
    let start = FileTime(
      millisecondsSince1970: UInt64(Int(Self.time.seconds) * 1_000 + 500 + milliseconds))
    let old = FileTime(seconds: 1, nanoseconds: 1)
    for status in [
      Self.status(), Self.status(modified: old), Self.status(changed: old),
    ] {
      let mark = FileMark(status, readFrom: start)
      #expect(mark.matches(status) == isKnown)
      #expect(FileMark(metadata: mark.metadata)?.matches(status) == isKnown)
    }
  }

  @Test(
    "allows for whole seconds where a file system keeps no parts of them", arguments: [500, 2_000, 2_001])
  func coarse(_ milliseconds: UInt64) {
    let time = FileTime(seconds: 1_700_000_000, nanoseconds: 0)
    let status = Self.status(modified: time, changed: time)
    let start = FileTime(millisecondsSince1970: 1_700_000_000_000 + milliseconds)
    #expect(FileMark(status, readFrom: start).matches(status) == (milliseconds > 2_000))
  }

  @Test("of the first layout still tells the time, and matches nothing")
  func firstLayout() throws {
    let mark = FileMark(Self.status(), readFrom: Self.later)
    let first = Array("FIL1".utf8) + mark.metadata[4..<32]
    let read = try #require(FileMark(metadata: first))
    #expect(!read.matches(Self.status()))
    #expect(read.changed == nil)
    // What an export restores.
    #expect(FileMark(metadata: read.metadata) == read)
    for wrong in [first.dropLast(), first + [0], mark.metadata.dropLast(), mark.metadata + [0]] {
      #expect(FileMark(metadata: Array(wrong)) == nil)
    }
  }
}
