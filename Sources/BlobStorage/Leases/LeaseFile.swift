import SystemPackage

/// Protects from gc what a writer or reader at work needs, before it relies on that.
///
/// Each writer has one file and locks it while its process lives: a free lock proves that the writer is dead. The file
/// is an array of ``LeaseSlot``. Slot 0 names the first of the writer's packs that may hold chunks of unfinished puts.
/// Format.md, "Leases".
///
/// The order makes it safe. A holder writes its slot and *then* looks the thing up in a new snapshot; gc condemns packs
/// and *then* reads the slots. Either gc sees the slot, or the holder sees the pack condemned.
package final class LeaseFile: Sendable {
  /// Slots that one call reserved.
  package struct Hold: Sendable { let slots: Range<Int> }

  private struct State {
    var file: (any File)?
    var isClosed = false
    var slotCount = 1
    var heldCount = 0
    var free = RangeSet<Int>()
    /// The first pack of each unfinished put.
    var puts: [UInt64: UInt32] = [:]
    var nextPut: UInt64 = 0
  }

  private let folder: FilePath
  private let writer: UInt64
  private let files: any FileSystem
  private let state = IOLock(State())

  package init(folder: FilePath, writer: UInt64, files: any FileSystem) {
    self.folder = folder
    self.writer = writer
    self.files = files
  }

  /// Protects `held` from the return on. The caller must then look up what still exists.
  ///
  /// - Throws: `closed` after `close()`, and errors of the file. Then it protects nothing.
  /// - Complexity: one write, of 40 bytes for each slot.
  package func hold(_ held: [LeaseSlot]) throws(BlobStorageError) -> Hold {
    try state.withLock { (state) throws(BlobStorageError) in
      let file = try opened(&state)
      let slots = Self.reserve(held.count, &state)
      var writer = ByteWriter(capacity: held.count * LeaseSlot.byteCount)
      for item in held { item.encode(into: &writer) }
      do throws(BlobStorageError) {
        try file.put(writer.bytes, at: Int64(slots.lowerBound * LeaseSlot.byteCount))
      } catch {
        // Gives the slots back: a torn slot would block gc while this process lives.
        letGo(slots, &state)
        throw error
      }
      return Hold(slots: slots)
    }
  }

  /// Protects `held` for a reader. Returns an empty hold if the disk is full or read-only: there, reading matters more
  /// than protection from a concurrent collection.
  package func holdWhereThereIsRoom(_ held: [LeaseSlot]) throws(BlobStorageError) -> Hold {
    do { return try hold(held) } catch {
      guard error.code == .noSpace || error.isRefusal else { throw error }
      return Hold(slots: 0..<0)
    }
  }

  /// Releases the slots of a hold.
  package func release(_ hold: Hold) {
    guard !hold.slots.isEmpty else { return }
    state.withLock { state in letGo(hold.slots, &state) }
  }

  private func letGo(_ slots: Range<Int>, _ state: inout State) {
    state.heldCount -= slots.count
    guard let file = state.file else { return }
    do throws(BlobStorageError) {
      if state.heldCount == 0 {
        try file.truncate(to: Int64(LeaseSlot.byteCount))
        state.slotCount = 1
        state.free = RangeSet()
      } else if slots.upperBound == state.slotCount {
        var end = slots.lowerBound
        if let last = state.free.ranges.last, last.upperBound == end { end = last.lowerBound }
        try file.truncate(to: Int64(end * LeaseSlot.byteCount))
        state.free.remove(contentsOf: end..<slots.lowerBound)
        state.slotCount = end
      } else {
        let zeros = [UInt8](repeating: 0, count: slots.count * LeaseSlot.byteCount)
        try file.put(zeros, at: Int64(slots.lowerBound * LeaseSlot.byteCount))
        state.free.insert(contentsOf: slots)
      }
    } catch {
      // A slot that stays is safe: it protects some garbage until this process ends.
    }
  }

  /// Protects the writer's packs from `sequence` on until `endPut`. Chunks that no version needs yet go there.
  package func beginPut(from sequence: UInt32) throws(BlobStorageError) -> UInt64 {
    try state.withLock { (state) throws(BlobStorageError) in
      state.nextPut += 1
      let put = state.nextPut
      state.puts[put] = sequence
      do throws(BlobStorageError) { try writeFirstSlot(&state) } catch {
        state.puts[put] = nil
        throw error
      }
      return put
    }
  }

  /// The number of the last put that has begun.
  package var lastPut: UInt64 { state.withLock { $0.nextPut } }

  /// Whether any put up to that number is unfinished.
  package func hasPuts(upTo last: UInt64) -> Bool { state.withLock { $0.puts.keys.contains { $0 <= last } } }

  /// Ends the protection of `beginPut`.
  package func endPut(_ put: UInt64) {
    state.withLock { state in
      state.puts[put] = nil
      guard state.file != nil else { return }
      // If the write fails, the packs stay protected until this process ends.
      do throws(BlobStorageError) { try writeFirstSlot(&state) } catch {}
    }
  }

  /// Removes the file and ends all protection.
  package func close() {
    state.withLock { state in
      state.isClosed = true
      guard let file = state.file else { return }
      state.file = nil
      // If the file stays, the next gc removes it: its lock is free.
      files.discard(folder.entry(name))
      file.close()
    }
  }

  private var name: String { Hex.text(writer) + ".lease" }

  private func opened(_ state: inout State) throws(BlobStorageError) -> any File {
    if let file = state.file { return file }
    // An operation that began before the close would leave a file that nothing removes.
    if state.isClosed { throw BlobStorageError(.closed, "The store was closed.") }
    let slot = Self.firstSlot(state)
    let file = try OwnedFiles(folder: folder, files: files).create(name) { (file) throws(BlobStorageError) in
      try file.put(slot, at: 0)
    }
    state.file = file
    return file
  }

  private func writeFirstSlot(_ state: inout State) throws(BlobStorageError) {
    let file = try opened(&state)
    try file.put(Self.firstSlot(state), at: 0)
  }

  private static func firstSlot(_ state: State) -> [UInt8] {
    var slot = ByteWriter(capacity: LeaseSlot.byteCount)
    LeaseSlot.firstPack(state.puts.values.min() ?? .max).encode(into: &slot)
    return slot.bytes
  }

  private static func reserve(_ count: Int, _ state: inout State) -> Range<Int> {
    state.heldCount += count
    if let range = state.free.ranges.first(where: { $0.count >= count }) {
      let slots = range.lowerBound..<range.lowerBound + count
      state.free.remove(contentsOf: slots)
      return slots
    }
    defer { state.slotCount += count }
    return state.slotCount..<state.slotCount + count
  }
}

