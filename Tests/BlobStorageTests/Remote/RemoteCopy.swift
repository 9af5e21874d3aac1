import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation

/// What a collector does with a pack, as far as others see it.
enum RemoteCopy {
  /// Copies all records of a pack into one of the engine's, and publishes it.
  static func records(of object: String, in place: RemotePlace, to engine: Engine) throws -> Int {
    guard let name = PackName(fileName: String(object.dropFirst(6))),
      let file = try engine.backend.openPack(name)
    else { return 0 }
    let session = engine.newSession()
    var count = 0
    _ = try PackScanner(file: file, name: name, codecs: engine.codecs).scan {
      (record) throws(BlobStorageError) in
      var payload = [UInt8](repeating: 0, count: record.payloadByteCount)
      let offset =
        record.offset + Int64(record.byteCount - record.payloadByteCount - (payload.isEmpty ? 0 : 4))
      let result: Result<Void, BlobStorageError> = payload.withUnsafeMutableBytes { buffer in
        do throws(BlobStorageError) {
          _ = try file.read(into: buffer, at: offset)
          _ = try session.append(record.content, payload: buffer.bytes)
          return .success(())
        } catch { return .failure(error) }
      }
      try result.get()
      count += 1
    }
    try session.close()
    return count
  }

  /// Condemns a pack, says that it is removed, and deletes it.
  static func remove(_ object: String, in place: RemotePlace) throws {
    guard let name = SharedNames.packName(object) else { return }
    let log = CollectionLog(place.objects, storeID: try place.storeID)
    if let condemned = try log.condemn([name], after: Collections(), by: 7) {
      _ = try log.remove([name], after: condemned, by: 7)
    }
    try place.objects.delete(object)
  }
}
