import Foundation
import Logging
import Synchronization

// MARK: Changing

extension Engine {
  package func put(
    _ key: String, _ content: BlobContent, _ options: PutOptions, _ progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> PutResult {
    try measured { () throws(BlobStorageError) in
      try putUnmeasured(key, content, options, progress)
    } _: {
      .put([$0], $1)
    }
  }

  private func putUnmeasured(
    _ key: String, _ content: BlobContent, _ options: PutOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> PutResult {
    try checkOpen()
    let keyBytes = try Self.keyBytes(key)
    try MemoryPut.check(options)
    try check(options.condition, on: keyBytes)
    return try store(keyBytes, content, options, progress)
  }

  /// Puts content under any key: short content from memory, other content as a stream.
  func store(
    _ key: [UInt8], _ content: BlobContent, _ options: PutOptions, _ progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> PutResult {
    let done: (result: PutResult, watermark: WriterSession.Watermark?)
    if case .data(let data) = content, data.count <= MemoryPut.byteCountMax {
      done = try memoryPut.commit(key, data, options)
    } else {
      var put = try streamPut(options)
      if let progress {
        let total = content.knownByteCount()
        put.progress = { done in
          progress(
            WorkProgress(
              phase: "storing", doneByteCount: done, totalByteCount: total > 0 ? max(done, total) : 0))
        }
        // A stream may take long to deliver its first byte.
        put.progress(0)
      }
      done = try put.run(key, content)
    }
    try makeDurable(options.durability, done.watermark)
    return done.result
  }

  package func put(_ items: [PutItem], _ options: PutOptions) throws(BlobStorageError) -> [PutResult] {
    try measured { () throws(BlobStorageError) in
      try putUnmeasured(items, options)
    } _: {
      .put($0, $1)
    }
  }

  private func putUnmeasured(
    _ items: [PutItem], _ options: PutOptions
  ) throws(BlobStorageError) -> [PutResult] {
    try checkOpen()
    var prepared: [MemoryPut.Item] = []
    prepared.reserveCapacity(items.count)
    var seen: Set<[UInt8]> = []
    for item in items {
      let key = try Self.keyBytes(item.key)
      try check(options.condition, on: key)
      guard options.condition == .always || seen.insert(key).inserted else {
        throw BlobStorageError(
          .invalidArgument,
          "Two items are for the key “\(item.key)”: under a condition each key is put once.",
          key: item.key)
      }
      prepared.append(try memoryPut.prepare(key, item, options))
    }
    let joined = environment.joinsItems ? try memoryPut.joined(prepared, by: options.codec) : []
    let (results, watermark) = try memoryPut.commit(
      prepared, joined: joined, by: options.codec, promising: options.durability)
    try makeDurable(options.durability, watermark)
    return results
  }

  /// Creates a put of content of any length.
  package func streamPut(_ options: PutOptions) throws(BlobStorageError) -> StreamPut {
    try StreamPut(
      memoryPut, options,
      StreamPut.Batching(
        headByteCount: environment.streamHeadByteCount, batchByteCount: environment.streamBatchByteCount))
  }

  /// Throws the error that the commit would throw if the condition does not hold, before any content is read or stored.
  ///
  /// - Throws: `conditionFailed`; `invalidArgument` for a condition in a store in a bucket.
  package func check(_ condition: ChangeCondition, on key: [UInt8]) throws(BlobStorageError) {
    if condition == .always { return }
    try sharing.requireOwnPacks(
      "A store in a bucket does not support conditions: another machine may change the key at the same time."
    )
    try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.check(condition, on: key)
    }
  }

  /// Makes several changes in one commit: all of them or none.
  package func change(
    _ changes: [BlobChange], _ durability: Durability
  ) throws(BlobStorageError) -> [PutResult?] {
    try checkOpen()
    var items: [MemoryPut.Item] = []
    var deleted: [(key: [UInt8], condition: ChangeCondition)] = []
    var seen: Set<[UInt8]> = []
    for change in changes {
      let key = try Self.keyBytes(change.key)
      guard seen.insert(key).inserted else {
        throw BlobStorageError(
          .invalidArgument,
          "Two changes are for the key “\(change.key)”: a commit changes each key once.",
          key: change.key)
      }
      try check(change.condition, on: key)
      switch change {
      case .put(let item, let replacement, let condition):
        let options = PutOptions(durability: durability, replacement: replacement, condition: condition)
        items.append(try memoryPut.prepare(key, item, options))
      case .delete(_, let condition): deleted.append((key, condition))
      }
    }
    func commitOnce() throws(BlobStorageError) -> ([PutResult], WriterSession.Watermark?) {
      try memoryPut.commit(items, promising: durability, on: deleted.map(\.key)) {
        (commit) throws(BlobStorageError) in
        for (key, condition) in deleted {
          try commit.transaction.check(condition, on: key)
          try commit.checkHold(on: key)
          _ = try commit.dropVersions(of: key, keeping: 0)
        }
      }
    }
    // A caller that only drops wants to free space, so dropping must not need space.
    let (stored, watermark) =
      try items.isEmpty
      ? folder.withReserve { () throws(BlobStorageError) in try commitOnce() } : commitOnce()
    if items.isEmpty, !deleted.isEmpty {
      try makeDropDurable(durability, watermark, hasDropped: watermark != nil)
    } else {
      try makeDurable(durability, watermark)
      if !deleted.isEmpty { try makeFoundDurable(durability, hasDropped: watermark != nil) }
    }
    var results = stored.makeIterator()
    return changes.map { change in
      if case .put = change { results.next() } else { nil }
    }
  }

  package func makeDurable(
    _ durability: Durability, _ watermark: WriterSession.Watermark?
  ) throws(BlobStorageError) {
    guard durability == .durable, let watermark else { return }
    try measured { () throws(BlobStorageError) in
      try writer.synchronize(watermark)
    } _: {
      .synchronized(duration: $1)
    }
  }

  /// Makes durable what a drop has found gone already. Another change may have dropped or replaced it, and a power cut
  /// must not bring it back.
  ///
  /// - Parameter hasDropped: whether this process has made all durable that it has committed up to the drop. Then only
  ///   the packs of others remain, and in a bucket nothing.
  package func makeFoundDurable(_ durability: Durability, hasDropped: Bool) throws(BlobStorageError) {
    guard durability == .durable else { return }
    if hasDropped { return try writer.synchronizeOpenPacks(exceptFailed: [], isOfOthers: true) }
    try sharing.synchronizeFound(writer, exceptFailed: [])
  }
}

// MARK: Losses

extension Engine {
  /// The losses that are not accepted yet. In a shared store these are the losses that its last extension found.
  package func losses() throws(BlobStorageError) -> StoreLosses { StoreLosses(try sharing.losses()) }
}

/// Holds, and puts without a key.
///
/// A put without a key commits a ref together with the drop of that ref, so that no view shows it. The hold is written
/// before the commit begins. A collection that condemns packs later waits for the commit and then reads the holds. The
/// commit shares nothing in packs that were condemned before. So every collection after the commit sees the hold.
///
/// A process that dies before the commit leaves a hold of a missing blob. Repeating the put completes it.
extension Engine {
  /// Puts content without a key.
  package func put(
    _ content: BlobContent, holding name: String, _ options: PutOptions, _ progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> BlobHold {
    try checkOpen()
    try checkHolds(name)
    let file = HoldFile(folder)
    // The hold, and whether this put has made it.
    let held = Mutex<(hold: BlobHold?, isNew: Bool)>((nil, false))
    var options = options
    options.durability = .durable
    options.condition = .always
    options.heldPut = HeldPut(name: name) { [self] (digest, byteCount) throws(BlobStorageError) in
      // The commit may be tried more than once.
      if held.withLock({ $0.hold })?.digest == digest { return }
      let new = BlobHold(
        name: name, digest: digest, byteCount: byteCount,
        created: Date(timeIntervalSince1970: Double(clock.now()) / 1_000))
      try file.change { (holds) throws(BlobStorageError) in
        if let index = holds.firstIndex(where: { $0.name.utf8.elementsEqual(name.utf8) }) {
          let known = holds[index]
          // A hold of a missing blob was left by a dead process, or its put has yet to store the blob.
          if known.digest != digest, try contains(known.digest) { throw Self.isHeld(known) }
          if known.digest == digest {
            // A put that fails takes back the hold that it has made, and not this one, which differs.
            let kept = known.aMillisecondLater
            holds[index] = kept
            return held.withLock { $0 = (kept, false) }
          }
          holds.remove(at: index)
        }
        // Set before the write, because a write that fails may still have happened.
        held.withLock { $0 = (new, true) }
        holds.append(new)
      }
    }
    do throws(BlobStorageError) {
      let key = "put without a key " + Hex.text(environment.randomNumber())
      if case .data = content {
        _ = try put(key, content, options, progress)
      } else {
        _ = try watched("put", on: name, byteCountMin: 16 << 20, progress) {
          (progress) throws(BlobStorageError) in try put(key, content, options, progress)
        }
      }
    } catch {
      if let new = held.withLock({ $0.isNew ? $0.hold : nil }) {
        do throws(BlobStorageError) {
          try folder.withReserve { () throws(BlobStorageError) in
            try file.change { (holds) in
              holds.removeAll { $0 == new && $0.name.utf8.elementsEqual(new.name.utf8) }
            }
          }
        } catch {
          logger.warning("A hold could not be taken back.", metadata: ["reason": "\(error.message)"])
        }
      }
      throw error
    }
    guard let hold = held.withLock({ $0.hold }) else {
      throw BlobStorageError(.io, "The blob was stored and not held: put it again.")
    }
    // Before the blob was stored, a put of another blob may have given the name to that one, and have failed since.
    return try file.change { (holds) throws(BlobStorageError) -> BlobHold in
      guard let index = holds.firstIndex(where: { $0.name.utf8.elementsEqual(name.utf8) }) else {
        throw BlobStorageError(
          .conditionFailed, "The name “\(name)” was released while the blob was stored: put it again.",
          digest: hold.digest)
      }
      let known = holds[index]
      if known.digest != hold.digest { throw Self.isHeld(known) }
      // Another put of the same bytes may have made this hold, and would take it back if it failed.
      if known != hold { holds[index] = known.aMillisecondLater }
      return holds[index]
    }
  }

  /// Holds an existing blob; nil if the store does not have it.
  package func hold(_ digest: BlobDigest, as name: String) throws(BlobStorageError) -> BlobHold? {
    try checkOpen()
    try checkHolds(name)
    guard let blob = try openBlob(digest) else { return nil }
    defer { blob.close() }
    return try Self.puttingBlob { () throws(BlobStorageError) in
      try put(Self.content(of: blob), holding: name, PutOptions())
    }
  }

  /// Ends a hold; false if there is none of that name.
  package func release(_ name: String) throws(BlobStorageError) -> Bool {
    try checkOpen()
    // True also if the file was replaced and then could not be synced at first.
    var isReleased = false
    // A caller that releases wants to free space, so releasing must not need space.
    return try folder.withReserve { () throws(BlobStorageError) in
      let isFound = try HoldFile(folder).change { (holds) in
        let count = holds.count
        holds.removeAll { $0.name.utf8.elementsEqual(name.utf8) }
        isReleased = isReleased || holds.count < count
        return holds.count < count
      }
      if isReleased, !isFound { try folder.files.syncDirectory(folder.path) }
      return isReleased
    }
  }

  package func holds() throws(BlobStorageError) -> [BlobHold] {
    try checkOpen()
    return try HoldFile(folder).read()
  }

  private func checkHolds(_ name: String) throws(BlobStorageError) {
    try sharing.requireOwnPacks(
      "A store in a bucket cannot hold blobs, because other machines would not know: give the blob a key.")
    guard 1...255 ~= name.utf8.count else {
      throw BlobStorageError(.invalidArgument, "The name of a hold has 1 to 255 bytes.")
    }
  }

  private static func isHeld(_ hold: BlobHold) -> BlobStorageError {
    BlobStorageError(
      .conditionFailed, "The name “\(hold.name)” holds blob \(hold.digest) already: release it first.",
      digest: hold.digest)
  }

  /// Runs a put of the bytes of an open blob. A put reports what its source throws as `sourceFailed`; here the source
  /// is the store itself.
  static func puttingBlob<T>(_ put: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    do throws(BlobStorageError) { return try put() } catch {
      guard error.code == .sourceFailed else { throw error }
      throw error.underlyingError as? BlobStorageError ?? error
    }
  }

  /// The bytes of an open blob, for a put.
  static func content(of blob: OpenBlob) throws(BlobStorageError) -> BlobContent {
    let byteCount = blob.layout.byteCount
    if byteCount <= Int64(MemoryPut.byteCountMax) { return .data(Data(try blob.read(0..<byteCount))) }
    let next = Mutex<Int64>(0)
    return .stream {
      let start = next.withLock { $0 }
      guard start < byteCount else { return nil }
      let part = try blob.firstPart(start..<byteCount)
      next.withLock { $0 += Int64(part.count) }
      return part
    }
  }
}

extension BlobHold {
  /// The same hold, made a millisecond later.
  fileprivate var aMillisecondLater: BlobHold {
    let milliseconds = (created.timeIntervalSince1970 * 1_000).rounded() + 1
    return BlobHold(
      name: name, digest: digest, byteCount: byteCount,
      created: Date(timeIntervalSince1970: milliseconds / 1_000))
  }
}
