import BlobStorage
import BlobStorageTransfer
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
    // The tag, length and inode, a time of 5 + 4 bytes, and one of 1 + 4 bytes.
    #expect(mark.metadata.count == 4 + 2 + 9 + 5)
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
    // A program can set the time of modification, so that says nothing.
    for (status, isKnown) in [
      (Self.status(), isKnown), (Self.status(modified: old), isKnown),
      (Self.status(modified: Self.later), isKnown), (Self.status(changed: old), true),
      (Self.status(modified: Self.later, changed: old), true),
    ] {
      let mark = FileMark(status, readFrom: start)
      #expect(mark.matches(status) == isKnown)
      #expect(FileMark(metadata: mark.metadata)?.matches(status) == isKnown)
    }
  }

  @Test("matches no file that changed while it was read, nor one whose change time shows nothing")
  func uncertain() throws {
    var mark = FileMark(Self.status(), readFrom: Self.later)
    mark.isUncertain = true
    #expect(!mark.matches(Self.status()))
    let read = try #require(FileMark(metadata: mark.metadata))
    #expect(read == mark && read.isUncertain)
    #expect(mark.metadata.starts(with: Array("FIU3".utf8)))
    let other = FileMark(Self.status(), readFrom: Self.later, showsChanges: false)
    #expect(!other.matches(Self.status()) && !other.isUncertain)
    #expect(FileMark(metadata: other.metadata) == other)
    // An uncertain mark with a change time is none.
    var forged = FileMark(Self.status(), readFrom: Self.later).metadata
    forged[2] = UInt8(ascii: "U")
    #expect(FileMark(metadata: forged) == nil)
  }

  @Test(
    "allows for whole seconds where a file system keeps no parts of them", arguments: [500, 2_000, 2_001])
  func coarse(_ milliseconds: UInt64) {
    let time = FileTime(seconds: 1_700_000_000, nanoseconds: 0)
    let status = Self.status(modified: time, changed: time)
    let start = FileTime(millisecondsSince1970: 1_700_000_000_000 + milliseconds)
    #expect(FileMark(status, readFrom: start).matches(status) == (milliseconds > 2_000))
  }

  @Test("holds any times, and is refused when it is cut short, is longer, or has too many nanoseconds")
  func layout() throws {
    for (modified, changed) in [
      (Int64.min, 1 << 62), (1 << 62, Int64.min), (-1, 0), (0, -1), (1 << 40, 1 << 40),
    ] {
      let status = Self.status(
        byteCount: .max, inode: .max, modified: FileTime(seconds: modified, nanoseconds: 0),
        changed: FileTime(seconds: changed, nanoseconds: 999_999_999))
      let mark = FileMark(status, readFrom: FileTime(seconds: .max, nanoseconds: 999_999_999))
      #expect(FileMark(metadata: mark.metadata) == mark)
    }
    let metadata = FileMark(Self.status(), readFrom: Self.later).metadata
    var wrongTag = metadata
    wrongTag[3] = UInt8(ascii: "2")
    var tooMany = metadata
    tooMany.replaceSubrange(metadata.count - 4..<metadata.count, with: [0, 0xca, 0x9a, 0x3b])
    for wrong in [metadata.dropLast(), metadata + [0], wrongTag, tooMany] {
      #expect(FileMark(metadata: Array(wrong)) == nil)
    }
  }
}
