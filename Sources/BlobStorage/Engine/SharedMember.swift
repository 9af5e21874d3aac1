import Foundation

/// Has collectors of a shared store wait for one writer, from before it looks up or writes anything until all of it is
/// published.
package final class SharedMember: Sendable {
  private struct State: Sendable {
    var membership: Membership?
    var passedEpoch: UInt32 = 0
    /// A condemnation that was seen, and the last stream that had begun by then.
    var seenEpoch: UInt32 = 0
    var seenPut: UInt64 = 0
  }

  private let writer: UInt64
  private let backend: RemoteBackend
  private let catalog: Catalog
  private let state = Mutex(State())

  init(writer: UInt64, backend: RemoteBackend, catalog: Catalog) {
    self.writer = writer
    self.backend = backend
    self.catalog = catalog
  }

  package var isJoined: Bool { state.withLock { $0.membership != nil } }
  package var passedEpoch: UInt32 { state.withLock { $0.passedEpoch } }

  /// Registers the writer, and has the catalog count on nothing that was condemned or removed before. Only the first
  /// call does something.
  package func join() throws(BlobStorageError) {
    try locked { (state) throws(BlobStorageError) in
      if state.membership != nil { return }
      let (membership, collections) = try Membership.join(
        backend.objects, storeID: backend.storeID, writer: writer,
        machine: ProcessInfo.processInfo.hostName, known: backend.said)
      backend.note(collections)
      try catalog.write { (transaction) throws(BlobStorageError) in
        try CatalogBuilder.note(collections, in: transaction)
      }
      state.passedEpoch = collections.epoch
      state.membership = membership
    }
  }

  /// Shows collectors that the writer lives.
  package func signLife() throws(BlobStorageError) {
    try locked { (state) throws(BlobStorageError) in try state.membership?.signLife(backend.said) }
  }

  /// The last stream that had begun when a condemnation was first seen: it may count on what is condemned.
  func put(before epoch: UInt32, last: UInt64) -> UInt64 {
    state.withLock { state in
      if state.seenEpoch != epoch {
        state.seenEpoch = epoch
        state.seenPut = last
      }
      return state.seenPut
    }
  }

  /// Tells collectors that nothing unpublished counts on what is condemned.
  func pass(_ epoch: UInt32) throws(BlobStorageError) {
    try locked { (state) throws(BlobStorageError) in
      try state.membership?.pass(epoch)
      state.passedEpoch = epoch
    }
  }

  /// Ends the registration; everything is published. The writer writes no more.
  package func leave() throws(BlobStorageError) {
    try locked { (state) throws(BlobStorageError) in try state.membership?.leave() }
  }

  private func locked(_ body: (inout State) throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    let result: Result<Void, BlobStorageError> = state.withLock { state in
      do throws(BlobStorageError) { return .success(try body(&state)) } catch { return .failure(error) }
    }
    try result.get()
  }
}

extension Engine {
  /// Passes what collectors have condemned, if nothing here that is unpublished may count on it.
  ///
  /// Puts in memory look everything up in the transaction that commits them; streams count on what they found before,
  /// so that those are waited for that began before the catalog said that it is condemned.
  package func passCollections() throws(BlobStorageError) {
    guard let member = writer.member, member.isJoined, let backend = backend as? RemoteBackend else { return }
    let said = backend.said
    guard said.isStanding, said.epoch > member.passedEpoch else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      try CatalogBuilder.note(said, in: transaction)
    }
    guard !leases.hasPuts(upTo: member.put(before: said.epoch, last: leases.lastPut)) else { return }
    try writer.rollOver()
    try member.pass(said.epoch)
  }
}
