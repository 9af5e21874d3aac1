import BlobStorage
import Foundation
import Synchronization

/// What puts without a key have begun to store, and what of it has to be there.
struct HeldBlobs {
  /// The bytes of each put, by the name of its hold.
  fileprivate(set) var contents: [String: Data] = [:]
  /// Holds whose put has returned, or was found to have come to pass.
  fileprivate(set) var certain: Set<String> = []
}

extension Lab {
  func put(_ engine: Engine, holding name: String, _ data: Data, streamed: Bool = false) throws {
    held.contents[name] = data
    let rest = Mutex(data)
    let content: BlobContent =
      streamed
      ? .stream({
        rest.withLock { rest in
          let part = rest.prefix(1_500)
          rest = rest.dropFirst(1_500)
          return part.isEmpty ? nil : Data(part)
        }
      }) : .data(data)
    _ = try BlobHolds(engine).put(content, as: name, PutOptions())
    try checkAlive(engine)
    held.certain.insert(name)
  }

  func release(_ engine: Engine, _ name: String) throws {
    held.certain.remove(name)
    _ = try BlobHolds(engine).release(name)
  }

  /// Invariant 10: what a returned put without a key has held is held, and reads as what was put. A hold of a put that
  /// has not returned is gone, or has no blob, or is like that of one that has returned. It then stays so.
  func checkHolds(_ engine: Engine, _ when: String) throws {
    var names: Set<String> = []
    for hold in try BlobHolds(engine).all() {
      names.insert(hold.name)
      guard let data = held.contents[hold.name], hold.digest == BlobDigest.of(data),
        hold.byteCount == Int64(data.count)
      else { throw Broken("10 \(when): no put made the hold \(hold)") }
      guard let blob = try engine.openBlob(hold.digest) else {
        if held.certain.contains(hold.name) { throw Broken("10 \(when): the blob of \(hold) is missing") }
        continue
      }
      defer { blob.close() }
      guard try Data(blob.read(0..<hold.byteCount)) == data else {
        throw Broken("10 \(when): \(hold) reads as other bytes")
      }
      held.certain.insert(hold.name)
    }
    guard held.certain.isSubset(of: names) else {
      throw Broken("10 \(when): of \(held.certain) are held \(names)")
    }
  }

  /// The same puts once more: each completes what a process that died has left.
  func repeatHolds(_ engine: Engine) throws {
    for (name, data) in held.contents.sorted(by: { $0.key < $1.key }) {
      try put(engine, holding: name, data)
    }
    try checkHolds(engine, "after the same puts without keys")
  }
}
