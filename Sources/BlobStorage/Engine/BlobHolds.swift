import Foundation
import Logging
import Synchronization

/// Holds blobs by name, and stores blobs without a key.
///
/// A put without a key commits a ref together with the drop of that ref, so that no view shows it. The hold is written
/// before the commit begins. A collection that condemns packs later waits for the commit and then reads the holds. The
/// commit shares nothing in packs that were condemned before. So every collection after the commit sees the hold.
///
/// A process that dies before the commit leaves a hold of a missing blob. Repeating the put completes it.
package struct BlobHolds {
  let engine: Engine

  package init(_ engine: Engine) { self.engine = engine }

  /// Puts content without a key.
  package func put(
    _ content: BlobContent, as name: String, _ options: PutOptions, _ progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> BlobHold {
    try engine.checkOpen()
    try checkHolds(name)
    let file = HoldFile(engine.folder)
    // The hold, and whether this put has made it.
    let held = Mutex<(hold: BlobHold?, isNew: Bool)>((nil, false))
    var options = options
    options.durability = .durable
    options.condition = .always
    options.heldPut = HeldPut(name: name) { [engine] (digest, byteCount) throws(BlobStorageError) in
      // The commit may be tried more than once.
      if held.withLock({ $0.hold })?.digest == digest { return }
      let new = BlobHold(
        name: name, digest: digest, byteCount: byteCount,
        created: Date(timeIntervalSince1970: Double(engine.clock.now()) / 1_000))
      try file.change { (holds) throws(BlobStorageError) in
        if let index = holds.firstIndex(where: { $0.name.utf8.elementsEqual(name.utf8) }) {
          let known = holds[index]
          // A hold of a missing blob was left by a dead process, or its put has yet to store the blob.
          if known.digest != digest, try engine.contains(known.digest) { throw Self.isHeld(known) }
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
      let key = "put without a key " + Hex.text(engine.environment.randomNumber())
      if case .data = content {
        _ = try engine.put(key, content, options, progress)
      } else {
        _ = try engine.watched("put", on: name, byteCountMin: 16 << 20, progress) {
          (progress) throws(BlobStorageError) in try engine.put(key, content, options, progress)
        }
      }
    } catch {
      if let new = held.withLock({ $0.isNew ? $0.hold : nil }) {
        do throws(BlobStorageError) {
          try engine.folder.withReserve { () throws(BlobStorageError) in
            try file.change { (holds) in
              holds.removeAll { $0 == new && $0.name.utf8.elementsEqual(new.name.utf8) }
            }
          }
        } catch {
          engine.logger.warning("A hold could not be taken back.", metadata: ["reason": "\(error.message)"])
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
    try engine.checkOpen()
    try checkHolds(name)
    guard let blob = try engine.openBlob(digest) else { return nil }
    defer { blob.close() }
    return try OpenBlob.putting { () throws(BlobStorageError) in
      try put(blob.content(), as: name, PutOptions())
    }
  }

  /// Ends a hold; false if there is none of that name.
  package func release(_ name: String) throws(BlobStorageError) -> Bool {
    try engine.checkOpen()
    // True also if the file was replaced and then could not be synced at first.
    var isReleased = false
    // A caller that releases wants to free space, so releasing must not need space.
    return try engine.folder.withReserve { () throws(BlobStorageError) in
      let isFound = try HoldFile(engine.folder).change { (holds) in
        let count = holds.count
        holds.removeAll { $0.name.utf8.elementsEqual(name.utf8) }
        isReleased = isReleased || holds.count < count
        return holds.count < count
      }
      if isReleased, !isFound { try engine.folder.files.syncDirectory(engine.folder.path) }
      return isReleased
    }
  }

  /// All holds on blobs.
  package func all() throws(BlobStorageError) -> [BlobHold] {
    try engine.checkOpen()
    return try HoldFile(engine.folder).read()
  }

  private func checkHolds(_ name: String) throws(BlobStorageError) {
    try engine.sharing.requireOwnPacks(
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
