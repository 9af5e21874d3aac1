import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport

/// What a model pack of a shared store holds. Versions and chunks are numbers.
enum SharedRecord: Hashable {
  /// A base of 0 is none.
  case chunk(UInt32, base: UInt32)
  case ref(version: UInt32, chunk: UInt32)
  case drop(version: UInt32)

  private var numbers: [UInt32] {
    switch self {
    case .chunk(let chunk, let base): [1, chunk, base]
    case .ref(let version, let chunk): [2, version, chunk]
    case .drop(let version): [3, version, 0]
    }
  }

  /// A pack as it is published: longer than a fence.
  static func encode(_ records: [SharedRecord], _ name: PackName) -> [UInt8] {
    var writer = ByteWriter()
    writer.integer(name.writer)
    writer.integer(name.sequence)
    writer.zeros(52)
    for record in records { for number in record.numbers { writer.integer(number) } }
    return writer.bytes
  }

  static func decode(_ bytes: [UInt8], _ name: PackName) throws -> [SharedRecord] {
    guard bytes.count >= 64, bytes.prefix(8).elementsEqual(SharedRecord.encode([], name).prefix(8)) else {
      throw Broken("pack \(name) is something else")
    }
    return stride(from: 64, to: bytes.count, by: 12).map { offset in
      let numbers = (0..<3).map { field in
        (0..<4).reduce(UInt32(0)) { $0 | UInt32(bytes[offset + field * 4 + $1]) << UInt32($1 * 8) }
      }
      switch numbers[0] {
      case 1: return .chunk(numbers[1], base: numbers[2])
      case 2: return .ref(version: numbers[1], chunk: numbers[2])
      default: return .drop(version: numbers[1])
      }
    }
  }
}

/// What a machine that has caught up sees of a shared store.
struct SharedPicture {
  var collections = Collections()
  var packs: [PackName: [SharedRecord]] = [:]
  var missing: [PackName] = []

  init() {}

  /// Catches up; what was read before is not read again.
  mutating func catchUp(
    _ objects: any ObjectStore, storeID: [UInt8], weaknesses: Weaknesses = []
  ) throws(BlobStorageError) {
    for _ in 0..<30 {
      let listing = try StoreListing.take(
        objects, storeID: storeID, known: collections, weaknesses: weaknesses)
      var next: [PackName: [SharedRecord]] = [:]
      for name in listing.packs.keys.sorted() {
        if let known = packs[name] {
          next[name] = known
        } else if let bytes = try objects.get(SharedNames.pack(name), 0..<1 << 20) {
          do { next[name] = try SharedRecord.decode(bytes, name) } catch {
            throw BlobStorageError(.corrupted, "\(error)")
          }
        } else {
          break
        }
      }
      collections = listing.collections
      missing = listing.missing
      packs = packs.filter { listing.packs[$0.key] != nil }.merging(next) { $1 }
      // One that has gone since was removed: the next listing says so.
      if packs.count == listing.packs.count { return }
    }
    throw BlobStorageError(.busy, "packs go faster than they are read")
  }

  /// The chunk of each version that can be seen.
  var versions: [UInt32: UInt32] {
    var found: [UInt32: UInt32] = [:]
    var dropped: Set<UInt32> = []
    for records in packs.values {
      for record in records {
        switch record {
        case .ref(let version, let chunk): found[version] = chunk
        case .drop(let version): dropped.insert(version)
        case .chunk: break
        }
      }
    }
    return found.filter { !dropped.contains($0.key) }
  }

  /// The records in packs that are not `left out`.
  func records(_ isLeftOut: (PackName) -> Bool = { _ in false }) -> Set<SharedRecord> {
    Set(packs.filter { !isLeftOut($0.key) }.flatMap(\.value))
  }

  /// The chunks that can be read by these records.
  static func chunks(_ records: Set<SharedRecord>) -> Set<UInt32> {
    var found: Set<UInt32> = []
    for case .chunk(let chunk, let base) in records
    where base == 0 || records.contains(.chunk(base, base: 0)) { found.insert(chunk) }
    return found
  }
}

/// What was reported done, and what must be there therefore.
struct SharedOracle {
  private(set) var reported: Set<UInt32> = []
  /// Somebody has begun to drop them.
  private(set) var mayBeDropped: Set<UInt32> = []
  private(set) var dropped: Set<UInt32> = []

  mutating func begin(_ record: SharedRecord) {
    if case .drop(let version) = record { mayBeDropped.insert(version) }
  }

  mutating func report(_ record: SharedRecord) {
    switch record {
    case .ref(let version, _): reported.insert(version)
    case .drop(let version): dropped.insert(version)
    case .chunk: break
    }
  }

  /// - Parameter earlier: what was reported before the picture was taken.
  func check(_ picture: SharedPicture, since earlier: SharedOracle, _ moment: String) throws {
    let versions = picture.versions
    let chunks = SharedPicture.chunks(picture.records())
    for version in earlier.reported.subtracting(mayBeDropped).sorted() {
      guard let chunk = versions[version] else { throw Broken("\(moment): version \(version) is lost") }
      if !chunks.contains(chunk) {
        throw Broken("\(moment): chunk \(chunk) of version \(version) is lost")
      }
    }
    for version in earlier.dropped.sorted() where versions[version] != nil {
      throw Broken("\(moment): version \(version) is back")
    }
  }
}
