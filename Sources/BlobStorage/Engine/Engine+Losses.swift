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
  func time(of key: [UInt8]) -> UInt64? {
    if isEmpty.load(ordering: .acquiring) { return nil }
    return times.withLock { $0[key] }
  }

  var keys: [[UInt8]] { times.withLock { Array($0.keys) } }

  func remove(_ keys: [[UInt8]]) { times.withLock { times in for key in keys { times[key] = nil } } }
}

extension Engine {
  /// The losses that are not accepted yet. A shared store knows of what its last extension found.
  package func losses() throws(BlobStorageError) -> StoreLosses { StoreLosses(try knownLosses()) }

  /// The same, with the packs' names and the times of uncertain keys. What the census lacks is added to it.
  package func knownLosses() throws(BlobStorageError) -> KnownLosses {
    if let losses = try sharing.losses() { return losses }
    let losses = try builder.compareCensus(with: catalog)
    uncertain.set(losses.uncertainKeys)
    return losses
  }

  /// Writes down, durably, what a repair could not save. The caller holds the collection lock.
  ///
  /// - Parameters:
  ///   - packs: packs that had places which cannot be read, if refs or drops of unknown keys may have been there.
  ///   - keys: keys whose newest state is not certain.
  ///   - time: up to which their state is not certain: the catalog's clock. A version that is put later counts.
  package func record(
    unreadable packs: [PackName], uncertain keys: [[UInt8]], until time: UInt64
  ) throws(BlobStorageError) {
    try backend.census?.append(
      packs.map { .unreadable($0) } + keys.map { .uncertain(key: $0, time: time) }, durably: true)
    _ = try knownLosses()
  }
}

extension StoreLosses {
  package init(_ losses: KnownLosses) {
    lostPacks = losses.lostPacks.map(\.description)
    damagedPacks = losses.damagedPacks.map(\.description)
    uncertainKeys = losses.uncertainKeys.keys.map { String(decoding: $0, as: UTF8.self) }.sorted()
  }
}
