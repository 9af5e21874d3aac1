import Logging
import Synchronization
import SystemPackage

/// The derived database over the packs, as this process has it open.
///
/// Its folder holds `lock`, `users`, `state` and one folder a generation with LMDB's files in it. Invariants:
/// 1. Whoever writes holds `lock` shared, whoever opens or rebuilds holds it exclusively.
/// 2. `state` names the generation in use and says `clean`, or the boot in which it has been written to since. A
///    generation that says another boot may be torn and is not used.
/// 3. A rebuilt catalog is a new generation. The files of the old one are removed, which tells everybody who has
///    them open.
/// 4. Every process that has the store open holds `users` shared; the last one to close makes it clean.
/// 5. Clean, it counts on what has reached the medium only: not while a killed writer's pack is open, or one waits to be
///    published (a power cut could take what it knows of it).
package final class Catalog: Sendable {
  let folder: FilePath
  let files: any FileSystem
  private let store: StoreHeader
  private let bootIdentity: String
  private let mapByteCount: Int
  let logger: Logger
  private let lockFile: any File
  private let usersFile: any File
  /// The environment in use, and whether `state` is known to say that it is written to.
  private let current = Mutex<Current?>(nil)
  /// One write at a time; also keeps threads of this process from sharing the lock file's one lock.
  private let writeTurn = Mutex<Void>(())

  private struct Current: Sendable {
    var environment: Environment
    var generation: String
    var isMarkedDirty: Bool
  }

  let randomNumber: @Sendable () -> UInt64
  private let clock: WallClock
  private let isPublished: Bool
  /// What is done before it is rebuilt while it is in use, and needs no lock.
  private let prepare: @Sendable () throws(BlobStorageError) -> Void
  /// What is done when another generation is in use from now on.
  private let whenRenewed = Mutex<(@Sendable () -> Void)?>(nil)
  /// What rebuilds it: fills an empty environment from the packs.
  private let fill: @Sendable (Environment) throws(BlobStorageError) -> Void

  /// Opens the catalog in `folder`, made when it is missing, and rebuilt with `fill` when it cannot be used.
  ///
  /// - Parameters:
  ///   - isPublished: whether its packs are published. They cannot be set aside then: what was found damaged in them stays
  ///     so when the catalog is rebuilt. And until they are, they need not be on the medium.
  ///   - prepare: brings here what a later `fill` would have to wait for: no lock is held.
  ///   - catchUp: brings a usable catalog up to the packs that are there; run while nobody else writes. It calls its
  ///     second argument before it writes, and throws `catalogDamaged` to have the catalog rebuilt.
  package init(
    folder: FilePath, files: any FileSystem, store: StoreHeader, bootIdentity: String, mapByteCount: Int,
    logger: Logger, randomNumber: @escaping @Sendable () -> UInt64 = randomUInt64,
    clock: WallClock = .system, isPublished: Bool = false,
    prepare: @escaping @Sendable () throws(BlobStorageError) -> Void = {},
    fill: @escaping @Sendable (Environment) throws(BlobStorageError) -> Void,
    catchUp: (Environment, _ willWrite: () throws(BlobStorageError) -> Void) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    self.folder = folder
    self.files = files
    self.store = store
    self.bootIdentity = bootIdentity
    self.mapByteCount = mapByteCount
    self.logger = logger
    self.randomNumber = randomNumber
    self.clock = clock
    self.isPublished = isPublished
    self.prepare = prepare
    self.fill = fill
    if try files.status(of: folder) == nil {
      do { try files.createDirectory(folder) } catch {
        guard error.errno == Errno.fileExists.rawValue else { throw error }
      }
    }
    guard try files.status(of: folder)?.kind == .directory else {
      throw BlobStorageError(
        .notAStore, "\(folder) is not a folder: what belongs to a store lies in it, not behind a link.",
        path: folder.string)
    }
    lockFile = try files.open(folder.appending("lock"), .openOrCreate)
    usersFile = try files.open(folder.appending("users"), .openOrCreate)
    _ = try lockFile.lock(.exclusive, wait: true)
    defer { unlock() }
    _ = try usersFile.lock(.shared, wait: true)
    do throws(BlobStorageError) {
      if let opened = try openInUse() {
        current.withLock {
          $0 = Current(environment: opened.environment, generation: opened.generation, isMarkedDirty: false)
        }
        do throws(BlobStorageError) {
          try catchUp(opened.environment) { () throws(BlobStorageError) in try markDirty(opened.generation) }
        } catch {
          // What a dead writer's pack has beyond the catalog was never said to be done: reading need not wait for room.
          guard error.code == .noSpace || error.code == .readOnly else { throw error }
          logger.warning("Packs are not taken in yet.", metadata: ["reason": "\(error.message)"])
        }
        return
      }
    } catch {
      guard error.code == .catalogDamaged else { throw error }
      logger.warning("The catalog cannot be used and is rebuilt.", metadata: ["reason": "\(error.message)"])
    }
    do { try rebuildLocked() } catch { throw Self.final(error) }
  }

  /// Has `body` called whenever this process or another has rebuilt the catalog, before anything is read from it.
  package func onRenewal(_ body: @escaping @Sendable () -> Void) { whenRenewed.withLock { $0 = body } }

  /// Runs `body` on a snapshot. Never waits for writers.
  package func read<T>(_ body: (Transaction) throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    try mended { () throws(BlobStorageError) in try environment().read(body) }
  }

  /// Runs `body` as the one write transaction of all processes, and commits what it did unless it throws.
  ///
  /// - Parameter undo: called when nothing was committed, before any other thread of the process can write; after a
  ///   rebuild `body` may run once more.
  package func write<T>(
    _ body: (Transaction) throws(BlobStorageError) -> T, undo: (BlobStorageError) -> Void = { _ in }
  ) throws(BlobStorageError) -> T {
    try mended { () throws(BlobStorageError) in try writeOnce(body, undo) }
  }

  /// Runs `body`, and once more after a rebuild when it finds the catalog damaged.
  private func mended<T>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    do { return try body() } catch {
      guard error.code == .catalogDamaged else { throw error }
      try rebuild(because: error)
    }
    do { return try body() } catch { throw Self.final(error) }
  }

  /// What the caller is told when even a catalog that was just made anew cannot be used.
  private static func final(_ error: BlobStorageError) -> BlobStorageError {
    guard error.code == .catalogDamaged else { return error }
    return BlobStorageError(
      .io, "The catalog was made anew and cannot be used still: \(error.message) Check the medium.",
      path: error.path, errno: error.errno)
  }

  private func writeOnce<T>(
    _ body: (Transaction) throws(BlobStorageError) -> T, _ undo: (BlobStorageError) -> Void
  ) throws(BlobStorageError) -> T {
    try inTurn { () throws(BlobStorageError) in
      let isMarked = current.withLock { $0?.isMarkedDirty ?? false }
      _ = try lockFile.lock(isMarked ? .shared : .exclusive, wait: true)
      defer { unlock() }
      let environment = try environmentLocked()
      if !isMarked {
        try markDirty(current.withLock { $0?.generation ?? "" })
      }
      do throws(BlobStorageError) { return try environment.write(body) } catch {
        undo(error)
        throw error
      }
    }
  }

  /// Throws the catalog away and makes it again from the packs. Other processes wait with their writes.
  package func rebuild(because reason: BlobStorageError?) throws(BlobStorageError) {
    try prepare()
    try inTurn { () throws(BlobStorageError) in
      _ = try lockFile.lock(.exclusive, wait: true)
      defer { unlock() }
      if let reason {
        logger.warning("The catalog is damaged and is rebuilt.", metadata: ["reason": "\(reason.message)"])
      }
      do throws(BlobStorageError) { try rebuildLocked() } catch { throw Self.final(error) }
    }
  }

  /// Fills a second catalog, and calls `body` with the one in use and with that. The second is removed afterwards.
  package func withSecond(
    fill: (Environment) throws(BlobStorageError) -> Void,
    _ body: (_ inUse: Environment, _ second: Environment) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let inUse = try environment()
    // Named like a generation: if this process dies, the next rebuild removes it.
    let name = "g" + Hex.text(randomNumber())
    try files.createDirectory(folder.appending(name))
    do throws(BlobStorageError) {
      let second = try SharedEnvironments.open(
        folder.appending(name), files: files, mapByteCount: mapByteCount, clock: clock)
      try fill(second)
      try body(inUse, second)
    } catch {
      try removeGeneration(name)
      throw error
    }
    try removeGeneration(name)
  }

  /// Runs `body` while no process writes to the catalog or opens it.
  package func maintain(
    _ body: (Environment) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    try mended { () throws(BlobStorageError) in
      try inTurn { () throws(BlobStorageError) in
        _ = try lockFile.lock(.exclusive, wait: true)
        defer { unlock() }
        let environment = try environmentLocked()
        try markDirty(current.withLock { $0?.generation ?? "" })
        try body(environment)
      }
    }
  }

  /// Gives it up; the last user leaves it clean, so that a later boot need not rebuild it.
  package func close() {
    let last = current.withLock { current in
      defer { current = nil }
      return current
    }
    guard let last else { return }
    do throws(BlobStorageError) {
      try inTurn { () throws(BlobStorageError) in try cleanUp(last) }
    } catch {
      // Not clean is safe: the next boot rebuilds it.
      logger.warning("The catalog was not closed cleanly.", metadata: ["reason": "\(error.message)"])
    }
    lockFile.close()
    usersFile.close()
  }

  /// Leaves the catalog clean if nobody else uses it.
  private func cleanUp(_ last: Current) throws(BlobStorageError) {
    _ = try lockFile.lock(.exclusive, wait: true)
    defer { unlock() }
    if try readState()?.mark != "clean", try usersFile.lock(.exclusive, wait: false),
      !(try last.environment.isSuperseded()),
      try last.environment.read({ (transaction) throws(BlobStorageError) in
        try transaction.countsOnMediumOnly(forcesSealed: !isPublished)
      })
    {
      var generation = last.generation
      if let compact = compacted(last.environment) {
        generation = compact
      } else {
        try last.environment.synchronize()
      }
      try writeState(generation: generation, mark: "clean")
      for old in try generations() where old != generation { try removeGeneration(old) }
    }
  }

  /// Bytes of the medium that it takes.
  package func allocatedByteCount() throws(BlobStorageError) -> Int64 {
    try mended { () throws(BlobStorageError) in try environment().byteCount() }
  }

  /// The name of the generation in use: numbers of packs and keys mean something within one only.
  package var generation: String? { current.withLock { $0?.generation } }

  /// Clears the places of readers whose process died.
  package func clearDeadReaders() throws(BlobStorageError) {
    try mended { () throws(BlobStorageError) in try environment().clearDeadReaders() }
  }

  // MARK: Generations

  private func environment() throws(BlobStorageError) -> Environment {
    guard let current = current.withLock({ $0 }) else {
      throw BlobStorageError(.closed, "The store was closed.")
    }
    guard try current.environment.isSuperseded() else { return current.environment }
    return try inTurn { () throws(BlobStorageError) in
      _ = try lockFile.lock(.exclusive, wait: true)
      defer { unlock() }
      return try environmentLocked()
    }
  }

  /// The environment in use, adopted anew if another process has rebuilt it. The lock is held.
  private func environmentLocked() throws(BlobStorageError) -> Environment {
    guard let now = current.withLock({ $0 }) else { throw BlobStorageError(.closed, "The store was closed.") }
    guard try now.environment.isSuperseded() else { return now.environment }
    guard let opened = try openInUse() else {
      throw BlobStorageError(.catalogDamaged, "The catalog was removed while it was in use.")
    }
    current.withLock {
      $0 = Current(environment: opened.environment, generation: opened.generation, isMarkedDirty: true)
    }
    whenRenewed.withLock { $0 }?()
    return opened.environment
  }

  private func openInUse() throws(BlobStorageError) -> (environment: Environment, generation: String)? {
    guard let state = try readState(),
      state.mark == "clean" || (state.mark == bootIdentity && !bootIdentity.isEmpty)
    else { return nil }
    let place = folder.appending(state.generation)
    guard try files.status(of: place)?.kind == .directory,
      try files.status(of: place.appending("data.mdb"))?.kind == .regular
    else { return nil }
    let environment = try SharedEnvironments.open(place, files: files, mapByteCount: mapByteCount, clock: clock)
    let storeID = try environment.read { (transaction) throws(BlobStorageError) in
      try transaction.value(.meta, Array("store".utf8)).map { Array($0) }
    }
    guard storeID == store.storeID else {
      throw BlobStorageError(.catalogDamaged, "The catalog belongs to another store.")
    }
    return (environment, state.generation)
  }

  private func rebuildLocked() throws(BlobStorageError) {
    let old = try generations()
    let poisoned = poisonedPacks()
    let suspects = suspectChunks()
    let generation = "g" + Hex.text(randomNumber())
    let place = folder.appending(generation)
    try files.createDirectory(place)
    let environment = try SharedEnvironments.open(place, files: files, mapByteCount: mapByteCount, clock: clock)
    try environment.write { (transaction) throws(BlobStorageError) in
      try transaction.put(.meta, Array("store".utf8), store.storeID)
      // Numbers of packs differ from those of the catalog before: who still has one of those finds no pack.
      try transaction.setMeta(.nextPack, randomNumber() >> 33)
    }
    try fill(environment)
    try environment.write { (transaction) throws(BlobStorageError) in
      for name in poisoned { try transaction.poison(name) }
      try suspects?.note(in: transaction)
    }
    try writeState(generation: generation, mark: bootIdentity)
    current.withLock { $0 = Current(environment: environment, generation: generation, isMarkedDirty: true) }
    for name in old { try removeGeneration(name) }
  }

  /// The packs that may not have reached the medium, as far as the catalog in use still tells: no pack says it itself,
  /// and the system gives their bytes back whole until it is started again.
  private func poisonedPacks() -> [PackName] {
    guard let environment = current.withLock({ $0?.environment }) else { return [] }
    do throws(BlobStorageError) {
      return try environment.read { (transaction) throws(BlobStorageError) in
        try transaction.packRows().filter(\.row.isPoisoned).map(\.row.name)
      }
    } catch {
      logger.warning("What could not be synced is forgotten.", metadata: ["reason": "\(error.message)"])
      return []
    }
  }

  /// What was found damaged, as far as the catalog in use still tells.
  private func suspectChunks() -> SuspectChunks? {
    guard isPublished, let environment = current.withLock({ $0?.environment }) else { return nil }
    do throws(BlobStorageError) {
      return try SuspectChunks(in: environment, algorithm: store.digestAlgorithm)
    } catch {
      logger.warning("What was found damaged is forgotten.", metadata: ["reason": "\(error.message)"])
      return nil
    }
  }

  func generations() throws(BlobStorageError) -> [String] {
    try files.list(folder).filter { $0.hasPrefix("g") }
  }

  func removeGeneration(_ name: String) throws(BlobStorageError) {
    let place = folder.appending(name)
    guard try files.status(of: place)?.kind == .directory else {
      try files.remove(place)
      return
    }
    do throws(BlobStorageError) {
      for file in try files.list(place) { try files.remove(place.appending(file)) }
      try files.removeDirectory(place)
    } catch {
      // Something that is not the catalog's lies in it; what tells the others is that this file is gone.
      guard try files.status(of: place.appending("data.mdb")) == nil else { throw error }
      logger.warning("\(place) cannot be removed.", metadata: ["reason": "\(error.message)"])
    }
  }

  // MARK: The state file

  /// Which tables there are and what they mean: a catalog of another layout is rebuilt. 2 has those of a cache.
  private static let layout = "2"

  private func readState() throws(BlobStorageError) -> (generation: String, mark: String)? {
    let path = folder.appending("state")
    guard try files.status(of: path)?.kind == .regular else { return nil }
    let file = try files.open(path, .read)
    defer { file.close() }
    let bytes = try file.bytes(at: 0, Int(min(try file.status().byteCount, 256)), pack: nil)
    let words = String(decoding: bytes, as: UTF8.self).split(whereSeparator: { $0 == " " || $0 == "\n" })
    guard words.count == 3, words[0] == Self.layout, words[1].hasPrefix("g"),
      words[1].utf8.allSatisfy({ $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: ".") })
    else { return nil }
    return (String(words[1]), String(words[2]))
  }

  /// Replaces the state durably, before anything that depends on it is written.
  private func writeState(generation: String, mark: String) throws(BlobStorageError) {
    let temporary = folder.appending("state.new")
    let file = try files.open(temporary, .openOrCreate)
    defer { file.close() }
    let text = Array("\(Self.layout) \(generation) \(mark.isEmpty ? "unknown" : mark)\n".utf8)
    try file.truncate(to: 0)
    try bridge(text) { (bytes) throws(BlobStorageError) in try file.write(bytes, at: 0) }
    try file.synchronize()
    try files.rename(temporary, to: folder.appending("state"))
    try files.syncDirectory(folder)
  }

  /// Has `state` say that the generation is written to, before it is. `lock` is held exclusively.
  private func markDirty(_ generation: String) throws(BlobStorageError) {
    if try readState()?.mark == "clean" { try writeState(generation: generation, mark: bootIdentity) }
    current.withLock { $0?.isMarkedDirty = true }
  }

  private func unlock() {
    // A lock that cannot be given back ends with the file.
    do { try lockFile.unlock() } catch { logger.error("The catalog's lock cannot be given back.") }
  }

  private func inTurn<T>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    let box: Result<Unchecked<T>, BlobStorageError> = writeTurn.withLock { _ in
      do throws(BlobStorageError) { return .success(Unchecked(value: try body())) } catch {
        return .failure(error)
      }
    }
    return try box.get().value
  }
}

/// Carries a value out of a lock's closure on the thread that took it in.
struct Unchecked<T>: @unchecked Sendable { var value: T }
