import BlobStorage
import Logging

/// Publishes the packs that dead processes left in the spool, in each writer's order, and ends their registrations.
///
/// It sets aside packs that can never be published, and rebuilds the catalog without them. Packs that cannot be
/// published now stay for the next attempt. A writer without a registration was fenced, or had published everything.
struct SpoolAdoption {
  private let parts: StoreParts
  private let backend: RemoteBackend
  private let locks: WriterLocks
  private var isRebuildDue = false
  /// Writers that live, or whose packs stay in the spool.
  private var unfinished: Set<UInt64> = []
  /// Writers with packs that can never be published. Only a collector, which fences them, ends their registration.
  private var ended: Set<UInt64> = []
  /// Why a publishable pack was not published.
  private(set) var failure: BlobStorageError?
  /// Whether packs of dead writers stay in the spool because another process has locked them.
  private(set) var hasLeftPacks = false

  init(_ parts: StoreParts, _ backend: RemoteBackend, _ locks: WriterLocks) {
    self.parts = parts
    self.backend = backend
    self.locks = locks
  }

  /// Sets aside the packs after a pack without a footer, for each writer that a power cut may have ended.
  ///
  /// The power cut may have torn off records of that pack, and later packs may need them. It must run before any
  /// process seals that pack. If the machine kept running, no record is lost: only the footer is missing.
  static func setAsideTorn(
    _ backend: RemoteBackend, _ locks: WriterLocks, _ codecs: CodecPool, _ logger: Logger
  ) throws(BlobStorageError) {
    let names = Dictionary(grouping: try backend.localPackNames().live, by: \.writer)
    for writer in names.keys.sorted() {
      guard let own = names[writer]?.sorted(), own.count > 1, try !locks.isOfThisBoot(writer) else {
        continue
      }
      for (index, name) in own.enumerated() {
        // Adopting fails if the writer lives.
        guard let file = try backend.adoptPack(name) else { break }
        defer { file.close() }
        if try PackScanner(file: file, name: name, codecs: codecs).trailer() != nil { continue }
        // Begin with the last: if the process is killed, the next run continues here.
        for later in own[(index + 1)...].reversed() {
          let place: String
          do throws(BlobStorageError) { place = try backend.setAsidePack(later) } catch {
            // Another process that opens the folder has set it aside since the listing.
            guard error.isMissingName else { throw error }
            continue
          }
          logger.warning(
            "Pack \(later) was set aside: it may need records that a power cut tore off pack \(name).",
            metadata: ["place": "\(place)"])
        }
        break
      }
    }
  }

  mutating func run() throws(BlobStorageError) {
    let names = Dictionary(grouping: try backend.spooledPackNames(), by: \.writer)
    for writer in names.keys.sorted() {
      try attempt(writer) { (adoption) throws(BlobStorageError) in
        // A living writer's published pack may lie unlocked in the spool.
        let isDead = try adoption.locks.ifDead(writer) { () throws(BlobStorageError) in
          try adoption.adopt(writer, (names[writer] ?? []).sorted())
          if !adoption.unfinished.contains(writer), !adoption.ended.contains(writer) {
            try adoption.leave(writer)
          }
        }
        if !isDead { adoption.unfinished.insert(writer) }
      }
    }
    if isRebuildDue { try parts.catalog.rebuild(because: nil) }
    let locks = locks
    try locks.forEachDead { (writer) throws(BlobStorageError) in
      // Packs written since the listing wait for the next opening.
      if unfinished.contains(writer) { return }
      if try backend.spooledPackNames().contains(where: { $0.writer == writer }) { return }
      try attempt(writer) { (adoption) throws(BlobStorageError) in
        if !adoption.ended.contains(writer) { try adoption.leave(writer) }
        locks.remove(writer)
      }
    }
  }

