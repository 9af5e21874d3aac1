import BlobStorage
import Logging

/// Publishes what dead processes have left in the spool, in the order of each writer, and ends their registrations.
///
/// What cannot be published for good is set aside, and the catalog rebuilt without it. What cannot be published now
/// stays, for the next opening or the next synchronization. A writer that is not registered any more was fenced, or had
/// published everything.
struct SpoolAdoption {
  private let parts: StoreParts
  private let backend: RemoteBackend
  private let locks: WriterLocks
  private var isRebuildDue = false
  /// Writers that live, or of which something stays.
  private var unfinished: Set<UInt64> = []
  /// Writers of which something is never published: only a collector, which fences them, may end the registration.
  private var ended: Set<UInt64> = []
  /// Why something was not published that can be.
  private(set) var failure: BlobStorageError?

  /// - Parameter backend: the store's, which has listed what is published.
  init(_ parts: StoreParts, _ backend: RemoteBackend, _ locks: WriterLocks) {
    self.parts = parts
    self.backend = backend
    self.locks = locks
  }

  /// Sets aside what lies behind a pack without a footer, of each writer that a power cut may have ended: what the
  /// footer would be behind may be lost, and what comes later may need it. Runs before any process seals that pack.
  ///
  /// Where the machine went on, all is there that was written, and a footer is missing only because it came last.
  static func setAsideTorn(
    _ backend: RemoteBackend, _ locks: WriterLocks, _ codecs: CodecPool, _ logger: Logger
  ) throws(BlobStorageError) {
    let names = Dictionary(grouping: try backend.localPackNames().live, by: \.writer)
    for writer in names.keys.sorted() {
      guard let own = names[writer]?.sorted(), own.count > 1, try !locks.isOfThisBoot(writer) else {
        continue
      }
      for (index, name) in own.enumerated() {
        // That of a living writer is not to be had.
        guard let file = try backend.adoptPack(name) else { break }
        defer { file.close() }
        if try PackScanner(file: file, name: name, codecs: codecs).trailer() != nil { continue }
        // The last one first: one that was killed in between goes on here.
        for later in own[(index + 1)...].reversed() {
          let place = try backend.setAsidePack(later)
          logger.warning(
            "Pack \(later) was set aside: it may need what a power cut has torn off pack \(name).",
            metadata: ["place": "\(place)"])
        }
        break
      }
    }
  }

  mutating func run() throws(BlobStorageError) {
    let names = Dictionary(grouping: try backend.localPackNames().live, by: \.writer)
    for writer in names.keys.sorted() {
      try attempt(writer) { (adoption) throws(BlobStorageError) in
        try adoption.adopt(writer, (names[writer] ?? []).sorted())
        if !adoption.unfinished.contains(writer), !adoption.ended.contains(writer) {
          try adoption.leave(writer)
        }
      }
    }
    if isRebuildDue { try parts.catalog.rebuild(because: nil) }
    let locks = locks
    try locks.forEachDead { (writer) throws(BlobStorageError) in
      // What it wrote since the names were listed is for the next opening.
      if unfinished.contains(writer) { return }
      if try backend.localPackNames().live.contains(where: { $0.writer == writer }) { return }
      try attempt(writer) { (adoption) throws(BlobStorageError) in
        if !adoption.ended.contains(writer) { try adoption.leave(writer) }
        locks.remove(writer)
      }
    }
  }

  /// Leaves a writer as it is if something fails: a full object store must not prevent reading.
  private mutating func attempt(
    _ writer: UInt64, _ body: (inout Self) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    do throws(BlobStorageError) { try body(&self) } catch {
      if error.code == .cancelled { throw error }
      unfinished.insert(writer)
      failure = failure ?? error
      parts.setting.logger.warning(
        "What an ended process has left cannot be published now.", metadata: ["reason": "\(error.message)"])
    }
  }

  private func leave(_ writer: UInt64) throws(BlobStorageError) {
    try Membership(backend.objects, storeID: backend.storeID, writer: writer, machine: "").leave()
  }

  private mutating func adopt(_ writer: UInt64, _ names: [PackName]) throws(BlobStorageError) {
    var isRegistered: Bool?
    for name in names {
      // A living writer publishes its own packs.
      guard let file = try backend.adoptPack(name) else {
        unfinished.insert(writer)
        return
      }
      defer { file.close() }
      let row = try parts.catalog.read { (transaction) throws(BlobStorageError) -> PackRow? in
        try transaction.pack(name)?.row
      }
      if let row, row.durableByteCount > 0 {
        try backend.settle(name)
        continue
      }
      if let byteCount = backend.publishedByteCount(name), byteCount == (try file.status().byteCount) {
        // What a power cut has torn here is whole there: the catalog is made of that before anything else.
        if row?.isSealed != true || row?.isDamaged != false {
          backend.distrustLocal(name)
          try parts.catalog.rebuild(because: nil)
        }
        try finish(name, byteCount: byteCount)
        backend.forgetRecords(name)
        continue
      }
      if backend.said.removed.contains(name) {
        // Published, and collected since.
        try setAside(name)
        continue
      }
      if !ended.contains(writer) {
        // Without room for its footer it waits for the next opening.
        guard let row, row.isSealed else {
          unfinished.insert(writer)
          return
        }
        if isRegistered == nil {
          let found = try Membership.registration(of: writer, backend.objects, storeID: backend.storeID)
          isRegistered = found != nil
        }
        if isRegistered == true, follows(name), !row.isDamaged, try isWhole(name, file),
          try publish(name, file)
        {
          continue
        }
        ended.insert(writer)
      }
      try setAside(name)
    }
  }

  /// Whether all packs before it were published, and none of them was a fence: what lies behind a gap or a fence is no
  /// part of the store. A pack can be lost in a power cut, or be set aside by an opening that was killed.
  private func follows(_ name: PackName) -> Bool {
    if let fence = backend.lastListing?.fences[name.writer], fence <= name.sequence { return false }
    guard name.sequence > 1 else { return true }
    let before = PackName(writer: name.writer, sequence: name.sequence - 1)
    return backend.publishedByteCount(before) != nil || backend.said.removed.contains(before)
  }

  private mutating func setAside(_ name: PackName) throws(BlobStorageError) {
    let place = try backend.setAsidePack(name)
    parts.setting.logger.warning(
      "Pack \(name) cannot be published and was set aside.", metadata: ["place": "\(place)"])
    isRebuildDue = true
  }

  /// Whether a sealed pack is all there: it was not forced to the medium, and a power cut leaves holes.
  private func isWhole(_ name: PackName, _ file: any File) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      return try PackScanner(file: file, name: name, codecs: parts.setting.codecs).isWhole()
    } catch {
      guard error.code == .corrupted else { throw error }
      return false
    }
  }

  /// False when it never can be.
  private func publish(_ name: PackName, _ file: any File) throws(BlobStorageError) -> Bool {
    let byteCount = try file.status().byteCount
    guard try backend.publish(name, file, byteCount: byteCount) == .published else { return false }
    try finish(name, byteCount: byteCount)
    return true
  }

  private func finish(_ name: PackName, byteCount: Int64) throws(BlobStorageError) {
    try parts.catalog.write { (transaction) throws(BlobStorageError) in
      // Another process may have made the catalog anew from the torn file meanwhile. Not noted as published, the pack is
      // taken in when the catalog is caught up.
      guard let row = try transaction.pack(name)?.row, row.isSealed, !row.isDamaged else { return }
      try CatalogBuilder.markPublished(name, byteCount: byteCount, in: transaction)
    }
    try backend.settle(name)
  }
}
