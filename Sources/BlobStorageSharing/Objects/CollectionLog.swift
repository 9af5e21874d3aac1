import BlobStorage
import SystemPackage

/// Reads and appends the log of collections of one store.
package struct CollectionLog: Sendable {
  let objects: any ObjectStore
  let storeID: [UInt8]
  /// Entries between two checkpoints.
  private let checkpointInterval: UInt32
  package static let usualCheckpointInterval: UInt32 = 32
  /// Saves an entry locally before its put.
  private let keep: @Sendable ([UInt8]) throws(BlobStorageError) -> Void

  package init(
    _ objects: any ObjectStore, storeID: [UInt8],
    checkpointInterval: UInt32 = CollectionLog.usualCheckpointInterval,
    keep: @escaping @Sendable ([UInt8]) throws(BlobStorageError) -> Void = { _ in }
  ) {
    self.keep = keep
    self.checkpointInterval = checkpointInterval
    self.objects = objects
    self.storeID = storeID
  }

  private static let attemptCountMax = 16

  /// Reads the newest state of the log.
  ///
  /// It ignores objects that are not entries of this store, even one with the next entry's name.
  /// ``condemn(_:horizon:after:by:)`` reports such an object.
  ///
  /// - Complexity: one listing of the entries after `known`, and a get for each. If a checkpoint has replaced some, two
  ///   more listings and one more get.
  package func read(after known: Collections) throws(BlobStorageError) -> Collections {
    try read(after: known, listed: nil).state
  }

  /// - Parameter listed: the names of all current entries, if already listed.
  /// - Returns: the state, and whether a checkpoint skipped entries after `known`.
  func read(
    after known: Collections, listed names: [String]?
  ) throws(BlobStorageError) -> (state: Collections, isJump: Bool) {
    var state = known
    var isJump = false
    for attempt in 1...Self.attemptCountMax {
      let first = state.number > 0 ? SharedNames.collection(state.number) : nil
      var stranger: String?
      var listed = attempt == 1 ? names : nil
      if listed == nil { listed = try objects.listAll(SharedNames.collections, after: first).map(\.name) }
      for name in listed ?? [] {
        guard let number = SharedNames.collectionNumber(name), number > state.number else { continue }
        let found = try find(number)
        if case .other = found { continue }
        guard case .entry(let entry, let link) = found, number == state.number + 1, entry.link == state.link
        else {
          stranger = name
          break
        }
        state = state.applying(entry, link: link)
      }
      guard let stranger else { return (state, isJump) }
      guard let checkpoint = try newestCheckpoint(), checkpoint.number > state.number else {
        // Another checkpoint may have replaced this one just now.
        if attempt < 3 { continue }
        throw BlobStorageError(
          .corrupted,
          "The store's log has \(stranger) after entry \(state.number), and what was between is lost: run `blobtool repair`"
            + " with a state folder that was used since, or bring the object back.", path: stranger)
      }
      (state, isJump) = (checkpoint, true)
    }
    throw BlobStorageError(.busy, "Other machines kept collecting garbage meanwhile: try again.")
  }

  /// Whether a machine without any state reads this state or a later one.
  ///
  /// - Complexity: one listing, and a get for each entry. With a checkpoint: three listings, two gets, and a get for
  ///   each entry since.
  func leads(to known: Collections) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      return try read(after: Collections()).number >= known.number
    } catch {
      guard error.code == .corrupted else { throw error }
      return false
    }
  }

  /// Whether a state was read from this log: the log has its last entry, or a checkpoint that replaces it. If not, the
  /// log lost its end, or the bucket was restored from an older copy.
  ///
  /// - Complexity: one get; if the entry differs, also one listing and one more get.
  func holds(_ known: Collections) throws(BlobStorageError) -> Bool {
    guard known.number > 0 else { return true }
    if case .entry(_, let link) = try find(known.number), link == known.link { return true }
    guard let checkpoint = try newestCheckpoint() else { return false }
    return checkpoint.number > known.number
      || checkpoint.number == known.number && checkpoint.link == known.link
  }

  /// Puts a checkpoint of this machine's known state, because objects that lead to it are lost.
  func restore(_ known: Collections) throws(BlobStorageError) {
    try putCheckpoint(known)
    // Put an entry under the number, so that a suspended collector cannot take it. The entry follows no other, so
    // machines look for the checkpoint.
    var entry = Collections()
    (entry.number, entry.epoch, entry.collector) = (known.number, known.epoch, known.collector)
    (entry.horizon, entry.link) = (known.horizon, known.link)
    let bytes = entry.encoded(.collection, storeID: storeID)
    _ = try objects.put(SharedNames.collection(known.number), .bytes(bytes), ifAbsent: true)
  }

  private enum Found {
    case entry(Collections, link: UInt32)
    /// An object that is not an entry of this store.
    case other
    /// No object: a checkpoint has replaced it.
    case gone
  }

  private func find(_ number: UInt32) throws(BlobStorageError) -> Found {
    let name = SharedNames.collection(number)
    do throws(BlobStorageError) {
      guard let bytes = try objects.whole(name, .collection) else { return .gone }
      let entry = try Collections(bytes, .collection, number: number, storeID: storeID, name: name)
      return .entry(entry, link: Self.link(bytes))
    } catch {
      guard error.code == .corrupted else { throw error }
      return .other
    }
  }

  /// The checksum, which is the object's end.
  private static func link(_ bytes: [UInt8]) -> UInt32 {
    bytes.suffix(4).reversed().reduce(0) { $0 << 8 | UInt32($1) }
  }

  private func newestCheckpoint() throws(BlobStorageError) -> Collections? {
    let numbers = try objects.listAll(SharedNames.checkpoints).compactMap {
      SharedNames.checkpointNumber($0.name)
    }
    for number in numbers.reversed() {
      let name = SharedNames.checkpoint(number)
      do throws(BlobStorageError) {
        guard let bytes = try objects.whole(name, .checkpoint) else { continue }
        return try Collections(bytes, .checkpoint, number: number, storeID: storeID, name: name)
      } catch { guard error.code == .corrupted else { throw error } }
    }
    return nil
  }

  /// Puts a checkpoint after the last entry, and deletes earlier entries and checkpoints. The last entry stays, so that
  /// a suspended collector finds its number taken.
  private func putCheckpoint(_ state: Collections) throws(BlobStorageError) {
    let bytes = state.encoded(.checkpoint, storeID: storeID)
    guard bytes.count <= BlobLimits.collectionByteCountMax else { return }
    _ = try objects.put(SharedNames.checkpoint(state.number), .bytes(bytes), ifAbsent: false)
    for prefix in [SharedNames.collections, SharedNames.checkpoints] {
      for name in try objects.listAll(prefix).map(\.name) {
        let number = SharedNames.collectionNumber(name) ?? SharedNames.checkpointNumber(name)
        if let number, number < state.number { try objects.delete(name) }
      }
    }
  }

  /// Appends an entry that condemns more packs.
  ///
  /// - Parameter horizon: the last change that may be deleted afterwards.
  /// - Returns: nil if another collector has appended an entry after `known`. Then read and plan again.
  /// - Throws: `corrupted` if an object that is not an entry has the next entry's name; `limitExceeded` if the entry
  ///   would be too long.
  package func condemn(
    _ names: some Sequence<PackName>, horizon: UInt32 = 0, after known: Collections, by collector: UInt64
  ) throws(BlobStorageError) -> Collections? {
    var entry = Collections()
    entry.horizon = horizon
    entry.condemned = Set(names)
    entry.epoch = known.number + 1
    return try put(entry, after: known, collector)
  }

  /// Appends an entry that removes condemned packs. Delete their objects only after that.
  ///
  /// Their live records must be published in other packs. All writers must have acknowledged the condemnation, have
  /// left, or be fenced.
  ///
  /// - Parameters:
  ///   - ends: end marks of writers whose packs are all removed. From then on the log shows their number of packs.
  ///   - known: the collector's own condemnation.
  /// - Returns: nil if another collector has condemned since. Then nothing may be deleted.
  package func remove(
    _ names: some Sequence<PackName>, ends: [PackName] = [], after known: Collections, by collector: UInt64
  ) throws(BlobStorageError) -> Collections? {
    precondition(
      known.isStanding && known.collector == collector, "only the collector that condemned last removes")
    var entry = Collections()
    for name in names {
      precondition(known.condemned.contains(name), "only condemned packs are removed")
      entry.removed.insert(name)
    }
    for name in ends { entry.removed.insert(name) }
    return try put(entry, after: known, collector)
  }

  /// Appends an entry that accepts losses. All machines then treat these packs as removed.
  ///
  /// A collector that condemned before then gives up, because its entry is no longer the last.
  ///
  /// - Returns: nil if another machine has appended an entry after `known`.
  package func accept(
    _ names: some Sequence<PackName>, _ gaps: [(writer: UInt64, sequences: ClosedRange<UInt32>)],
    after known: Collections, by machine: UInt64
  ) throws(BlobStorageError) -> Collections? {
    var entry = Collections()
    for name in names { entry.removed.insert(name) }
    for gap in gaps { entry.removed.insert(gap.sequences, of: gap.writer) }
    return try put(entry, after: known, machine)
  }

  private func put(
    _ change: Collections, after known: Collections, _ collector: UInt64
  ) throws(BlobStorageError) -> Collections? {
    var entry = change
    entry.number = known.number + 1
    if entry.epoch == 0 { entry.epoch = known.epoch }
    entry.horizon = max(entry.horizon, known.horizon)
    entry.collector = collector
    entry.link = known.link
    let bytes = entry.encoded(.collection, storeID: storeID)
    guard bytes.count <= BlobLimits.collectionByteCountMax else {
      throw BlobStorageError(.limitExceeded, "There are too many packs for one collection: collect fewer.")
    }
    let name = SharedNames.collection(entry.number)
    try keep(bytes)
    // The stored entry may be this one: an earlier attempt's response was lost.
    if try objects.put(name, .bytes(bytes), ifAbsent: true) == .exists,
      try objects.get(name, 0..<Int64(bytes.count) + 1) != bytes
    {
      guard case .other = try find(entry.number) else { return nil }
      throw BlobStorageError(
        .corrupted,
        "The object \(name) in \(objects.place) is no entry of the log and occupies the name of the next one: delete it"
          + " and collect again.", path: name)
    }
    // A suspended collector may have put it under a number whose entry a checkpoint has replaced. Then there are later
    // entries.
    for listed in try objects.listAll(SharedNames.collections, after: name) {
      guard let number = SharedNames.collectionNumber(listed.name) else { continue }
      if case .entry = try find(number) { return nil }
    }
    let next = known.applying(entry, link: Self.link(bytes))
    if next.number % checkpointInterval == 0 {
      // If this fails, a later entry puts the next checkpoint.
      do throws(BlobStorageError) { try putCheckpoint(next) } catch {}
    }
    return next
  }
}

