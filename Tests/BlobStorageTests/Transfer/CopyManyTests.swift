import BlobStorage
import BlobStorageTransfer
import Foundation
import Testing

/// More than is looked at, sent or committed at once.
@Suite("A copy of much")
struct CopyManyTests {
  private func items(_ prefix: String, _ count: Int, _ value: String) -> [PutItem] {
    (0..<count).map { PutItem(key: "\(prefix)\(10_000 + $0)", data: Data("\(value)\($0 % 7)".utf8)) }
  }

  @Test("brings every key once, and a mirror drops every other")
  func manyKeys() throws {
    let (sourcePlace, targetPlace) = (try CopyPlace(isRemote: false), try CopyPlace(isRemote: false))
    let (source, target) = (try sourcePlace.engine(), try targetPlace.engine())
    _ = try source.put(items("k", 1_100, "source"), .relaxed)
    _ = try target.put(items("own", 1_100, "target"), .relaxed)
    let first = try runCopy(source, to: target)
    #expect(first.keyCount == 1_100 && first.versionCount == 1_100 && first.newVersionCount == 1_100)
    #expect(first.byteCount == 7 * 1_100)
    #expect(first.chunkCount == 7 && first.newByteCount == 7 * 7)
    #expect(first.unchangedVersionCount == 0 && first.droppedVersionCount == 0)
    let options = CopyOptions(isMirror: true, isForced: true, isDryRun: true)
    let planned = try Copier(from: source, to: target, options).run()
    #expect(planned.droppedKeyCount == 1_100 && planned.droppedVersionCount == 1_100)
    #expect(planned.droppedKeys == items("own", 100, "").map(\.key))
    #expect(try target.keys("", after: nil, limit: .max).count == 2_200)
    let mirrored = try runCopy(source, to: target, isMirror: true)
    #expect(mirrored.droppedKeyCount == 1_100 && mirrored.droppedVersionCount == 1_100)
    #expect(mirrored.unchangedVersionCount == 1_100 && mirrored.newVersionCount == 0)
    #expect(try target.keys("", after: nil, limit: .max).map(\.key) == items("k", 1_100, "").map(\.key))
  }

  @Test("brings a key with more versions than one commit takes, and drops them again")
  func manyVersions() throws {
    let (sourcePlace, targetPlace) = (try CopyPlace(isRemote: false), try CopyPlace(isRemote: false))
    let (source, target) = (try sourcePlace.engine(), try targetPlace.engine())
    let archiving = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    _ = try source.put(
      (0..<4_200).map { PutItem(key: "k", data: Data("\($0 % 50)".utf8)) }, archiving)
    _ = try source.put("other", Array("x".utf8))
    #expect(try runCopy(source, to: target).newVersionCount == 4_201)
    #expect(try target.versions("k") == source.versions("k"))
    #expect(try target.versions("k").count == 4_200)
    let again = try runCopy(source, to: target)
    #expect(again.newVersionCount == 0 && again.unchangedVersionCount == 4_201)
    _ = try source.keep(upTo: 0, keys: ["k"], .relaxed)
    #expect(try runCopy(source, to: target).droppedVersionCount == 4_199)
    #expect(try contents(of: target) == contents(of: source))
  }
}
