import BlobStorage
import Logging
import SystemPackage

/// A real folder, in memory where the system offers that, because LMDB needs one.
struct ScratchFolder {
  let path: FilePath

  init() {
    let files = SystemFiles()
    let hasMemory = Fuzzing.attempt(also: [.io]) { () throws(BlobStorageError) in
      try files.status(of: "/dev/shm") != nil
    }
    path = FilePath(hasMemory == true ? "/dev/shm" : "/tmp")
      .appending("blobstorage-fuzz-\(String(UInt64.random(in: 0 ... .max), radix: 16))")
    Fuzzing.attempt(also: [.io]) { () throws(BlobStorageError) in try files.createDirectory(path) }
  }

  func remove() { Self.remove(path) }

  private static func remove(_ path: FilePath) {
    let files = SystemFiles()
    Fuzzing.attempt(also: [.io]) { () throws(BlobStorageError) in
      for name in try files.list(path) {
        if try files.status(of: path.entry(name))?.kind == .directory {
          remove(path.entry(name))
        } else {
          try files.remove(path.entry(name))
        }
      }
      try files.removeDirectory(path)
    }
  }

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