  /// Skips the writer on an error: a full object store must not prevent reading.
  private mutating func attempt(
    _ writer: UInt64, _ body: (inout Self) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    do throws(BlobStorageError) { try body(&self) } catch {
      if error.code == .cancelled { throw error }
      unfinished.insert(writer)
      failure = failure ?? error
      parts.setting.logger.warning(
        "Packs of a dead process cannot be published now.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Ends the registration of a dead writer, after an end mark behind the last pack that it is known to have published.
  private func leave(_ writer: UInt64) throws(BlobStorageError) {
    var last =
      try parts.catalog.packRows().lazy.map(\.row)
      .filter { $0.name.writer == writer && $0.durableByteCount > 0 }.map(\.name.sequence).max() ?? 0
    let listing = try backend.listing(of: writer)
    last = max(last, listing.packs.keys.lazy.map(\.sequence).max() ?? 0)
    if let fence = listing.fences[writer], fence > last { last = 0 }
    if backend.collections.removed.contains(PackName(writer: writer, sequence: last)) { last = 0 }
    if last > 0 {
      // The writer may have published more packs than this machine remembers.
      _ = try Fencing.fence(
        writer, published: last, removed: backend.collections.removed, by: nil, backend.objects,
        storeID: backend.storeID)
    }
    try backend.announceEnd(of: writer)
    try Membership(
      objects: backend.objects, storeID: backend.storeID, writer: writer, process: WriterProcess(machine: "")
    ).leave(publishedSequence: 0)
  }

  private mutating func adopt(_ writer: UInt64, _ names: [PackName]) throws(BlobStorageError) {
    let names = try settle(names)
    if names.isEmpty { return }
    let registration = try Membership.registration(of: writer, backend.objects, storeID: backend.storeID)
    let isRegistered = registration != nil
    // After the writer's lock was taken: it knows no more of the log than this.
    let listing = try backend.listing(of: writer)
    for name in names {
      // A living writer publishes its own packs.
      guard let file = try backend.adoptPack(name) else {
        unfinished.insert(writer)
        hasLeftPacks = true
        return
      }
      defer { file.close() }
      let row = try row(of: name)
      if let byteCount = listing.packs[name], byteCount == (try file.status().byteCount) {
        // A torn local file has a whole copy in the object store: rebuild the catalog from that first.
        if row?.isSealed != true || row?.isDamaged != false {
          backend.distrustLocal(name)
          try parts.catalog.rebuild(because: nil)
        }
        // Otherwise the process that ended the registration has named the pack.
        if isRegistered { try backend.announce(name) }
        try finish(name, byteCount: byteCount)
        backend.forgetRecords(name)
        continue
      }
      if backend.collections.removed.contains(name) {
        // The pack was published, and a collector has removed it since.
        try setAside(name)
        continue
      }
      if !ended.contains(writer) {
        // Without room for its footer, or where the medium cannot read it, the pack waits for the next opening. If its
        // writer is not registered any more, it can never be published.
        guard let row, row.isSealed, !row.isUnreadable || !isRegistered else {
          unfinished.insert(writer)
          return
        }
        if isRegistered, try follows(name, listing), !row.isDamaged, try isWhole(name, file),
          try publish(name, file)
        {
          continue
        }
        ended.insert(writer)
      }
      try setAside(name)
    }
  }

  /// Takes packs out of the spool that the catalog knows as published, without a request. Returns the others.
  private func settle(_ names: [PackName]) throws(BlobStorageError) -> [PackName] {
    var others: [PackName] = []
    for name in names {
      guard let row = try row(of: name), row.durableByteCount > 0, let file = try backend.adoptPack(name)
      else {
        others.append(name)
        continue
      }
      defer { file.close() }
      try backend.settle(name)
      // If the catalog knows the pack from an index, a power cut may have torn the local file.
      backend.forgetRecords(name)
    }
    return others
  }

  private func row(of name: PackName) throws(BlobStorageError) -> PackRow? {
    try parts.catalog.read { (transaction) throws(BlobStorageError) -> PackRow? in
      try transaction.pack(name)?.row
    }
  }

  /// Whether all earlier packs of the writer were published, and none is a fence. Packs behind a gap or a fence are not
  /// part of the store.
  ///
  /// A power cut can lose a pack, and a killed opening can have set one aside. A pack that was published counts even if
  /// its object is lost.
  private func follows(_ name: PackName, _ listing: StoreListing) throws(BlobStorageError) -> Bool {
    if listing.isFenced(name) { return false }
    guard name.sequence > 1 else { return true }
    let before = PackName(writer: name.writer, sequence: name.sequence - 1)
    if listing.packs[before] != nil || backend.publishedByteCount(before) != nil
      || backend.collections.removed.contains(before)
    {
      return true
    }
    return try row(of: before)?.durableByteCount ?? 0 > 0
  }

  private mutating func setAside(_ name: PackName) throws(BlobStorageError) {
    let place = try backend.setAsidePack(name)
    parts.setting.logger.warning(
      "Pack \(name) cannot be published and was set aside.", metadata: ["place": "\(place)"])
    isRebuildDue = true
  }

  /// Whether a sealed pack is whole. The spool is not synced, so a power cut may have left holes.
  private func isWhole(_ name: PackName, _ file: any File) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      return try PackScanner(file: file, name: name, codecs: parts.setting.codecs).isWhole()
    } catch {
      guard error.code == .corrupted, !error.isUnreadable else { throw error }
      return false
    }
  }

  /// Publishes a pack. Returns false if it can never be published.
  private func publish(_ name: PackName, _ file: any File) throws(BlobStorageError) -> Bool {
    let byteCount = try file.status().byteCount
    guard try backend.publish(name, file, byteCount: byteCount) == .published else { return false }
    try finish(name, byteCount: byteCount)
    return true
  }

  private func finish(_ name: PackName, byteCount: Int64) throws(BlobStorageError) {
    try parts.catalog.write { (transaction) throws(BlobStorageError) in
      // Another process may have rebuilt the catalog from the torn file. Then the next extension applies the pack.
      guard let row = try transaction.pack(name)?.row, row.isSealed, !row.isDamaged else { return }
      try CatalogBuilder.markPublished(name, byteCount: byteCount, in: transaction)
    }
    try backend.settle(name)
  }
}

extension PackScanner {
  /// Whether the pack is sealed and all of it matches its checksums, payloads included.
  ///
  /// - Complexity: reads the whole pack.
  package func isWhole() throws(BlobStorageError) -> Bool {
    let listed = try scan { _ in }
    let found = try scan(verifiesPayloads: true) { _ in }
    if let error = listed.unreadable ?? found.unreadable { throw error }
    guard listed.isSealed, found.isSealed, listed.gaps.isEmpty, found.gaps.isEmpty else { return false }
    return listed.recordCount == found.recordCount
  }
}
