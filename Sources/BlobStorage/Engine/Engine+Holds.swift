import Foundation
import Synchronization

/// Holds, and puts without a key.
///
/// A put without a key commits a ref and, with it, the drop of that ref: no view shows it. The hold is written before the
/// commit is published. A collection that condemns packs later waits for the commit and then reads the holds; what was
/// condemned before, the commit does not share. So from the commit on, every collection sees the hold.
extension Engine {
  /// Puts content without a key.
  package func put(
    _ content: BlobContent, holding name: String, _ options: PutOptions, _ progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> BlobHold {
    try checkOpen()
    try checkHolds(name)
    let file = HoldFile(folder)
    if let known = try file.read().first(where: { $0.name == name }) { throw Self.isHeld(known) }
    let held = Mutex<BlobHold?>(nil)
    var options = options
    options.durability = .durable
    options.condition = .always
    options.heldPut = HeldPut(name: name) { [clock] (digest, byteCount) throws(BlobStorageError) in
      let hold = BlobHold(
        name: name, digest: digest, byteCount: byteCount,
        created: Date(timeIntervalSince1970: Double(clock.now()) / 1_000))
      let isOwn = held.withLock { $0?.digest == digest }
      // The commit may be tried more than once.
      guard !isOwn else { return }
      try file.change { (holds) throws(BlobStorageError) in
        if let known = holds.first(where: { $0.name == name }) { throw Self.isHeld(known) }
        holds.append(hold)
      }
      held.withLock { $0 = hold }
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
      if held.withLock({ $0 != nil }) { _ = try unlessCorrupted(try release(name)) }
      throw error
    }
    guard let hold = held.withLock({ $0 }) else {
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
    return try HoldFile(folder).change { (holds) throws(BlobStorageError) in
      let count = holds.count
      holds.removeAll { $0.name == name }
      return holds.count < count
    }
  }

  package func holds() throws(BlobStorageError) -> [BlobHold] {
    try checkOpen()
    return try HoldFile(folder).read()
  }

  private func checkHolds(_ name: String) throws(BlobStorageError) {
    try requireOwnPacks(
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
