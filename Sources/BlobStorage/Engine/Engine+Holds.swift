import Foundation
import Logging
import Synchronization

/// Holds, and puts without a key.
///
/// A put without a key commits a ref and, with it, the drop of that ref: no view shows it. The hold is written before the
/// commit begins. A collection that condemns packs later waits for the commit and then reads the holds; what was
/// condemned before, the commit does not share. So from the commit on, every collection sees the hold.
///
/// A process that dies before the commit leaves a hold of a blob that is not there. The same put again completes it.
extension Engine {
  /// Puts content without a key.
  package func put(
    _ content: BlobContent, holding name: String, _ options: PutOptions, _ progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> BlobHold {
    try checkOpen()
    try checkHolds(name)
    let (file, held) = (HoldFile(folder), PendingHold())
    var options = options
    options.durability = .durable
    options.condition = .always
    options.heldPut = HeldPut(name: name) { [self] (digest, byteCount) throws(BlobStorageError) in
      // The commit may be tried more than once.
      if held.hold?.digest == digest { return }
      let new = BlobHold(
        name: name, digest: digest, byteCount: byteCount,
        created: Date(timeIntervalSince1970: Double(clock.now()) / 1_000))
      try file.change { (holds) throws(BlobStorageError) in
        if let index = holds.firstIndex(where: { $0.name == name }) {
          let known = holds[index]
          // One whose blob is not there was left by a process that died.
          if known.digest != digest, try contains(known.digest) { throw Self.isHeld(known) }
          if known.digest == digest { return held.set(known, isNew: false) }
          holds.remove(at: index)
        }
        // Before it is written: whether a write that fails has happened is not known.
        held.set(new, isNew: true)
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
      if let new = held.newHold {
        do throws(BlobStorageError) {
          try folder.withReserve { () throws(BlobStorageError) in
            try file.change { (holds) in holds.removeAll { $0 == new } }
          }
        } catch {
          logger.warning("A hold could not be taken back.", metadata: ["reason": "\(error.message)"])
        }
      }
      throw error
    }
    guard let hold = held.hold else {
      throw BlobStorageError(.io, "The blob was stored and not held: put it again.")
    }
    return hold
  }

  /// Holds a blob that is there; nil if it is not.
  package func hold(_ digest: BlobDigest, as name: String) throws(BlobStorageError) -> BlobHold? {
    try checkOpen()
    try checkHolds(name)
    guard let blob = try openBlob(digest) else { return nil }
    defer { blob.close() }
    return try put(Self.content(of: blob), holding: name, PutOptions())
  }

  /// Ends a hold; false if there is none of that name.
  package func release(_ name: String) throws(BlobStorageError) -> Bool {
    try checkOpen()
    // A caller that releases wants to free room, so releasing must not need room.
    return try folder.withReserve { () throws(BlobStorageError) in
      try HoldFile(folder).change { (holds) in
        let count = holds.count
        holds.removeAll { $0.name == name }
        return holds.count < count
      }
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

/// What a put without a key has held so far.
private final class PendingHold: Sendable {
  private let state = Mutex<(hold: BlobHold?, isNew: Bool)>((nil, false))

  var hold: BlobHold? { state.withLock { $0.hold } }
  /// The hold, if this put has made it.
  var newHold: BlobHold? { state.withLock { $0.isNew ? $0.hold : nil } }

  func set(_ hold: BlobHold, isNew: Bool) { state.withLock { $0 = (hold, isNew) } }
}
