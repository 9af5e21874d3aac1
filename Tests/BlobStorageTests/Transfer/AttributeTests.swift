import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import SystemPackage
import Testing

@Suite("Names and attributes of imported files")
struct AttributeTests {
  @Test("names of any bytes get keys of their own, and come back")
  func names() throws {
    var random = SplitMix64(seed: 1)
    var keys: [String: [UInt8]] = [:]
    let parts: [[UInt8]] = [
      Array("a".utf8), Array("é".utf8), Array("\u{FFFD}".utf8), Array("😀".utf8), [0xff], [0xef],
      [0xbf, 0xbd],
      Array("\u{FFFD}41".utf8), [0xed, 0xa0, 0x80], Array("/".utf8), [0xc3], [0xf0, 0x9f, 0x98],
    ]
    for _ in 0..<20_000 {
      let name = (0...random.below(4)).flatMap { _ in parts[random.below(parts.count)] }
      let (key, isEscaped) = EscapedName.key(of: name)
      #expect(keys[key] == nil || keys[key] == name)
      keys[key] = name
      if isEscaped {
        #expect(EscapedName.path(ofKey: Array(key.utf8)) == name)
      } else {
        #expect(Array(key.utf8) == name)
      }
    }
    #expect(keys.count > 2_000)
    #expect(EscapedName.key(of: Array("caf".utf8) + [0xe9]).text == "caf\u{FFFD}E9")
    for wrong in ["\u{FFFD}", "\u{FFFD}4", "\u{FFFD}zz", "\u{FFFD}00", "\u{FFFD}2F"] {
      #expect(EscapedName.path(ofKey: Array(wrong.utf8)) == nil)
    }
  }

  @Test("metadata with attributes are read back, and bytes that are none are no mark")
  func metadata() throws {
    var random = SplitMix64(seed: 2)
    let status = FileStatus(
      kind: .regular, byteCount: 5, allocatedByteCount: 0, linkCount: 2, inode: 7, device: 3,
      modified: FileTime(seconds: -1, nanoseconds: 999_999_999), permissions: 0o4755, user: .max, group: 0)
    var mark = FileMark(status, readFrom: FileTime(seconds: 9, nanoseconds: 0))
    #expect(FileMark(metadata: mark.metadata)?.attributes == nil)
    var attributes = FileAttributes(kind: .file, permissions: 0o4755)
    attributes.owner = FileAttributes.Owner(user: .max, group: 0, userName: "", groupName: "root")
    attributes.extended = [
      FileAttributes.Extended(name: Array("user.a".utf8), value: []),
      FileAttributes.Extended(name: Array("user.b".utf8), value: Array(random.noise(300))),
    ]
    mark.attributes = attributes
    let bytes = mark.metadata
    #expect(FileMark(metadata: bytes) == mark)
    for count in 0..<bytes.count where count != 21 {
      #expect(FileMark(metadata: Array(bytes[..<count])) != mark)
    }
    for _ in 0..<20_000 {
      var changed = bytes
      for _ in 0...random.below(3) {
        changed[random.below(changed.count)] = UInt8(truncatingIfNeeded: random.next())
      }
      // Whatever it is, it is encoded as it was read.
      if let read = FileMark(metadata: changed) { #expect(FileMark(metadata: read.metadata) == read) }
    }
  }
}
