import Logging
import Synchronization
import SystemPackage

/// The generations of a catalog, and the file that says which of them is in use.
extension Catalog {
  func rebuildLocked() throws(BlobStorageError) {
    let old = try generations()
    let poisoned = poisonedPacks()
    let suspects = suspectChunks()
    let generation = "g" + Hex.text(randomNumber())
    let place = folder.appending(generation)
    try files.createPart(place)
    try files.open(place.appending("data.mdb"), .create).close()
    let environment = try SharedEnvironments.open(
      place, files: files, mapByteCount: mapByteCount, clock: clock, inspects: false)
    try begin(environment)
    try fill(environment, true)
    try environment.write { (transaction) throws(BlobStorageError) in
      for name in poisoned { try transaction.poison(name) }
      try suspects?.note(in: transaction)
    }
    let state = try writeState(generation: generation, identity.mark)
    current.withLock {
      $0 = Current(environment: environment, generation: generation, state: state)
    }
    isToCatchUp.store(false, ordering: .relaxed)
    try reap(environment)
    for name in old { try removeGeneration(name) }
  }

  /// The packs that may not have reached the medium, as far as the catalog in use still tells: no pack says it itself,
  /// and the system gives their bytes back whole until it is started again.
  func poisonedPacks() -> [PackName] {
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
  func suspectChunks() -> SuspectChunks? {
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
    var place = folder.appending(name)
    guard try files.status(of: place)?.kind == .directory else {
      try files.remove(place)
      return
    }
    if !name.hasSuffix(".old") {
      // LMDB would create the files again for a process that has read an older `state` and opens them at this moment.
      let old = folder.appending(name + ".old")
      try files.rename(place, to: old)
      place = old
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

  /// Which tables there are and what they mean: a catalog of another layout is rebuilt. 2 has those of a cache, 3 what was
  /// promised of each pack.
  package static let layout = "3"

  func readState() throws(BlobStorageError) -> State? {
    let path = folder.appending("state")
    guard try files.status(of: path)?.kind == .regular, let file = try files.openIfThere(path, .read) else {
      return nil
    }
    let bytes = try file.bytesThere(at: 0, 512)
    let words = String(decoding: bytes, as: UTF8.self).split(whereSeparator: { $0 == " " || $0 == "\n" })
    guard words.count == 3, words[0] == Self.layout, words[1].hasPrefix("g"),
      words[1].utf8.allSatisfy({ $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: ".") })
    else { return nil }
    return State(generation: String(words[1]), mark: MediumIdentity.Mark(words[2]), file: file)
  }

  /// Replaces the state durably, before anything that depends on it is written. `lock` is held exclusively.
  func writeState(
    generation: String, _ mark: MediumIdentity.Mark
  ) throws(BlobStorageError) -> State {
    let text = Array("\(Self.layout) \(generation) \(mark.text)\n".utf8)
    let table = live.table
    table?.beginNewCatalog()
    // Also when this fails: the file may have its name already.
    defer { table?.noteNewCatalog() }
    let file = try files.replace(folder.appending("state"), with: text)
    return State(generation: generation, mark: mark, file: file)
  }

  /// Has `state` say that the generation is written to, before it is. `lock` is held exclusively.
  func markWritten() throws(BlobStorageError) {
    guard let now = current.withLock({ $0?.state }), now.mark == .clean else { return }
    let state = try writeState(generation: now.generation, identity.mark)
    current.withLock { $0?.state = state }
  }

  /// The state, if its generation cannot have lost anything that was written to it; else nil.
  ///
  /// Another mount of this boot may belong to another container that shares the file system. Or the disk was gone in
  /// between, and the catalog is torn. It is whole if a process that trusts it has it open.
  func trusted(_ state: State, isAlone: Bool) throws(BlobStorageError) -> State? {
    if state.mark == .clean || identity.trusts(state.mark) { return state }
    guard identity.isOfThisBoot(state.mark) else { return nil }
    if isUser.withLock({ $0 }) { return state }
    // Only processes that trust it hold `users`, and none can join while this one holds `lock`.
    guard isAlone, !(try usersFile?.lock(.exclusive, wait: false) ?? false) else { return nil }
    return try writeState(generation: state.generation, identity.mark(with: state.mark))
  }
}
