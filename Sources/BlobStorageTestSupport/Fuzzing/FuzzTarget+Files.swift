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

  /// LMDB's file: what the inspection lets pass, LMDB must be able to read and to write to.
  static let catalog = FuzzTarget("catalog", seeds: seedsOfCatalog) { input in
    let folder = ScratchFolder()
    defer { folder.remove() }
    Fuzzing.attempt(also: [.io]) { () throws(BlobStorageError) in
      let files = SystemFiles()
      try files.createDirectory(folder.path.appending("g1"))
      try write(input, to: try files.open(folder.path.appending("g1/data.mdb"), .create))
      let state = try files.open(folder.path.appending("state"), .create)
      try write(Array("\(Catalog.layout) g1 clean\n".utf8), to: state)
      let catalog = try ScratchFolder.catalog(folder.path)
      defer { catalog.close() }
      var keys: [[UInt8]] = []
      try catalog.read { (transaction) throws(BlobStorageError) in
        _ = try transaction.packRows()
        try transaction.forEachKey(prefix: [], after: nil) { (key, name) throws(BlobStorageError) in
          keys.append(key)
          try transaction.forEachVersion(key: name.key, algorithm: .blake3) { _ in true }
          return keys.count < 1_000
        }
      }
      try ScratchFolder.fill(catalog)
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

  private static func seedsOfCatalog() -> [[UInt8]] {
    let folder = ScratchFolder()
    defer { folder.remove() }
    return Fuzzing.attempt { () throws(BlobStorageError) -> [[UInt8]] in
      let catalog = try ScratchFolder.catalog(folder.path)
      try ScratchFolder.fill(catalog)
      let generation = catalog.generation ?? ""
      catalog.close()
      let file = try SystemFiles().open(folder.path.appending(generation).appending("data.mdb"), .read)
      var bytes = [UInt8](repeating: 0, count: Int(try file.status().byteCount))
      let result: Result<Int, BlobStorageError> = bytes.withUnsafeMutableBytes { raw in
        do throws(BlobStorageError) { return .success(try file.read(into: raw, at: 0)) } catch {
          return .failure(error)
        }
      }
      _ = try result.get()
      return [bytes]
    } ?? []
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
      logger: logger, fill: { _, _ in }, catchUp: { _, _ in })
  }

  /// A few records of every kind.
  static func fill(_ catalog: Catalog) throws(BlobStorageError) {
    try catalog.write { (transaction) throws(BlobStorageError) in
      let number: UInt32
      if let known = try transaction.packNumber(FuzzedPack.name) {
        number = known
      } else {
        number = try transaction.addPack(PackRow(name: FuzzedPack.name, created: 1 << 40))
      }
      var row = PackRow(name: FuzzedPack.name, created: 1 << 40)
      var offset: Int64 = 64
      func apply(_ content: PackRecord.Content, _ metaByteCount: Int, _ payloadByteCount: Int)
        throws(BlobStorageError)
      {
        let record = PackRecord(
          content: content, offset: offset, metaByteCount: metaByteCount, payloadByteCount: payloadByteCount)
        try transaction.apply(record, from: number, &row, algorithm: .blake3)
        offset += Int64(record.byteCount)
      }
      for index in 0..<60 {
        let digest = Digest.of([UInt8(index)])
        let stamp = Stamp(time: UInt64(index + 1) << 20, writer: 7)
        let chunk = ChunkRecord(digest: digest, plainByteCount: 100, codecNumber: 0)
        try apply(.chunk(chunk), 40, 100)
        let key = [UInt8](repeating: UInt8(97 + index % 9), count: 1 + index * 20)
        let ref = RefRecord(
          key: key, version: stamp, replaced: .none, digest: digest, byteCount: 100, created: 1, metadata: [])
        try apply(.ref(ref), 88 + key.count, 0)
        if index % 7 == 0 {
          try apply(.drop(DropRecord(key: key, stamp: stamp, versions: [stamp])), 28 + key.count, 16)
        }
      }
      try transaction.setPackRow(number, row)
    }
  }
}
