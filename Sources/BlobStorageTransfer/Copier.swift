import BlobStorage
import BlobStorageCache
import BlobStorageTrees
import Foundation

/// Copies the keys of one store into another: chunks in their stored form, versions under their own IDs.
///
/// Commits a key's versions together, after everything that they need. An interrupted copy keeps what it committed, and
/// the next copy continues from there. It cannot copy whole packs: the checksums of records cover the pack's name, and
/// a pack names its store.
package final class Copier {
  /// A batch ends at this many versions or bytes.
  private static let versionCountOfBatch = 512
  private static let byteCountOfBatch: Int64 = 64 << 20
  private static let versionCountOfPage = 1_000

  /// A blob whose chunks are in the target.
  struct Blob {
    var layout: BlobLayout
    /// Whether the target already records the blob with these chunks.
    var isNamed: Bool
  }

  struct PlannedKey: Sendable {
    var key: CopiedKey
    var plan: CopyPlan
  }

  struct Batch {
    var keys: [PlannedKey] = []
    var versionCount = 0
    var byteCount: Int64 = 0
  }

  let source: Engine
  let target: Engine
  let options: CopyOptions
  private let progress: ProgressHandler?
  var report = CopyReport()
  /// Other processes' packs with versions that the target already has; synced at the end.
  private var unsynced: Set<PackName> = []
  var watermarks: [PackName: WriterSession.Watermark] = [:]
  private var total = (byteCount: Int64(0), keyCount: 0)
  private var doneByteCount: Int64 = 0
  /// Keys that the target shows as the source does, and their bytes.
  var settled = (keyCount: 0, byteCount: Int64(0))
  /// What a dry run has counted so far.
  var plan = ImportPlan()
  /// The IDs of the states and links that the source had when the copy began.
  private var stateIDs: Set<[UInt8]> = []
  private var lastProgress = -Double.infinity
  private var limiter: RateLimiter?
  /// The rules of the source's cache.
  private var reads: CacheReads?
  /// Keeps retentions out: they would not see what is about to be copied. Nil in a dry run, and when all is copied.
  var lock: StatesLock?

  package init(
    from source: Engine, to target: Engine, _ options: CopyOptions, _ progress: ProgressHandler? = nil
  ) {
    self.source = source
    self.target = target
    self.options = options
    self.progress = progress
  }

  package func run() throws(BlobStorageError) -> CopyReport {
    let start = Date()
    try checkStores()
    reads = try CacheReads(source)
    limiter = try RateLimiter(bytesPerSecond: options.maximumByteRate, time: target.environment.time)
    lock = options.isDryRun ? nil : try StatesLock.shared(target.folder)
    defer { lock = nil }
    if options.isMirror { try checkMirror() }
    // What is found in these is written again.
    let failedPacks = try target.failedPacks()
    // States first: one that is dropped meanwhile may become a link.
    for purpose in [InternalKey.Purpose.state, .link] {
      stateIDs.formUnion(try source.internalVersions(purpose.prefix).map { Self.stateID($0.key) })
    }
    if progress != nil { try count() }
    tell(force: true)
    do throws(BlobStorageError) { try copyKeys() } catch {
      // Reports only what the target holds: unfinished batches do not count.
      (report.keyCount, doneByteCount) = settled
      tell(force: true)
      throw error
    }
    tell(force: true)
    report.isDryRun = options.isDryRun
    if options.isDryRun {
      report.duration = .seconds(Date().timeIntervalSince(start))
      return report
    }
    tell("syncing", force: true)
    if let name = try target.writer.publisher.secure(unsynced, of: target.writer) {
      throw BlobStorageError(
        .poisoned,
        "Pack \(name) of the target cannot be made durable: close the target wherever it is open, and copy again.",
        pack: name.description)
    }
    for watermark in watermarks.values { try target.writer.synchronize(watermark) }
    // Versions already in the target may come from relaxed puts of this process.
    try target.synchronize()
    // Another process may have dropped there what the source has dropped.
    try target.writer.synchronizeOpenPacks(exceptFailed: failedPacks, isOfOthers: true)
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  private func copyKeys() throws(BlobStorageError) {
    var batch = Batch()
    func add(_ keys: [CopiedKey]) throws(BlobStorageError) {
      for planned in try plans(of: keys) {
        let (key, plan) = (planned.key, planned.plan)
        if key.isCounted {
          report.keyCount += 1
          report.versionCount += key.shown.count
          report.unchangedVersionCount += key.shown.count - plan.added.count - plan.refusedCount
          report.byteCount = report.byteCount.addingClamped(key.byteCount)
        }
        doneByteCount = doneByteCount.addingClamped(key.byteCount - plan.byteCount)
        tell()
        if plan.isEmpty {
          settle(key)
          continue
        }
        batch.keys.append(planned)
        batch.versionCount += plan.added.count + plan.dropped.count
        batch.byteCount = batch.byteCount.addingClamped(plan.byteCount)
        guard batch.versionCount >= Self.versionCountOfBatch || batch.byteCount >= Self.byteCountOfBatch
        else {
          continue
        }
        try copy(batch)
        batch = Batch()
      }
    }
    if !options.isDryRun {
      // First: versions need their attributes at once.
      try forEachPage(of: .attributes, add)
      if try !target.internalVersions(InternalKey.Purpose.state.prefix).isEmpty {
        // First: the copy drops these versions under the keys that they had, and states of the target may have them.
        try forEachPage(of: options.prefix, for: InternalKey.Purpose.replaced.prefix) {
          (keys) throws(BlobStorageError) in
          try add(try replacedSince(keys))
        }
      }
      try copy(batch)
      batch = Batch()
    }
    try forEachPage(add)
    try copy(batch)
    if options.prefix.isAll, !options.isDryRun {
      batch = Batch()
      // A state may have become a link since the links were read.
      try forEachPage(of: .link, add)
      try copy(batch)
    }
    if options.isMirror { try dropOthers() } else { try dropStates(lacking: false) }
  }

  /// The versions that the source keeps for states alone, and that the target still has under the keys that they had.
  private func replacedSince(_ keys: [CopiedKey]) throws(BlobStorageError) -> [CopiedKey] {
    try target.catalog.read { (transaction) throws(BlobStorageError) in
      var found: [CopiedKey] = []
      for key in keys {
        guard let name = try transaction.nameRow(Array(key.bytes.dropFirst(2))) else { continue }
        var replaced = CopiedKey(bytes: key.bytes, isPartial: true)
        for version in key.shown where try CopyPlan.landing(of: version.stamp, name, transaction).row != nil {
          replaced.shown.append(version)
        }
        if !replaced.shown.isEmpty { found.append(replaced) }
      }
      return found
    }
  }

  /// Counts a key that the target shows as the source does.
  func settle(_ key: CopiedKey) {
    guard key.isCounted else { return }
    settled.keyCount += 1
    settled.byteCount = settled.byteCount.addingClamped(key.byteCount)
  }

  private func checkStores() throws(BlobStorageError) {
    try source.checkOpen()
    try target.checkOpen()
    guard try !isSameStore() else {
      throw BlobStorageError(
        .invalidArgument, "\(source.information.path) cannot be copied to itself: name another store.",
        path: source.information.path)
    }
    guard source.header.digestAlgorithm == target.header.digestAlgorithm else {
      throw BlobStorageError(
        .invalidArgument,
        "\(source.information.path) names blobs by \(source.header.digestAlgorithm.name) and "
          + "\(target.information.path) by \(target.header.digestAlgorithm.name): "
          + "create the target with the source's digest."
      )
    }
  }

  private func isSameStore() throws(BlobStorageError) -> Bool {
    guard source.header.storeID == target.header.storeID else { return false }
    // By bytes: composed and decomposed letters name different folders.
    if source.information.path.utf8.elementsEqual(target.information.path.utf8) { return true }
    let files = source.folder.files
    guard let one = try files.status(of: source.folder.header),
      let other = try files.status(of: target.folder.header)
    else { return false }
    return one.inode == other.inode && one.device == other.device
  }

  // MARK: Planning

  /// Calls `body` with the source's keys, dropped ones included, a page at a time. Internal keys come last, so that a
  /// state arrives after what it names. A copy with a prefix has no states, but attributes that versions may need: here
  /// those that were put since the copy began.
  private func forEachPage(
    _ body: ([CopiedKey]) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    try forEachPage(of: options.prefix, body)
    let purposes: [InternalKey.Purpose] =
      options.prefix.isAll ? [.attributes, .replaced, .link, .state, .hold] : [.attributes]
    for purpose in purposes { try forEachPage(of: purpose, body) }
  }

  private func forEachPage(
    of purpose: InternalKey.Purpose, _ body: ([CopiedKey]) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let isOfStates = purpose == .link || purpose == .state
    try forEachPage(of: .all, for: purpose.prefix) { (keys) throws(BlobStorageError) in
      // A state that was recorded since may name versions that the copy has passed: the next copy brings it.
      try body(
        isOfStates ? keys.filter { $0.shown.isEmpty || stateIDs.contains(Self.stateID($0.bytes)) } : keys)
    }
  }

  /// What follows the purpose in the key of a state or link.
  private static func stateID(_ key: [UInt8]) -> [UInt8] { Array(key.dropFirst(2)) }

  private func forEachPage(
    of prefix: KeyPrefix, for purpose: [UInt8] = [],
    _ body: ([CopiedKey]) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var pages = KeyPages(
      source.catalog, prefix: prefix, for: purpose, includesHidden: true, countMax: Self.versionCountOfPage)
    while let page = try pages.next({ (bytes, name, transaction) throws(BlobStorageError) in
      var key = CopiedKey(bytes: bytes)
      key.shown = try transaction.versions(of: name)
      if let reads {
        // An expired value would come back where it has no lifetime.
        let text = String(decoding: bytes, as: UTF8.self)
        key.shown.removeAll { reads.isExpired(BlobVersion(key: text, stamp: $0.stamp, row: $0.row)) }
      }
      try transaction.forEachHidden(of: name) { key.hidden.append($0) }
      return (key, key.shown.count + key.hidden.count)
    }) {
      try body(page)
    }
  }

  /// Plans a page of keys. Where packs are published, looks for those that the plans count on, and if one is missing or
  /// cut, plans again without it.
  private func plans(of keys: [CopiedKey]) throws(BlobStorageError) -> [PlannedKey] {
    let (damaged, known) = (report.damaged, unsynced)
    let plans = try plansInView(of: keys)
    guard !target.backend.isDurableOnceSynced, unsynced != known,
      try target.writer.publisher.secure(unsynced.subtracting(known), of: target.writer) != nil
    else { return plans }
    (report.damaged, unsynced) = (damaged, known)
    return try plansInView(of: keys)
  }

  private func plansInView(of keys: [CopiedKey]) throws(BlobStorageError) -> [PlannedKey] {
    let damaged = report.damaged
    return try target.catalog.read { (transaction) throws(BlobStorageError) -> [PlannedKey] in
      // It runs again if it finds the catalog damaged.
      report.damaged = damaged
      var plans: [PlannedKey] = []
      for key in keys {
        let plan = try plan(of: key, transaction) { (place) throws(BlobStorageError) in
          try target.writer.canRefer(to: place, transaction)
        } refused: { (refused) in
          for addition in refused { addUncopied(Self.refusal(addition, key), key) }
        }
        plans.append(PlannedKey(key: key, plan: plan))
      }
      return plans
    }
  }

  /// - Parameter canRefer: whether the record at a place is as durable as what this process writes now.
  func plan(
    of key: CopiedKey, _ transaction: ReadTransaction, canRefer: (Place) throws(BlobStorageError) -> Bool,
    refused: ([CopyPlan.Addition]) -> Void = { _ in }
  ) throws(BlobStorageError) -> CopyPlan {
    var plan = try CopyPlan(key, in: transaction, isMirror: options.isMirror && !key.isPartial) {
      (row) throws(BlobStorageError) in
      if try canRefer(row.place) { return true }
      // Writes a record again if its process may never publish it. Syncs the pack of any other record at the end.
      guard try target.writer.stays(at: row.place, transaction) else { return false }
      guard let pack = try transaction.packRow(row.place.pack) else { return true }
      // A later sync does not report what a failed sync lost.
      if pack.isPoisoned { return false }
      unsynced.insert(pack.name)
      return true
    }
    let now = target.clock.now()
    refused(plan.refuse { Stamp.isFarAhead($0.time, wallClock: now) })
    return plan
  }

  private static func refusal(_ addition: CopyPlan.Addition, _ key: CopiedKey) -> UncopiedVersion {
    UncopiedVersion(
      key: InternalKey.shown(key.bytes), version: BlobVersion.ID(addition.stamp),
      digest: addition.row.digest,
      reason: "its time lies more than a day ahead of this machine's clock; "
        + "if the clock is right, put the bytes in the source again and delete this version there")
  }

  /// Counts the keys and bytes that the source shows.
  private func count() throws(BlobStorageError) {
    try forEachPage { (keys) throws(BlobStorageError) in
      for key in keys where key.isCounted {
        total.keyCount += 1
        total.byteCount = total.byteCount.addingClamped(key.byteCount)
      }
    }
  }

  // MARK: One batch

  private func copy(_ batch: Batch) throws(BlobStorageError) {
    guard !batch.keys.isEmpty else { return }
    if options.isDryRun { return try count(batch) }
    let lossCount = target.writer.lossCount
    let put = try target.leases.beginPut(from: target.writer.currentSequence)
    defer { target.leases.endPut(put) }
    // The lookup of chunks to share comes long before the commit that relies on them.
    try target.writer.join()
    let digests = Set(batch.keys.flatMap { $0.plan.added.map(\.row.digest) })
    let hold = try source.leases.holdWhereThereIsRoom(digests.map { .blob($0) })
    defer { source.leases.release(hold) }
    let transfer = ChunkTransfer(from: source, to: target, limiter)
    defer { transfer.release() }
    var blobs: [BlobDigest: Blob] = [:]
    var failures: [BlobDigest: BlobStorageError] = [:]
    for addition in batch.keys.flatMap(\.plan.added) {
      let digest = addition.row.digest
      if blobs[digest] == nil, failures[digest] == nil {
        do throws(BlobStorageError) { blobs[digest] = try prepare(digest, transfer) } catch {
          guard error.code == .corrupted else { throw error }
          failures[digest] = error
        }
      }
      doneByteCount = doneByteCount.addingClamped(addition.row.byteCount)
      tell()
    }
    try transfer.flush()
    if !transfer.unreadable.isEmpty {
      for (digest, blob) in blobs {
        guard let failure = try failure(of: blob, transfer.unreadable) else { continue }
        failures[digest] = failure
        blobs[digest] = nil
      }
    }
    if comparesInTarget { try compareInTarget(&blobs, &failures, transfer) }
    report.chunkCount += transfer.chunkCount
    report.newByteCount += transfer.newByteCount
    report.storedByteCount += transfer.storedByteCount
    try commit(batch.keys.map(\.key), &blobs, lossCount)
    if !failures.isEmpty { try report(failures, batch) }
  }

  /// Copies a blob's chunks to the target, unless the target has the whole blob, however it was cut there.
  private func prepare(_ digest: BlobDigest, _ transfer: ChunkTransfer) throws(BlobStorageError) -> Blob {
    if let layout = try layoutInTarget(digest, transfer) { return Blob(layout: layout, isNamed: true) }
    let layout = try layoutInSource(digest)
    // What this reads is in memory when it is copied.
    if !comparesInTarget { try compare(layout, in: source) }
    try transfer.need(layout.listDigests)
    try LiveWalk(source.blobs).forEachPart(of: layout) { (part) throws(BlobStorageError) in
      guard part.kind == .chunk else { return true }
      try transfer.need(CollectionOfOne(part.digest), areBlobs: layout.chunkCount == 1)
      tell(extra: part.start)
      return true
    }
    return Blob(layout: layout, isNamed: false)
  }

  func layoutInSource(_ digest: BlobDigest) throws(BlobStorageError) -> BlobLayout {
    if let layout = try source.blobs.layout(digest) { return layout }
    throw BlobStorageError(.corrupted, "Blob \(digest) is missing from the store.", digest: digest)
  }

  /// Whether the target knows the blob, even if parts of it are missing.
  func isInTarget(_ digest: BlobDigest) throws(BlobStorageError) -> Bool {
    try target.catalog.read { (transaction) throws(BlobStorageError) in
      if try transaction.chunkToShare(digest) != nil { return true }
      return try transaction.manifestToShare(digest) != nil
    }
  }

  private func layoutInTarget(
    _ digest: BlobDigest, _ transfer: ChunkTransfer
  ) throws(BlobStorageError) -> BlobLayout? {
    guard try isInTarget(digest) else { return nil }
    let walk = LiveWalk(target.blobs)
    var whole: BlobLayout?
    // A blob that the target cannot read is copied again.
    _ = try walk.outcome(of: digest) { (layout) throws(BlobStorageError) in
      guard try transfer.areThere(layout.listDigests) else { return }
      let isWhole = try walk.forEachGroup(of: layout) { (digests) throws(BlobStorageError) in
        try transfer.areThere(digests)
      }
      if isWhole { whole = layout }
    }
    return whole
  }

  /// The error that leaves a blob incomplete in the target; nil if it needs none of these chunks.
  private func failure(
    of blob: Blob, _ unreadable: [BlobDigest: BlobStorageError]
  ) throws(BlobStorageError) -> BlobStorageError? {
    if blob.isNamed { return nil }
    if let failure = blob.layout.listDigests.lazy.compactMap({ unreadable[$0] }).first { return failure }
    var failure: BlobStorageError?
    try LiveWalk(source.blobs).forEachPart(of: blob.layout) { part in
      failure = unreadable[part.digest]
      return failure == nil
    }
    return failure
  }

  // MARK: Reports and progress

  /// Reports versions that could not be copied, unless they were dropped meanwhile.
  func report(_ failures: [BlobDigest: BlobStorageError], _ batch: Batch) throws(BlobStorageError) {
    for planned in batch.keys {
      let key = planned.key
      let missing = planned.plan.added.filter { failures[$0.row.digest] != nil }
      guard !missing.isEmpty else { continue }
      for version in key.shown {
        guard let failure = failures[version.row.digest], missing.contains(where: { $0.row == version.row }),
          try isShown(version, key)
        else { continue }
        let uncopied = UncopiedVersion(
          key: InternalKey.shown(key.bytes), version: BlobVersion.ID(version.stamp),
          digest: version.row.digest, reason: failure.message)
        addUncopied(uncopied, key)
      }
    }
  }

  private func addUncopied(_ uncopied: UncopiedVersion, _ key: CopiedKey) {
    // The copy comes to some internal keys twice.
    if InternalKey.isInternal(key.bytes), report.damaged.contains(uncopied) { return }
    report.damaged.append(uncopied)
  }

  /// Whether the source still shows a version. Works for internal keys, too.
  private func isShown(_ version: CopiedKey.Version, _ key: CopiedKey) throws(BlobStorageError) -> Bool {
    try source.catalog.read { (transaction) throws(BlobStorageError) in
      guard let name = try transaction.nameRow(key.bytes) else { return false }
      return try transaction.versionRow(of: name, version.stamp) != nil
    }
  }

  private func tell(_ phase: String = "copying", extra: Int64 = 0, force: Bool = false) {
    guard let progress else { return }
    let now = target.environment.time.now()
    guard force || now - lastProgress > 0.1 else { return }
    lastProgress = now
    // What was put since it was counted is more.
    let done = doneByteCount.addingClamped(extra)
    progress(
      WorkProgress(
        phase: phase, doneByteCount: done, totalByteCount: max(done, total.byteCount),
        doneCount: report.keyCount, totalCount: max(report.keyCount, total.keyCount)))
  }
}

extension CopiedKey {
  /// Plain bytes of the versions that can be seen.
  fileprivate var byteCount: Int64 { shown.reduce(0) { $0.addingClamped($1.row.byteCount) } }
}

extension CopyPlan {
  fileprivate var byteCount: Int64 { added.reduce(0) { $0.addingClamped($1.row.byteCount) } }
}

/// Makes copied versions visible.
extension Copier {
  /// A commit ends at this many refs and drops.
  private static let refCountOfCommit = 4_096

  private struct Committed {
    var keyCount = 0
    var addedCount = 0
    var droppedCount = 0
    /// Changes to callers' keys, which reports count.
    var countedCount = 0
    var countedDroppedCount = 0
    var droppedKeyCount = 0
    var storedByteCount = 0
    var named: [BlobDigest] = []
    /// Keys whose plan was committed completely.
    var whole: [CopiedKey] = []
  }

  /// Makes those versions visible whose blobs are in the target, and drops others as planned. A key changes in one
  /// commit, unless it has more versions than the keys before it in the batch leave room for.
  func commit(
    _ keys: [CopiedKey], _ blobs: inout [BlobDigest: Blob], _ lossCount: Int
  ) throws(BlobStorageError) {
    var rest = keys[...]
    while !rest.isEmpty {
      let (done, watermark) = try target.writer.commit {
        [blobs] (commit) throws(BlobStorageError) -> Committed in
        try commit.checkNothingLost(since: lossCount)
        var done = Committed()
        for key in rest where done.addedCount + done.droppedCount < Self.refCountOfCommit {
          guard try write(key, blobs, &commit, &done) else { break }
          done.keyCount += 1
        }
        return done
      }
      if let watermark { watermarks[watermark.pack] = watermark }
      rest = rest.dropFirst(done.keyCount)
      for digest in done.named { blobs[digest]?.isNamed = true }
      for key in done.whole { settle(key) }
      report.newVersionCount += done.countedCount
      report.droppedVersionCount += done.countedDroppedCount
      report.droppedKeyCount += done.droppedKeyCount
      report.storedByteCount += Int64(done.storedByteCount)
    }
  }

  /// Returns false if the key has more versions than the commit has room for.
  private func write(
    _ key: CopiedKey, _ blobs: [BlobDigest: Blob], _ commit: inout Commit,
    _ done: inout Committed
  ) throws(BlobStorageError) -> Bool {
    let plan = try plan(of: key, commit.transaction) { (place) throws(BlobStorageError) in
      try commit.canRefer(to: place)
    }
    let ready = plan.added.filter { blobs[$0.row.digest] != nil }
    let room = Self.refCountOfCommit - done.addedCount
    for addition in ready.prefix(room) {
      let row = addition.row
      guard let blob = blobs[row.digest] else { continue }
      try check(blob.layout, commit)
      done.storedByteCount += try commit.appendManifest(of: blob.layout) { _ in blob.isNamed }
      if !blob.isNamed { done.named.append(row.digest) }
      done.storedByteCount += try commit.append(
        .ref(
          RefRecord(
            key: key.bytes, version: addition.stamp, replaced: .none, digest: row.digest,
            byteCount: row.byteCount, created: row.created, metadata: row.metadata)))
      done.addedCount += 1
      if !InternalKey.isInternal(key.bytes) { done.countedCount += 1 }
    }
    if ready.count > room { return false }
    // A key that was copied in part drops nothing.
    if ready.count < plan.added.count { return true }
    try commit.drop(plan.dropped, of: key.bytes)
    done.droppedCount += plan.dropped.count
    if !InternalKey.isInternal(key.bytes) {
      done.countedDroppedCount += plan.dropped.count
      if plan.dropsKey { done.droppedKeyCount += 1 }
    }
    done.whole.append(key)
    return true
  }

  /// Checks that the chunks that the leases protect still exist.
  private func check(_ layout: BlobLayout, _ commit: borrowing Commit) throws(BlobStorageError) {
    var digests = layout.listDigests
    if case .chunks(let chunks) = layout.listed { digests = chunks.map(\.digest) }
    if digests.isEmpty { digests = [layout.digest] }
    try commit.check(digests, remedy: "copy again")
  }
}
