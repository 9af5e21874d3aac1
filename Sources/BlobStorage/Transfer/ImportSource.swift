import Foundation
import SystemPackage

/// A file that is to be imported.
struct ImportSource: Sendable {
  var path: FilePath
  var key: String
  var status: FileStatus

  /// Whether it begins like an image, an archive or a film.
  var isCompressed: Bool {
    do throws(BlobStorageError) {
      let file = try InputFile(path)
      var beginning = Data(count: 16)
      let count = try beginning.withBytes { (target) throws(BlobStorageError) in
        try file.read(into: target)
      }
      return beginning.prefix(count).withUnsafeBytes { CompressibilityHint(beginning: $0) }
        == .alreadyCompressed
    } catch {
      // What is wrong with it is found and reported when it is read whole.
      return false
    }
  }

  /// Whether the key's current version is this file as it is now, as far as can be told without reading it.
  func isUnchanged(_ engine: Engine) throws(BlobStorageError) -> Bool {
    guard let current = try engine.version(key, nil), let mark = FileMark(metadata: current.metadata) else {
      return false
    }
    guard mark == FileMark(status), current.byteCount == status.byteCount else { return false }
    return try engine.isPublished(current)
  }
}

extension Data {
  /// `withUnsafeMutableBytes` that keeps the error's type.
  mutating func withBytes(
    _ body: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> Int
  ) throws(BlobStorageError) -> Int {
    let result: Result<Int, BlobStorageError> = withUnsafeMutableBytes { raw in
      do throws(BlobStorageError) { return .success(try body(raw)) } catch { return .failure(error) }
    }
    return try result.get()
  }
}
