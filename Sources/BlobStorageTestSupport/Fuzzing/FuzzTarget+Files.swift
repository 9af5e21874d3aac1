import BlobStorage
import Logging
import SystemPackage

extension FuzzTarget {
  /// A living writer's lease.
  static let lease = FuzzTarget("lease", seeds: seedsOfLease) { input in
    let disk = SimulatedDisk()
    let path: FilePath = "/leases/0000000000000001.lease"
    Fuzzing.attempt { () throws(BlobStorageError) in
      try disk.createDirectory("/leases")
      let owner = disk.process()
      let file = try owner.open(path, .create)
      _ = try file.lock(.exclusive, wait: true)
      try write(input, to: file)
      let leases = try Leases.read(folder: "/leases", files: disk.process(), algorithm: .blake3)
      Fuzzing.require(leases.held.count <= input.count / 40, "more is held than there are slots")
      file.close()
    }
  }

  /// The catalog's state, beside an empty database: whatever it says, the catalog can be read and written to.
  static let state = FuzzTarget(
    "state",
    seeds: {
      ["4 g1 boot/mount/other 12\n", "4 g1 boot/mount 12 0 1700000000 999999999 0 clean\n"].map {
        Array($0.utf8)
      }
    }
  ) { input in
    if let state = CatalogState(String(decoding: input, as: UTF8.self)) {
      Fuzzing.require(CatalogState(state.text)?.text == state.text, "a state reads as another")
    }
    let folder = ScratchFolder()
    defer { folder.remove() }
    Fuzzing.attempt { () throws(BlobStorageError) in
      let files = SystemFiles()
      try files.createDirectory(folder.path.appending("g1"))
      try files.open(folder.path.appending("g1/data.mdb"), .create).close()
      let state = try files.open(folder.path.appending("state"), .create)
      defer { state.close() }
      try write(input, to: state)
      let catalog = try ScratchFolder.catalog(folder.path)
      defer { catalog.close() }
      try catalog.write { (transaction) throws(BlobStorageError) in
        _ = try transaction.packRows()
        try transaction.bumpEpoch()
      }
    }
  }

  private static func write(_ bytes: [UInt8], to file: any File) throws(BlobStorageError) {
    let result: Result<Void, BlobStorageError> = bytes.withUnsafeBytes { raw in
      do throws(BlobStorageError) { return .success(try file.write(raw, at: 0)) } catch {
        return .failure(error)
      }
    }
    try result.get()
  }

  private static func seedsOfLease() -> [[UInt8]] {
    let disk = SimulatedDisk()
    var bytes: [UInt8] = []
    Fuzzing.attempt { () throws(BlobStorageError) in
      try disk.createDirectory("/leases")
      let lease = LeaseFile(folder: "/leases", writer: 1, files: disk)
      _ = try lease.hold([.chunk(Digest.of([1] as [UInt8])), .blob(Digest.of([2] as [UInt8]))])
      _ = try lease.beginPut(from: 3)
      let file = try disk.open("/leases/0000000000000001.lease", .read)
      bytes = [UInt8](repeating: 0, count: Int(try file.status().byteCount))
      let result: Result<Int, BlobStorageError> = bytes.withUnsafeMutableBytes { raw in
        do throws(BlobStorageError) { return .success(try file.read(into: raw, at: 0)) } catch {
          return .failure(error)
        }
      }
      _ = try result.get()
    }
    return [bytes]
  }
}

/// A real folder, in memory where the system offers that, because LMDB wants one.
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
        if try files.status(of: path.appending(name))?.kind == .directory {
          remove(path.appending(name))
        } else {
          try files.remove(path.appending(name))
        }
      }
      try files.removeDirectory(path)
    }
  }

  static func catalog(_ path: FilePath) throws(BlobStorageError) -> Catalog {
    var logger = Logger(label: "fuzz")
    logger.handler = SwiftLogNoOpLogHandler()
    let store = StoreHeader(
      flags: [], digestAlgorithm: .blake3, codecNumber: 1, level: 3, chunkByteCountAverage: 65_536,
      storeID: FuzzedPack.storeID, created: 1)
    return try Catalog(
      folder: path, files: SystemFiles(), store: store,
      identity: MediumIdentity(boot: "boot", mount: "mount"),
      mapByteCount: 4 << 20,
      logger: logger, fill: { _, _ in }, recoverDeadPacks: { _, _ in })
  }
}