/// The leases of all living writers, as gc reads them.
package struct Leases: Sendable {
  /// For each writer, the first of its packs that may hold chunks of unfinished puts.
  package var firstPacks: [UInt64: UInt32] = [:]

  /// A long put has a slot for each of its chunks, so files are read part by part.
  private static let slotCountOfPart = 26_000

  package init() {}

  /// Reads every lease, and removes those of dead writers.
  ///
  /// - Parameter visit: called with the chunks and blobs that each part of a file holds.
  /// - Throws: the error that prevents reading a lease: gc must then remove nothing.
  package static func read(
    folder: FilePath, files: any FileSystem, algorithm: BlobDigest.Algorithm,
    _ visit: ([LeaseSlot]) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Leases {
    var leases = Leases()
    let owned = OwnedFiles(folder: folder, files: files)
    for name in try files.list(folder) {
      guard let writer = Hex.integer(UInt64.self, name.prefix(16)) else { continue }
      try owned.visit(name) { (file, isDead) throws(BlobStorageError) in
        if isDead {
          // A living writer's `.new` looks dead before it is locked. It holds nothing yet, and the writer makes
          // another.
          files.discard(folder.entry(name))
        } else if name.hasSuffix(".lease") {
          var first = 0
          while true {
            let part = try leases.read(file, from: first, writer: writer, algorithm: algorithm)
            try visit(part.held)
            first += slotCountOfPart
            if part.isLast { break }
          }
        }
      }
    }
    return leases
  }

  /// Reads the slots of a part of a file, from number `first` on.
  private mutating func read(
    _ file: any File, from first: Int, writer: UInt64, algorithm: BlobDigest.Algorithm
  ) throws(BlobStorageError) -> (held: [LeaseSlot], isLast: Bool) {
    // A slot can be torn if its writer writes it during the read. A slot that stays torn is damage.
    for _ in 0..<4 {
      let start = Int64(first * LeaseSlot.byteCount)
      let byteCountMax = Int64(Self.slotCountOfPart * LeaseSlot.byteCount)
      let byteCount = try file.status().byteCount - start
      // Fewer bytes are there if the writer has released its last hold meanwhile.
      let bytes = try file.bytesThere(at: start, Int(max(0, min(byteCount, byteCountMax))))
      var held: [LeaseSlot] = []
      var torn = 0
      bytes.withUnsafeBytes { raw in
        for slot in 0..<raw.count / LeaseSlot.byteCount {
          let start = slot * LeaseSlot.byteCount
          let slotBytes = UnsafeRawBufferPointer(rebasing: raw[start..<start + LeaseSlot.byteCount])
          if slotBytes.allSatisfy({ $0 == 0 }) { continue }
          // Nil for a checksum mismatch or an unknown kind.
          switch LeaseSlot(slotBytes, algorithm: algorithm) {
          case .firstPack(let first): firstPacks[writer] = min(first, firstPacks[writer] ?? .max)
          case let lease?: held.append(lease)
          case nil: torn += 1
          }
        }
      }
      if torn == 0 { return (held, byteCount <= byteCountMax) }
    }
    throw BlobStorageError(
      .corrupted,
      "The lease \(file.path.lastComponent?.string ?? "") cannot be read: gc removes nothing while it exists.",
      path: file.path.string)
  }
}