/// Keeps an object of the log in the state folder.
///
/// `log` is a checkpoint of the newest known state, so that each process reads only later entries. Losing it costs
/// requests. `entry` is the next entry of the only collecting machine, saved before its put. After a crash the machine
/// puts exactly these bytes again. Without conditional put, a late put of other bytes would change an entry that others
/// have read.
struct LogFile: Sendable {
  private let folder: FilePath
  private let kind: SharedObject.Kind
  private let files: any FileSystem
  private let storeID: [UInt8]

  init(_ kind: SharedObject.Kind, in folder: FilePath, _ files: any FileSystem, storeID: [UInt8]) {
    self.folder = folder
    self.kind = kind
    self.files = files
    self.storeID = storeID
  }

  private var path: FilePath { folder.entry(kind == .checkpoint ? "log" : "entry") }

  /// Replaces the kept object. Several processes may replace `log` at once.
  func keep(_ bytes: [UInt8]) throws(BlobStorageError) {
    let temporary =
      kind == .checkpoint ? folder.entry("incoming").entry("log.\(Hex.text(randomUInt64()))") : nil
    try files.replace(path, with: bytes, through: temporary).close()
  }

  /// Reads the kept object; nil if there is none.
  ///
  /// - Throws: `corrupted`
  func read() throws(BlobStorageError) -> (state: Collections, bytes: [UInt8])? {
    guard let file = try files.openIfThere(path, .read) else { return nil }
    defer { file.close() }
    let byteCount = min(try file.status().byteCount, Int64(BlobLimits.collectionByteCountMax))
    let bytes = try file.bytesThere(at: 0, Int(byteCount))
    return (try Collections(bytes, kind, number: nil, storeID: storeID, name: path.string), bytes)
  }
}
