import Foundation

/// A folder of its own that is gone when this object is.
final class Folder: Sendable {
  let url: URL

  init() throws {
    url = FileManager.default.temporaryDirectory.appendingPathComponent("drop-in-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
  }

  deinit { try? FileManager.default.removeItem(at: url) }

  /// The environment of a user whose home it is.
  var environment: [String: String] { ["HOME": url.path] }

  /// Another path to the same folder: its users share nothing in memory with the others.
  func detour(_ path: String = "") throws -> URL {
    let link = url.appendingPathComponent("detour-\(UUID().uuidString)")
    try FileManager.default.createSymbolicLink(at: link, withDestinationURL: url)
    return path.isEmpty ? link : link.appendingPathComponent(path)
  }

  /// Writes a file, with the folders it is in, last changed so many minutes after a fixed time.
  func write(_ text: String, to path: String, minute: Int = 0) throws {
    let file = url.appendingPathComponent(path)
    try FileManager.default.createDirectory(
      at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
    try Data(text.utf8).write(to: file)
    let modified = Date(timeIntervalSince1970: 1_600_000_000 + Double(minute) * 60)
    try FileManager.default.setAttributes([.modificationDate: modified], ofItemAtPath: file.path)
  }

  func text(_ path: String) throws -> String {
    String(decoding: try Data(contentsOf: url.appendingPathComponent(path)), as: UTF8.self)
  }

  /// All files below a folder by their relative paths, without those of stores.
  func files(_ path: String) throws -> [String] {
    let names = try FileManager.default.subpathsOfDirectory(atPath: url.appendingPathComponent(path).path)
    return names.filter { name in
      guard !name.contains(".blobstore") || name.hasSuffix(".dat") else { return false }
      var isDirectory: ObjCBool = false
      let file = url.appendingPathComponent(path).appendingPathComponent(name).path
      return FileManager.default.fileExists(atPath: file, isDirectory: &isDirectory) && !isDirectory.boolValue
    }.sorted()
  }

  /// Flips a bit of the last byte of the first `bytes` in each pack below the folder. Returns the number of packs that
  /// had them.
  func damage(_ bytes: Data) throws -> Int {
    var count = 0
    for name in try FileManager.default.subpathsOfDirectory(atPath: url.path) where name.contains("packs/") {
      let file = url.appendingPathComponent(name)
      guard var content = try? Data(contentsOf: file), let found = content.range(of: bytes) else { continue }
      content[found.upperBound - 1] ^= 1
      // In place: a process that has the pack open must see it.
      let handle = try FileHandle(forUpdating: file)
      try handle.seek(toOffset: UInt64(found.upperBound - 1))
      try handle.write(contentsOf: content[found.upperBound - 1..<found.upperBound])
      try handle.close()
      count += 1
    }
    return count
  }
}
