import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// A catalog of its own in a folder of its own, filled by the test.
final class CatalogPlace {
  let temporary: TemporaryFolder
  let catalog: Catalog

  static let store = StoreHeader(
    flags: [], digestAlgorithm: .blake3, codecNumber: 1, level: 3, averageChunkByteCount: 65_536,
    storeID: PackPlace.storeID, created: 1)

  init(mapByteCount: Int = 1 << 24, files: any FileSystem = SystemFiles()) throws {
    temporary = try TemporaryFolder()
    catalog = try Self.open(in: temporary, mapByteCount: mapByteCount, files: files)
  }

  /// The catalog of that folder; empty if it is new or has to be rebuilt.
  static func open(
    in temporary: TemporaryFolder, mapByteCount: Int = 1 << 24, files: any FileSystem = SystemFiles(),
    outerRowsSource: (any OuterRowsSource)? = nil,
    prepare: @escaping @Sendable () throws(BlobStorageError) -> Void = {}
  ) throws -> Catalog {
    let backend = FolderBackend(
      folder: temporary.path.appending("packs"), asideFolder: temporary.path.appending("aside"),
      files: SystemFiles())
    return try Catalog(
      folder: temporary.path.appending("catalog"), files: files, store: store,
      identity: MediumIdentity(boot: "boot", mount: "mount"),
      mapByteCount: mapByteCount, logger: StoreConfiguration().logger, live: LiveHolder(),
      tails: Tails(backend: backend, codecs: CodecPool(), store: store, time: .system), hasAllPacks: true,
      outerRowsSource: outerRowsSource, prepare: prepare,
      fill: { (database, _) throws(BlobStorageError) in _ = try outerRowsSource?.adopt(into: database) },
      recoverDeadPacks: { _, _ in })
  }

  deinit { catalog.close() }

  /// Applies records of one pack, which follow those applied before, and may have it sealed.
  func apply(
    _ pack: SamplePack, _ range: Range<Int>, seals: Bool = false, isTakenIn: Bool = false,
    isRebuilding: Bool = false
  ) throws {
    try Self.apply(
      pack, range, to: catalog, seals: seals, isTakenIn: isTakenIn, isRebuilding: isRebuilding)
  }

  static func apply(
    _ pack: SamplePack, _ range: Range<Int>, to catalog: Catalog, seals: Bool = false,
    isTakenIn: Bool = false,
    isRebuilding: Bool = false
  ) throws {
    try catalog.write { (transaction) throws(BlobStorageError) in
      let number: UInt32
      if let known = try transaction.packNumber(pack.header.name) {
        number = known
      } else {
        number = try transaction.addPack(PackRow(name: pack.header.name, created: pack.header.created))
      }
      guard var row = try transaction.packRow(number) else { return }
      for record in pack.records[range] {
        try transaction.apply(record, from: number, &row, isTakenIn: isTakenIn, isRebuilding: isRebuilding)
      }
      row.isSealed = seals
      try transaction.setPackRow(number, row)
    }
  }

  /// Condemns a pack, so that no writer shares its records.
  func condemn(_ pack: SamplePack) throws {
    try catalog.write { (transaction) throws(BlobStorageError) in
      try CatalogBuilder.condemn([pack.header.name], in: transaction)
    }
  }

  /// Takes all records of a pack out again, the last first.
  func retract(_ pack: SamplePack) throws {
    try catalog.write { (transaction) throws(BlobStorageError) in
      guard let number = try transaction.packNumber(pack.header.name) else { return }
      for record in pack.records.reversed() {
        try transaction.retract(record, from: number)
      }
      try transaction.removePack(number, pack.header.name)
    }
  }

  /// Everything that the catalog says of these keys, stamps and digests, packs by their names.
  func dump(keys: [[UInt8]], stamps: [Stamp], digests: [BlobDigest]) throws -> [String] {
    try Self.dump(catalog, keys: keys, stamps: stamps, digests: digests)
  }

  static func dump(
    _ catalog: Catalog, keys: [[UInt8]], stamps: [Stamp], digests: [BlobDigest]
  ) throws -> [String] {
    try catalog.read { (transaction) throws(BlobStorageError) in
      var lines: [String] = []
      func text(_ place: Place) throws(BlobStorageError) -> String {
        let name = try transaction.packRow(place.pack)?.name
        return "\(name.map { "\($0)" } ?? "nowhere")@\(place.offset)#\(place.ordinal)"
      }
      for key in keys.sorted(by: { $0.lexicographicallyPrecedes($1) }) {
        guard let name = try transaction.nameRow(key) else { continue }
        lines.append("key \(Hex.text(key)): \(name.versionCount) versions, \(name.maskCount) masks")
        try transaction.forEachVersion(of: name) {
          version throws(BlobStorageError) in
          lines.append(
            "  \(version.stamp.text) \(version.row.digest) \(version.row.byteCount) \(version.row.created) "
              + "\(version.row.metadata) x\(version.row.copyCount) at \(try text(version.row.place))")
          return true
        }
        for stamp in stamps.sorted() {
          guard let mask = try transaction.maskRow(of: name, stamp) else { continue }
          lines.append("  mask \(stamp.text): \(mask.copyCount) copies, \(mask.maskerCount) maskers")
        }
      }
      for digest in digests.sorted() {
        if let row = try transaction.chunkRow(digest) {
          lines.append("chunk \(digest) \(row.plainByteCount) at \(try text(row.place))")
        }
        if let row = try transaction.manifestRow(digest) {
          lines.append("manifest \(digest) \(row.byteCount) at \(try text(row.place))")
        }
      }
      return lines
    }
  }
}

/// A pack that exists only as a list of records.
struct SamplePack {
  var header: PackHeader
  var records: [PackRecord] = []
  private var end = Int64(PackHeader.byteCount)

  init(_ header: PackHeader) { self.header = header }

  mutating func append(_ sample: SampleRecord) {
    let record: PackRecord
    switch sample.content {
    case .chunk, .manifest:
      record = PackRecord(sample.content, offset: end, payloadByteCount: sample.payload.count)
    case .ref, .drop, .skipped: record = PackRecord(sample.content, in: end..<end + 100)
    }
    records.append(record)
    end += Int64(record.byteCount)
  }
}
