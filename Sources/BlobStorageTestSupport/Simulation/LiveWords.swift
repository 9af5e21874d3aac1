import BlobStorage
import SystemPackage

/// Changes words of a table of open packs while processes have it mapped, without their knowledge.
package struct LiveWords {
  package let path: FilePath

  package init(at path: FilePath) { self.path = path }

  /// - Parameter folder: the folder of the catalog.
  package init(in folder: FilePath) { path = folder.entry("live") }

  package func set(_ word: Int, _ value: UInt64) throws {
    let file = try SystemFiles().open(path, .readWrite)
    defer { file.close() }
    try file.put(withUnsafeBytes(of: value) { Array($0) }, at: Int64(word) * 8)
  }

  package func set(_ slot: Int, _ word: LiveTable.SlotWord, _ value: UInt64) throws {
    try set(LiveTable.headerWordCount + slot * LiveTable.slotWordCount + word.rawValue, value)
  }

  package func set(_ word: LiveTable.Word, _ value: UInt64) throws {
    try set(word.rawValue, value)
  }

  package func word(_ word: Int) throws -> UInt64 {
    let file = try SystemFiles().open(path, .read)
    defer { file.close() }
    var bytes = [UInt8](repeating: 0, count: 8)
    _ = try bytes.withUnsafeMutableBytes {
      try file.read(into: $0, at: Int64(word) * 8)
    }
    return bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
  }

  /// Makes a copy of a table pass for the original.
  package func adopt() throws {
    guard let status = try SystemFiles().status(of: path),
      let folder = try SystemFiles().status(of: path.folder)
    else { return }
    try set(.inode, status.inode)
    try set(.folder, folder.inode)
  }
}
