import BlobStorage
import Foundation
import SystemPackage

/// A folder of the real file system that is gone when this object is.
final class TemporaryFolder: Sendable {
  let path: FilePath

  init() throws {
    let name = "blobstorage-\(String(randomUInt64(), radix: 16))"
    path = FilePath(FileManager.default.temporaryDirectory.path).appending(name)
    try SystemFiles().createDirectory(path)
  }

  deinit { try? FileManager.default.removeItem(atPath: path.string) }
}

extension File {
  func write(_ bytes: [UInt8], at offset: Int64) throws(BlobStorageError) {
    try bridge(bytes) { (buffer) throws(BlobStorageError) in try write(buffer, at: offset) }
  }

  func read(byteCount: Int, at offset: Int64) throws(BlobStorageError) -> [UInt8] {
    var bytes = [UInt8](repeating: 0xEE, count: byteCount)
    let outcome = bytes.withUnsafeMutableBytes { buffer in
      Result { () throws(BlobStorageError) in try read(into: buffer, at: offset) }
    }
    return Array(bytes.prefix(try outcome.get()))
  }
}

extension FileSystem {
  func write(_ bytes: [UInt8], to path: FilePath) throws(BlobStorageError) {
    let file = try open(path, .openOrCreate)
    defer { file.close() }
    try file.truncate(to: 0)
    try file.write(bytes, at: 0)
  }

  func bytes(of path: FilePath) throws(BlobStorageError) -> [UInt8] {
    let file = try open(path, .read)
    defer { file.close() }
    return try file.read(byteCount: Int(file.status().byteCount), at: 0)
  }
}
