import Foundation
import SystemPackage

/// The file `holds` of a store's folder: the blobs that gc keeps even without a version. Format.md, "The file holds".
struct HoldFile {
  private static let byteCountMax: Int64 = 16 << 20

  private let folder: StoreFolder

  init(_ folder: StoreFolder) { self.folder = folder }

  /// Reads all holds, sorted by name.
  ///
  /// - Throws: `corrupted` for a damaged file: the held blobs are then unknown.
  func read() throws(BlobStorageError) -> [BlobHold] {
    guard let status = try folder.files.status(of: folder.holds) else { return [] }
    guard status.kind == .regular else { throw unreadable }
    let file = try folder.files.open(folder.holds, .read)
    defer { file.close() }
    let byteCount = try file.status().byteCount
    guard byteCount <= Self.byteCountMax,
      let holds = Self.holds(try file.bytes(at: 0, Int(byteCount), pack: nil))
    else { throw unreadable }
    return holds
  }

  private var unreadable: BlobStorageError {
    BlobStorageError(
      .corrupted,
      "\(folder.holds) is damaged, so it is not known which blobs are held: restore it from a backup, or remove it to"
        + " give up the holds.", path: folder.holds.string)
  }

  /// Changes the holds, durably. Only one process at a time changes them.
  func change<T>(_ body: (inout [BlobHold]) throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    let lock = try folder.files.open(folder.holdsLock, .openOrCreate)
    defer { lock.close() }
    guard try lock.lock(.exclusive, withinSeconds: 10) else {
      throw BlobStorageError(
        .busy, "Another process is changing the holds of \(folder.path): try again later.")
    }
    var holds = try read()
    let before = holds
    let result = try body(&holds)
    guard holds != before else { return result }
    let bytes = Self.bytes(of: holds.sorted { $0.name < $1.name })
    guard bytes.count <= Self.byteCountMax else {
      throw BlobStorageError(.limitExceeded, "A store has no room for more holds: release some.")
    }
    try folder.files.replace(folder.holds, with: bytes).close()
    return result
  }

  static func bytes(of holds: [BlobHold]) -> [UInt8] {
    CheckedLines.bytes(
      holds.map { hold in
        let created = Int64((hold.created.timeIntervalSince1970 * 1_000).rounded())
        return "\(Hex.text(Array(hold.name.utf8))) \(hold.digest) \(hold.byteCount) \(created)"
      })
  }

  static func holds(_ bytes: [UInt8]) -> [BlobHold]? {
    guard let lines = CheckedLines.words(bytes) else { return nil }
    var holds: [BlobHold] = []
    for words in lines {
      guard words.count == 4, let name = Hex.bytes(words[0]), let digest = BlobDigest(String(words[1])),
        let byteCount = Int64(words[2]), let created = Int64(words[3]), abs(Double(created)) < 1e17
      else { return nil }
      holds.append(
        BlobHold(
          name: String(decoding: name, as: UTF8.self), digest: digest, byteCount: byteCount,
          created: Date(timeIntervalSince1970: Double(created) / 1_000)))
    }
    return holds
  }
}
