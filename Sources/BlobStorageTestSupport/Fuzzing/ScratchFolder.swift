import BlobStorage
import Foundation
import Logging
import SystemPackage

/// A real folder, in memory where the system offers that, because LMDB needs one.
struct ScratchFolder {
  let path: FilePath

  init() {
    path = FilePath(FileManager.default.fileExists(atPath: "/dev/shm") ? "/dev/shm" : "/tmp")
      .appending("blobstorage-fuzz-\(String(UInt64.random(in: 0 ... .max), radix: 16))")
    Fuzzing.attempt(also: [.io]) { () throws(BlobStorageError) in try SystemFiles().createDirectory(path) }
  }

  func remove() { try? FileManager.default.removeItem(atPath: path.string) }

  static func catalog(_ path: FilePath) throws(BlobStorageError) -> Catalog {
    var logger = Logger(label: "fuzz")
    logger.handler = SwiftLogNoOpLogHandler()
    let store = StoreHeader(
      flags: [], digestAlgorithm: .blake3, codecNumber: 1, level: 3, averageChunkByteCount: 65_536,
      storeID: FuzzedPack.storeID, created: 1)
    let folder = StoreFolder(path, files: SystemFiles())
    let backend = FolderBackend(
      folder: folder.packs, asideFolder: folder.aside, files: folder.files, census: folder.census)
    return try Catalog(
      folder: path, files: folder.files, store: store,
      identity: MediumIdentity(boot: "boot", mount: "mount"),
      mapByteCount: 4 << 20,
      logger: logger, live: LiveHolder(),
      tails: Tails(backend: backend, codecs: CodecPool(), store: store, time: .system), hasAllPacks: true,
      fill: { _, _ in }, recoverDeadPacks: { _, _ in })
  }
}
