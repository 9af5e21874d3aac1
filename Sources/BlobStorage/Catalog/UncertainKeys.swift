import Synchronization

/// The uncertain keys, as reads ask for them.
package final class UncertainKeys: Sendable {
  private let isEmpty = Atomic<Bool>(true)
  private let times = Mutex<[[UInt8]: UInt64]>([:])

  package func set(_ keys: [[UInt8]: UInt64]) {
    times.withLock { $0 = keys }
    isEmpty.store(keys.isEmpty, ordering: .releasing)
  }

  /// The time after which the key's state is not known; nil for a key that is certain.
  package func time(of key: [UInt8]) -> UInt64? {
    if isEmpty.load(ordering: .acquiring) { return nil }
    return times.withLock { $0[key] }
  }

  /// - Throws: `corrupted` for a key whose newest state is not known, unless `current` was put since.
  func check(_ key: [UInt8], _ current: Stamp?) throws(BlobStorageError) {
    guard let time = time(of: key), current.map({ $0.time <= time }) ?? true else { return }
    let text = String(decoding: key, as: UTF8.self)
    throw BlobStorageError(
      .corrupted,
      "The newest state of key “\(text)” is lost: put or delete the key, or accept the loss with repair.",
      key: text)
  }

  var keys: [[UInt8]] { times.withLock { Array($0.keys) } }

  func remove(_ keys: [[UInt8]]) { times.withLock { times in for key in keys { times[key] = nil } } }
}

extension StoreLosses {
  package init(_ losses: KnownLosses) {
    lostPacks = losses.lostPacks.map(\.description)
    damagedPacks = losses.damagedPacks.map(\.description)
    uncertainKeys = losses.uncertainKeys.keys.map { String(decoding: $0, as: UTF8.self) }.sorted()
  }
}
