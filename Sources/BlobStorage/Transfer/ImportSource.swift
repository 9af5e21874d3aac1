import Foundation
import SystemPackage

/// A file that is to be imported.
struct ImportSource: Sendable {
  /// The folder that was named; nil for a file that was.
  var folder: InputFolder?
  /// From that folder on.
  var relativePath: FilePath
  var key: String
  var status: FileStatus

  /// The path that messages name.
  var path: FilePath {
    folder.map { $0.name.appending(relativePath.components) } ?? relativePath
  }

  /// Opens the file; one below a folder is reached through nothing but folders.
  func open() throws(BlobStorageError) -> InputFile {
    if let folder { return try folder.open(relativePath) }
    return try InputFile(relativePath)
  }

  /// Whether it begins like an image, an archive or a film.
  var isCompressed: Bool {
    do throws(BlobStorageError) {
      let file = try open()
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

  /// Whether the key's current version is this file as it is now, as far as can be told without reading either.
  func isUnchanged(_ engine: Engine, _ presence: BlobPresence) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      guard let current = try engine.versionToCountOn(key), current.byteCount == status.byteCount,
        let mark = FileMark(metadata: current.metadata), mark.matches(status)
      else { return false }
      return try presence.isPresent(current.digest)
    } catch {
      // What cannot be read is stored again.
      guard error.code == .corrupted else { throw error }
      return false
    }
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
