import Synchronization

/// The packs that this process has open for reading: the most recent few, because descriptors are scarce.
///
/// A pack that gc has removed stays readable here until it is forgotten.
package final class PackFiles: Sendable {
  private struct State: Sendable {
    var files: [PackName: (file: any File, lastUse: UInt64)] = [:]
    /// The names of packs that were requested by their numbers.
    var names: [Number: PackName] = [:]
    /// The catalog in use when a pack was last requested.
    var catalog: UInt64?
    var clock: UInt64 = 0

    mutating func use(_ name: PackName) -> (any File)? {
      guard let index = files.index(forKey: name) else { return nil }
      clock += 1
      files.values[index].lastUse = clock
      return files.values[index].file
    }
  }

  /// A pack's number in a catalog. It never belongs to another pack.
  package struct Number: Hashable, Sendable {
    var catalog: UInt64
    var pack: UInt32

    package init(catalog: UInt64, pack: UInt32) {
      self.catalog = catalog
      self.pack = pack
    }
  }

  private static let nameCountMax = 1_024

  private let backend: any Backend
  private let codecs: CodecPool
  private let store: StoreHeader
  private let countMax: Int
  private let catalogNumber: @Sendable () -> UInt64?
  private let state = Mutex(State())

  /// - Parameter catalogNumber: the number of the catalog in use.
  package init(
    backend: any Backend, codecs: CodecPool, store: StoreHeader,
    countMax: Int = PackFiles.countMax(descriptorLimit: DescriptorGate.limit),
    catalogNumber: @escaping @Sendable () -> UInt64?
  ) {
    self.backend = backend
    self.codecs = codecs
    self.store = store
    self.countMax = countMax
    self.catalogNumber = catalogNumber
  }

  /// How many packs may be open in a process that may have so many descriptors open.
  ///
  /// A pack takes two of them, because its DispatchIO channel has its own. Apple's systems give an app 256 for all that
  /// it opens.
  package static func countMax(descriptorLimit limit: Int) -> Int { min(64, max(8, limit / 16)) }

  /// The pack with a number, if it is open and was requested by that number before.
  package func openFile(_ number: Number) -> (name: PackName, file: any File)? {
    state.withLock { state in
      guard let name = state.names[number], let file = state.use(name) else { return nil }
      return (name, file)
    }
  }

  /// The opened pack, for ``openFile(_:)`` too; nil if it has no file.
  package func file(_ name: PackName, _ number: Number) throws(BlobStorageError) -> (any File)? {
    let file = try file(name)
    state.withLock { state in
      if state.names.count >= Self.nameCountMax { state.names = [:] }
      state.names[number] = name
    }
    return file
  }

  /// The opened pack; nil if it has no file.
  package func file(_ name: PackName) throws(BlobStorageError) -> (any File)? {
    let catalog = catalogNumber()
    // If another process has rebuilt the catalog, it may have given packs their names back (`repair`). Then all files
    // are forgotten, and close outside the lock.
    let (known, _) = state.withLock { state -> ((any File)?, State) in
      if state.catalog == catalog { return (state.use(name), State()) }
      let last = state
      (state.catalog, state.files) = (catalog, [:])
      return (nil, last)
    }
    if let known { return known }
    guard let opened = try backend.openPack(name) else { return nil }
    // The evicted file closes outside the lock, when the last read that uses it has ended.
    let (file, _) = state.withLock { state -> (any File, (any File)?) in
      // Opened before a rebuild, it is not kept.
      guard state.catalog == catalog else { return (opened, nil) }
      state.clock += 1
      // Another thread may have opened it meanwhile. Then this file closes.
      let file = state.files[name]?.file ?? opened
      state.files[name] = (file, state.clock)
      guard state.files.count > countMax,
        let oldest = state.files.min(by: { $0.value.lastUse < $1.value.lastUse })
      else { return (file, nil) }
      return (file, state.files.removeValue(forKey: oldest.key)?.file)
    }
    return file
  }

  /// Returns a scanner that finds the records of a pack in its opened file.
  package func scanner(
    _ name: PackName, _ file: any File, upTo end: Int64? = nil
  ) throws(BlobStorageError) -> PackScanner {
    try PackScanner(file: file, name: name, codecs: codecs, store: store, upTo: end)
  }

  /// Opens a pack again and calls `body` with every record. Returns nil if the pack has no file.
  @discardableResult
  package func scan(
    _ name: PackName, _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> PackScanner.Outcome? {
    guard let file = try backend.openPack(name) else { return nil }
    defer { file.close() }
    return try scanner(name, file).scan(body)
  }

  /// Forgets the packs whose files have been deleted.
  package func forgetRemoved() throws(BlobStorageError) {
    let files = state.withLock { $0.files.mapValues(\.file) }
    for (name, file) in files where try file.status().linkCount == 0 { forget(name) }
  }

  /// Forgets all packs. Later reads open them again.
  package func forgetAll() { forget(Set(state.withLock { Array($0.files.keys) })) }

  /// Forgets packs for which `isGone` returns true, so that the space of removed ones is given back.
  package func forget(where isGone: (PackName) throws(BlobStorageError) -> Bool) throws(BlobStorageError) {
    let names = state.withLock { Array($0.files.keys) }
    for name in names where try isGone(name) { forget(name) }
  }

  package func forget(_ names: Set<PackName>) {
    for name in names { forget(name) }
  }

  private func forget(_ name: PackName) {
    // Closing a removed pack frees its space, so it happens outside the lock.
    _ = state.withLock { $0.files.removeValue(forKey: name)?.file }
  }
}
