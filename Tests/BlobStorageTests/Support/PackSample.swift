import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// A folder of packs on the real file system, and the means to fill it.
struct PackPlace {
  let temporary: TemporaryFolder
  let backend: FolderBackend
  let codecs = CodecPool()

  static let storeID = Array(UInt8(0)..<16)

  init() throws {
    temporary = try TemporaryFolder()
    let packs = temporary.path.appending("packs")
    try SystemFiles().createDirectory(packs)
    backend = FolderBackend(
      folder: packs, asideFolder: temporary.path.appending("aside"), files: SystemFiles())
  }

  func path(_ name: PackName) -> FilePath {
    temporary.path.appending("packs").appending(name.fileName)
  }

  /// A header of this place's store.
  static func header(
    writer: UInt64 = 0x0102_0304_0506_0708, sequence: UInt32 = 1, created: UInt64 = 0x0193_5c00_0000 << 16
  ) -> PackHeader {
    PackHeader(
      name: PackName(writer: writer, sequence: sequence), storeID: storeID, digestAlgorithm: .blake3,
      created: created)
  }

  /// Writes a pack of these records.
  @discardableResult
  /// - Parameter fillByteCount: with it, each record is flushed by itself.
  func write(
    _ header: PackHeader, _ records: [SampleRecord], seals: Bool = true, fillByteCount: Int = 0
  ) throws -> [PackRecord] {
    let writer = try PackWriter(header: header, backend: backend, codecs: codecs)
    writer.fillByteCount = fillByteCount
    var written: [PackRecord] = []
    for record in records {
      written.append(
        try writer.append(
          record.content, payload: record.payload.span.bytes, continues: record.continues,
          syncedByteCount: record.synced))
      if fillByteCount > 0 { try writer.flush() }
    }
    try writer.flush()
    if seals { try writer.seal() }
    writer.file.close()
    return written
  }

  /// What a scan of the pack finds.
  func scan(
    _ name: PackName, verifiesPayloads: Bool = false
  ) throws -> (records: [PackRecord], outcome: PackScanner.Outcome) {
    let file = try #require(try backend.openPack(name))
    defer { file.close() }
    var records: [PackRecord] = []
    let outcome = try PackScanner(file: file, name: name, codecs: codecs)
      .scan(verifiesPayloads: verifiesPayloads) { records.append($0) }
    return (records, outcome)
  }

  func bytes(_ name: PackName) throws -> [UInt8] { try SystemFiles().bytes(of: path(name)) }

  func replace(_ name: PackName, with bytes: [UInt8]) throws {
    try SystemFiles().write(bytes, to: path(name))
  }
}

/// A record to be written.
struct SampleRecord {
  var content: PackRecord.Content
  var payload: [UInt8] = []
  var continues = false
  /// Bytes of the pack that are said to be on the medium.
  var synced: Int64 = 0

  /// A chunk that is said to be encoded against another.
  static func chunk(_ plain: [UInt8], base: BlobDigest) -> SampleRecord {
    SampleRecord(
      content: .chunk(
        ChunkRecord(
          digest: BlobDigest.of(plain), plainByteCount: plain.count, codecNumber: 1, base: base
        )),
      payload: plain)
  }

  /// A chunk that is kept plain.
  static func chunk(_ plain: [UInt8]) -> SampleRecord {
    SampleRecord(
      content: .chunk(
        ChunkRecord(digest: BlobDigest.of(plain), plainByteCount: plain.count, codecNumber: 0)),
      payload: plain)
  }

  static func ref(
    _ key: String, _ version: Stamp, replaces replaced: Stamp = .none,
    digest: BlobDigest = BlobDigest.of([UInt8]()),
    byteCount: Int64 = 0, continues: Bool = false, synced: Int64 = 0
  ) -> SampleRecord {
    SampleRecord(
      content: .ref(
        RefRecord(
          key: Array(key.utf8), version: version, replaced: replaced, digest: digest, byteCount: byteCount,
          created: 1_700_000_000_000, metadata: [])), continues: continues, synced: synced)
  }

  static func drop(_ key: String, _ versions: [Stamp], at stamp: Stamp, continues: Bool = false)
    -> SampleRecord
  {
    let drop = DropRecord(key: Array(key.utf8), stamp: stamp, versions: versions)
    return SampleRecord(content: .drop(drop), continues: continues)
  }

  static func manifest(_ digest: BlobDigest, _ entries: [ChunkEntry]) -> SampleRecord {
    var payload = ByteWriter()
    for entry in entries { entry.encode(into: &payload) }
    return SampleRecord(
      content: .manifest(
        ManifestRecord(
          digest: digest, byteCount: entries.reduce(0) { $0 + Int64($1.plainByteCount) },
          chunkCount: Int64(entries.count), depth: 0, listedCount: entries.count)), payload: payload.bytes)
  }
}

extension PackRecord {
  /// What the record says, in a form that can be compared.
  var summary: String { "\(offset)+\(byteCount) \(continues) \(content)" }
}

/// The error that `body` throws.
func failure(_ body: () throws -> Void) -> BlobStorageError? {
  do { try body() } catch { return error as? BlobStorageError }
  return nil
}

/// `withUnsafeBytes` for decoders that throw typed errors.
func decoding<T>(
  _ bytes: [UInt8], _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
) throws(BlobStorageError) -> T {
  let result: Result<T, BlobStorageError> = bytes.withUnsafeBytes { raw in
    do throws(BlobStorageError) { return .success(try body(raw)) } catch { return .failure(error) }
  }
  return try result.get()
}
