import Foundation
import Synchronization
import SystemPackage

/// Shared memory in which the processes of one machine publish how far each open pack is written: a small mapped file.
///
/// The table is valid for one boot and one mount. Each open pack has a slot. A lock on a byte of the file protects the
/// slot and dies with its process. So a free lock proves that the writer is dead.
///
/// The numbers are hints: the records of a pack and their checksums confirm a published length. Each length also
/// carries its own checksum. Readers reject a length that does not match it, and the writer restores the length.
package final class LiveTable: Sendable {
  package static let slotCount = 128
  package static let slotWordCount = 8
  package static let headerWordCount = 64
  package static let byteCount = (headerWordCount + slotCount * slotWordCount) * 8
  /// Changes with the layout.
  private static let mark: UInt64 = 0x324c_4956_4542_4c42
  package static let firstSlotByte: Int64 = 1 << 21

  /// The words of the header.
  package enum Word: Int, Sendable {
    case mark, inode, boot, mount, epoch, publishCount, catalogCount
    /// 1 while a commit of all stripes waits for them.
    case gate
    /// The inode of the catalog's folder. Hard links of a copied folder may share the file, but not the folder.
    case folder
  }

  /// The words of a slot. `turn` is odd while the slot changes hands.
  package enum SlotWord: Int, Sendable {
    case turn, writer, sequence, published, promised, epoch, process
  }

  /// Only for locks. The memory is mapped from another open file, because a mapping would keep the locks beyond
  /// ``close()``.
  let file: any File
  let memory: SharedMemory
  private let files: any FileSystem
  /// The slots whose locks this process holds, with what it stored there. Every use of slots holds this mutex. A file
  /// lock does not exclude other threads of the process, and a slot without the lock may belong to another process.
  private let own = IOLock<[Int: OwnSlot]>([:])

  private struct OwnSlot {
    var entry: Entry
    /// The epochs in which the commits under way began.
    var epochs: [UInt64] = []

    mutating func update(_ body: (inout Self) -> Void) { body(&self) }
  }

  private init(_ file: any File, _ memory: SharedMemory, _ files: any FileSystem) {
    self.file = file
    self.memory = memory
    self.files = files
  }

  /// Opens the table in a folder.
  ///
  /// Another mount in the same boot may belong to another container that shares the memory. A process that is alone
  /// rejects a table of another mount, because the disk may have been removed meanwhile.
  ///
  /// - Parameter isAlone: whether no other process uses the store; then a missing or invalid table is created again.
  /// - Returns: nil if there is no valid table.
  package static func open(
    in folder: FilePath, _ files: any FileSystem, _ identity: MediumIdentity, isAlone: Bool
  ) throws(BlobStorageError) -> LiveTable? {
    let path = folder.entry("live")
    let (boot, mount) = (hash(Array(identity.boot.utf8)), hash(Array(identity.mount.utf8)))
    if let table = try opened(path, files) {
      let isOfMount = table.memory[Word.mount.rawValue] == mount
      let isShared = try table.file.status().linkCount > 1
      if table.memory[Word.boot.rawValue] == boot, !isAlone || isOfMount && !isShared { return table }
      // A reader may still have this table mapped.
      if isAlone { table.endNewCatalog() }
      table.close()
    }
    guard isAlone else { return nil }
    // If no table can be created, none may remain: other processes take an invalid table for damage.
    do { try files.remove(path) } catch {}
    let new = folder.entry("live.new")
    // What a crash has left there may have a second name in a copy of the folder.
    files.discard(new)
    do throws(BlobStorageError) {
      let file = try files.open(new, .openOrCreate)
      defer { file.close() }
      try file.truncate(to: 0)
      // Allocates all blocks: a store into a hole kills the process when the disk is full.
      try file.allocate(byteCount: Int64(byteCount))
      let memory = try file.mapped(byteCount: byteCount)
      // Without byte-range locks there is no table.
      guard try file.lock(bytes: byte(0), wait: false) else { return nil }
      try file.unlock(bytes: byte(0))
      memory[Word.inode.rawValue] = try file.status().inode
      memory[Word.folder.rawValue] = try files.status(of: folder)?.inode ?? 0
      memory[Word.boot.rawValue] = boot
      memory[Word.mount.rawValue] = mount
      memory[Word.epoch.rawValue] = 1
      memory[Word.mark.rawValue] = mark
      try files.rename(new, to: path)
    } catch {
      do { try files.remove(new) } catch {}
      throw error
    }
    return try opened(path, files)
  }

  /// Whether the folder has a file with the table's name.
  static func isThere(in folder: FilePath, _ files: any FileSystem) throws(BlobStorageError) -> Bool {
    try files.status(of: folder.entry("live"))?.kind == .regular
  }

  private static func opened(
    _ path: FilePath, _ files: any FileSystem
  ) throws(BlobStorageError) -> LiveTable? {
    guard let status = try files.status(of: path), status.kind == .regular,
      status.byteCount == Int64(byteCount), status.allocatedByteCount >= Int64(byteCount)
    else { return nil }
    let file = try files.open(path, .readWrite)
    let mapped = try files.open(path, .readWrite)
    defer { mapped.close() }
    let memory = try mapped.mapped(byteCount: byteCount)
    // A copy of the store's folder has another inode. Another process may also have created the table again.
    let inode = memory[Word.inode.rawValue]
    guard memory[Word.mark.rawValue] == mark, try mapped.status().inode == inode,
      try file.status().inode == inode,
      try files.status(of: path.folder)?.inode == memory[Word.folder.rawValue]
    else {
      file.close()
      return nil
    }
    return LiveTable(file, memory, files)
  }

  /// Releases all slots and stripes. Stores nothing in a slot afterwards.
  package func close() {
    own.withLock { own in
      own = [:]
      file.close()
    }
  }

  /// Whether this process publishes in the table.
  var hasOwnSlots: Bool { own.withLock { !$0.isEmpty } }

  /// Whether the file lost its name, so that other processes use another table.
  func isRemoved() throws(BlobStorageError) -> Bool { try !files.names(file.path, file) }

  // MARK: Counts

  /// Grows whenever a length is published.
  package var publishCount: UInt64 { memory[Word.publishCount.rawValue] }

  /// Makes all processes read the slots again. A process that finds one of its own changed restores it.
  func askAgain() { memory.add(1, to: Word.publishCount.rawValue) }

  /// Changes whenever a process replaces the file that names the catalog in use.
  ///
  /// It is odd during the replacement. If the process dies meanwhile, it stays odd, and only the file itself tells
  /// whether it was replaced.
  var catalogCount: UInt64 { memory[Word.catalogCount.rawValue] }

  /// Announces a replacement of the file. The catalog's `lock` is held exclusively.
  func beginNewCatalog() { memory.storeFirst(catalogCount | 1, at: Word.catalogCount.rawValue) }

  /// Announces the end of a replacement, which may have failed. The catalog's `lock` is held exclusively.
  func endNewCatalog() { memory.storeFirst((catalogCount | 1) &+ 1, at: Word.catalogCount.rawValue) }

  var epoch: UInt64 { memory[Word.epoch.rawValue] }

  /// Begins the next epoch, and returns its number.
  package func beginEpoch() -> UInt64 {
    let epoch = memory.add(1, to: Word.epoch.rawValue)
    // 0 means that no commit is under way.
    return epoch == 0 ? memory.add(1, to: Word.epoch.rawValue) : epoch
  }

  // MARK: Slots

  /// The contents of a slot.
  package struct Entry: Sendable, Hashable {
    package var slot: Int
    package var pack: PackName
    /// Records up to here are visible.
    package var published: Int64
    /// Whether the checksum of ``published`` matches. If not, only the writer knows the length.
    package var isValid = true
    /// Records up to here belong to durable changes.
    package var promised: Int64
    /// The epoch in which the oldest commit under way began; 0 without one.
    package var epoch: UInt64
    /// The writer's process ID, for messages only; 0 if unknown.
    package var process: UInt64 = 0

    /// The writer, for a message.
    var name: String { process == 0 ? "pack \(pack)" : "process \(process), pack \(pack)" }
  }

  /// A length as stored: 32 bits, and above them a checksum of the length and of its pack and purpose.
  package static func word(_ byteCount: Int64, of pack: PackName, isPromised: Bool) -> UInt64 {
    let length = UInt64(UInt32(truncatingIfNeeded: byteCount))
    let words = (pack.writer, UInt64(pack.sequence), length | (isPromised ? 1 << 63 : 0))
    return length | UInt64(withUnsafeBytes(of: words) { CRC32C.checksum($0.bytes) }) << 32
  }

  /// Decodes a stored length; nil if it is invalid.
  private static func length(_ word: UInt64, of pack: PackName, isPromised: Bool) -> Int64? {
    let length = Int64(UInt32(truncatingIfNeeded: word))
    guard word == Self.word(length, of: pack, isPromised: isPromised), length <= BlobLimits.packByteCountMax
    else {
      return nil
    }
    return length
  }

  private func word(_ slot: Int, _ word: SlotWord) -> Int {
    Self.headerWordCount + slot * Self.slotWordCount + word.rawValue
  }

  /// The slots in use. The process knows the contents of its own slots and restores them if they differ.
  package func entries() -> [Entry] {
    own.withLock { own in
      (0..<Self.slotCount).compactMap { slot in
        let found = entry(slot)
        guard let known = own[slot]?.entry else { return found }
        if found != known {
          restore(known)
          askAgain()
        }
        return known
      }
    }
  }

  private func store(_ entry: Entry) {
    let (slot, pack) = (entry.slot, entry.pack)
    memory[word(slot, .writer)] = pack.writer
    memory[word(slot, .published)] = Self.word(entry.published, of: pack, isPromised: false)
    memory[word(slot, .promised)] = Self.word(entry.promised, of: pack, isPromised: true)
    memory[word(slot, .epoch)] = entry.epoch
    memory[word(slot, .process)] = entry.process
    memory[word(slot, .sequence)] = UInt64(pack.sequence) + 1
  }

  /// Restores a slot of this process. Its turn stays even, because the slot does not change hands and readers must not
  /// miss it. If they read a mixture of words, the checksum of the length shows it.
  private func restore(_ entry: Entry) {
    store(entry)
    let turn = memory[word(entry.slot, .turn)]
    if turn & 1 == 1 { memory[word(entry.slot, .turn)] = turn &+ 1 }
  }

  private func entry(_ slot: Int) -> Entry? {
    while true {
      let turn = memory[word(slot, .turn)]
      let sequence = memory[word(slot, .sequence)]
      if sequence == 0, turn & 1 == 0 { return nil }
      let pack = PackName(
        writer: memory[word(slot, .writer)], sequence: UInt32(truncatingIfNeeded: sequence &- 1))
      let published = Self.length(memory[word(slot, .published)], of: pack, isPromised: false)
      let promised = Self.length(memory[word(slot, .promised)], of: pack, isPromised: true)
      let entry = Entry(
        slot: slot, pack: pack, published: published ?? 0, isValid: published != nil, promised: promised ?? 0,
        epoch: memory[word(slot, .epoch)], process: memory[word(slot, .process)])
      if turn & 1 == 0, memory[word(slot, .turn)] == turn { return entry }
      // The slot changes hands. A process that died meanwhile has published nothing in it.
      if turn & 1 == 1 { return nil }
    }
  }

  /// Claims a slot for a pack; nil if all are taken.
  package func claim(_ pack: PackName) throws(BlobStorageError) -> Slot? {
    try own.withLock { (own) throws(BlobStorageError) in
      for slot in 0..<Self.slotCount where own[slot] == nil && isFree(slot) {
        guard try file.lock(bytes: Self.byte(slot), wait: false) else { continue }
        guard isFree(slot) else {
          try file.unlock(bytes: Self.byte(slot))
          continue
        }
        let entry = Entry(
          slot: slot, pack: pack, published: Int64(PackHeader.byteCount), promised: 0, epoch: 0,
          process: UInt64(ProcessInfo.processInfo.processIdentifier))
        own[slot] = OwnSlot(entry: entry)
        change(slot) { store(entry) }
        return Slot(table: self, number: slot, pack: pack)
      }
      return nil
    }
  }

  /// Whether the slot can be claimed. Also true if the writer died while it claimed or released the slot.
  private func isFree(_ slot: Int) -> Bool {
    memory[word(slot, .sequence)] == 0 || memory[word(slot, .turn)] & 1 == 1
  }

  private func change(_ slot: Int, _ body: () -> Void) {
    // A process that died in the middle left it odd.
    let turn = memory[word(slot, .turn)] | 1
    memory.storeFirst(turn, at: word(slot, .turn))
    body()
    memory[word(slot, .turn)] = turn &+ 1
  }

  private static func byte(_ slot: Int) -> Range<Int64> {
    firstSlotByte + Int64(slot)..<firstSlotByte + Int64(slot) + 1
  }

  /// Whether the process that wrote to the slot has ended.
  package func isDead(_ entry: Entry) throws(BlobStorageError) -> Bool {
    try own.withLock { (own) throws(BlobStorageError) in
      guard own[entry.slot] == nil, try file.lock(bytes: Self.byte(entry.slot), wait: false) else {
        return false
      }
      try file.unlock(bytes: Self.byte(entry.slot))
      return true
    }
  }

  /// Whether a writer has died inside a commit: its pack may hold a commit that is not published.
  func hasDeadCommit() throws(BlobStorageError) -> Bool {
    for entry in entries() where entry.epoch != 0 {
      if try isDead(entry) { return true }
    }
    return false
  }

  /// Frees the slots of dead writers for which `isSettled` says that the catalog has all their published records.
  package func reap(_ isSettled: (Entry) throws(BlobStorageError) -> Bool) throws(BlobStorageError) {
    for entry in entries() where try isSettled(entry) {
      try own.withLock { (own) throws(BlobStorageError) in
        guard own[entry.slot] == nil, try file.lock(bytes: Self.byte(entry.slot), wait: false) else {
          return
        }
        if self.entry(entry.slot)?.pack == entry.pack { free(entry.slot) }
        try file.unlock(bytes: Self.byte(entry.slot))
      }
    }
  }

  private func free(_ slot: Int) { change(slot) { memory[word(slot, .sequence)] = 0 } }

  /// The slot of a pack that this process writes.
  package final class Slot: Sendable {
    let table: LiveTable
    package let number: Int
    let pack: PackName
    /// False once the slot is released or abandoned: then it may belong to another process.
    private let isHeld = Atomic<Bool>(true)

    fileprivate init(table: LiveTable, number: Int, pack: PackName) {
      self.table = table
      self.number = number
      self.pack = pack
    }

    /// Without ``release()`` the slot stays as that of a dead writer, and its published records still count.
    deinit { giveUp() }

    private func giveUp(frees: Bool = false) {
      table.own.withLock { own in
        guard isHeld.exchange(false, ordering: .acquiringAndReleasing), own.removeValue(forKey: number) != nil
        else { return }
        // Together: between the two, another look at the slots would restore the slot.
        if frees { table.free(number) }
        // A lock that cannot be released ends with the file.
        do { try table.file.unlock(bytes: LiveTable.byte(number)) } catch {}
      }
    }

    /// Changes the slot; false if it was released or abandoned.
    private func update(_ body: (inout OwnSlot) -> Void) -> Bool {
      table.own.withLock { own in
        guard isHeld.load(ordering: .acquiring) else { return false }
        return own[number]?.update(body) != nil
      }
    }

    private func word(_ word: SlotWord) -> Int { table.word(number, word) }

    /// Publishes the records up to `byteCount` to all processes. The system must have their bytes.
    ///
    /// - Returns: false if the slot was released or the table closed; then nothing is published.
    @discardableResult
    package func publish(_ byteCount: Int64, isPromised: Bool) -> Bool {
      update { publish(byteCount, isPromised: isPromised, &$0.entry) }
    }

    /// Publishes a length whose records the catalog already has.
    func raise(to byteCount: Int64) {
      _ = update { if byteCount > $0.entry.published { publish(byteCount, isPromised: false, &$0.entry) } }
    }

    private func publish(_ byteCount: Int64, isPromised: Bool, _ entry: inout Entry) {
      if isPromised {
        entry.promised = byteCount
        table.memory[word(.promised)] = LiveTable.word(byteCount, of: pack, isPromised: true)
      }
      entry.published = byteCount
      table.memory[word(.published)] = LiveTable.word(byteCount, of: pack, isPromised: false)
      table.memory.add(1, to: Word.publishCount.rawValue)
    }

    /// Begins a commit in the current epoch. A view that is taken afterwards shows every pack that was condemned before
    /// the epoch.
    ///
    /// The slot holds the epoch of the oldest commit under way, so that gc waits for all of them.
    ///
    /// - Returns: the epoch, for ``leave(_:)``.
    @discardableResult
    package func enter() -> UInt64 {
      var epoch: UInt64 = 0
      _ = update { own in
        epoch = max(table.epoch, 1)
        own.epochs.append(epoch)
        storeOldest(&own)
      }
      return epoch
    }

    /// Ends a commit that entered in that epoch.
    package func leave(_ epoch: UInt64) {
      _ = update { own in
        guard let index = own.epochs.firstIndex(of: epoch) else { return }
        own.epochs.remove(at: index)
        storeOldest(&own)
      }
    }

    private func storeOldest(_ own: inout OwnSlot) {
      own.entry.epoch = own.epochs.min() ?? 0
      table.memory.storeFirst(own.entry.epoch, at: word(.epoch))
    }

    /// Frees the slot. The catalog must have everything that was published.
    package func release() { giveUp(frees: true) }
  }

  /// The error of a commit that cannot begin. The lock does not show which process holds it, but the slots show which
  /// processes are in a commit.
  func heldUp() throws(BlobStorageError) -> BlobStorageError {
    let ownSlots = own.withLock { Set($0.keys) }
    var others: [Entry] = []
    for entry in entries() where entry.epoch != 0 && !ownSlots.contains(entry.slot) {
      if try !isDead(entry) { others.append(entry) }
    }
    let names = others.isEmpty ? "" : " (\(others.map(\.name).joined(separator: "; ")))"
    return BlobStorageError(
      .busy, "A program has been inside a change for too long\(names): end it, or try again later.",
      pack: others.first?.pack.description)
  }

  /// FNV-1a.
  static func hash(_ bytes: [UInt8]) -> UInt64 {
    bytes.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
  }
}
