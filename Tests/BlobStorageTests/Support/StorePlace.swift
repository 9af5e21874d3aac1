import BlobStorage
import Foundation
import SystemPackage
import Testing

/// A store in a folder of its own.
struct StorePlace {
  let temporary: TemporaryFolder
  var path: String { temporary.path.appending("store").string }

  init(_ options: StoreOptions = StoreOptions()) throws {
    temporary = try TemporaryFolder()
    try Engine.create(at: temporary.path.appending("store").string, options: options)
  }

  func engine(_ environment: Engine.Environment = Engine.Environment()) throws -> Engine {
    try Engine(path: path, configuration: StoreConfiguration(threadCount: 2), environment: environment)
  }

  func opened() async throws -> BlobStore {
    try await BlobStore.open(at: path, configuration: StoreConfiguration(threadCount: 2))
  }

  var catalogFolder: URL { URL(filePath: path).appending(path: "catalog") }

  func removeCatalog() throws { try FileManager.default.removeItem(at: catalogFolder) }

  /// The database's file of the generation in use.
  func databaseFile() throws -> URL {
    let state = try String(contentsOf: catalogFolder.appending(path: "state"), encoding: .utf8)
    let generation = try #require(state.split(separator: " ").dropFirst().first)
    return catalogFolder.appending(path: "\(generation)/data.mdb")
  }
}

/// Everything that a store says of its keys, in a form that can be compared.
func contents(of engine: Engine) throws -> [String] {
  try engine.keys("", after: nil, limit: .max).flatMap { entry in
    try engine.versions(entry.key).map { version in
      let data = try engine.data(entry.key, version.id)
      return "\(entry.key) x\(entry.versionCount) \(version.id) \(version.digest) \(version.byteCount) "
        + "\(version.created.timeIntervalSince1970) \(version.metadata) \(data.map { BlobDigest.of($0, by: version.digest.algorithm) == version.digest } ?? false)"
    }
  }
}

extension Engine {
  func put(_ key: String, _ bytes: [UInt8], _ options: PutOptions = .relaxed) throws -> PutResult {
    try put(key, .data(Data(bytes)), options)
  }
}

/// Gives a key a version whose manifest names the chunks of another blob, as no writer does: each chunk is right by
/// itself.
func plantManifest(_ key: String, _ digest: BlobDigest, naming other: BlobDigest, in engine: Engine) throws {
  let layout = try #require(try engine.blobs.layout(other))
  var chunks: [ChunkEntry] = []
  try layout.forEachChunk(in: 0..<layout.byteCount, from: engine.chunks) { placed in
    chunks.append(placed.entry)
    return true
  }
  let forged = try BlobLayout(digest: digest, chunks: chunks)
  let newest = try engine.versions(key).map(\.id.stamp.time).max() ?? 1 << 40
  _ = try engine.writer.commit(on: [Array(key.utf8)]) { (commit) throws(BlobStorageError) in
    _ = try commit.appendManifest(of: forged) { _ in false }
    _ = try commit.append(
      .ref(
        RefRecord(
          key: Array(key.utf8), version: Stamp(time: newest + 1, writer: 1), replaced: .none, digest: digest,
          byteCount: forged.byteCount, created: 1 << 40, metadata: [])))
  }
}
