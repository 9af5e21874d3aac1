import BlobStorage

/// Registers a writer of a shared store, and acknowledges condemnations for it.
///
/// The order makes it safe. A writer registers and *then* reads the log; a collector condemns and *then* lists the
/// writers. Either the collector sees the writer, or the writer sees the condemnation.
package struct Membership: Sendable {
  let objects: any ObjectStore
  let storeID: [UInt8]
  package let writer: UInt64
  let process: WriterProcess
  /// Grows with each renewal.
  package var lifeCount: UInt64 = 1

  /// Registers a writer, and reads the log.
  ///
  /// - Parameter known: the state known before. The writer must not rely on packs that the result condemns or removes.
  /// - Returns: the newest state. The writer has acknowledged its condemnation, because it has written nothing yet.
  package static func join(
    _ objects: any ObjectStore, storeID: [UInt8], writer: UInt64, process: WriterProcess,
    known: Collections = Collections()
  ) throws(BlobStorageError) -> (membership: Membership, collections: Collections) {
    let membership = Membership(objects: objects, storeID: storeID, writer: writer, process: process)
    try membership.register(known, publishedSequence: 0)
    let collections = try CollectionLog(objects, storeID: storeID).read(after: known)
    if collections.isStanding { try membership.pass(collections.epoch) }
    return (membership, collections)
  }

  /// Puts the registration. A new `lifeCount` shows collectors that this writer lives.
  package func register(_ known: Collections, publishedSequence: UInt32) throws(BlobStorageError) {
    let registration = WriterRegistration(
      writer: writer, seenNumber: known.number, lifeCount: lifeCount, publishedSequence: publishedSequence,
      process: process)
    _ = try objects.put(
      SharedNames.writer(writer), .bytes(registration.encoded(storeID: storeID)), ifAbsent: false)
  }

  /// Acknowledges a condemnation: no unpublished or future record of this writer relies on a condemned pack.
  package func pass(_ epoch: UInt32) throws(BlobStorageError) {
    let ack = SharedObject(.ack, number: epoch, storeID: storeID, writer: writer)
    _ = try objects.put(SharedNames.ack(epoch, writer), .bytes(ack.encoded()), ifAbsent: false)
  }

  /// Puts the end mark, then deletes the registration. Everything must be published, and the number is never used
  /// again.
  ///
  /// - Parameters:
  ///   - last: the last published sequence; 0 if there is none, or if the log or a fence already shows the number of
  ///     packs.
  package func leave(publishedSequence last: UInt32) throws(BlobStorageError) {
    if 1..<UInt32.max ~= last {
      let end = Fence(PackName(writer: writer, sequence: last + 1), by: nil)
      _ = try objects.put(
        SharedNames.pack(end.name), .bytes(end.encoded(storeID: storeID)), ifAbsent: true)
    }
    try objects.delete(SharedNames.writer(writer))
  }

  // MARK: For collectors

  /// All registered writers.
  package static func writers(_ objects: any ObjectStore) throws(BlobStorageError) -> [UInt64] {
    try objects.listAll(SharedNames.writers).compactMap { SharedNames.writerNumber($0.name) }
  }

  /// The writers that have acknowledged a condemnation.
  package static func passed(_ epoch: UInt32, _ objects: any ObjectStore) throws(BlobStorageError) -> Set<
    UInt64
  > {
    Set(
      try objects.listAll(SharedNames.acks(of: epoch)).compactMap {
        SharedNames.ackWriter($0.name, epoch: epoch)
      })
  }

  /// The last published sequences according to these writers' registrations, as far as they are registered. List packs
  /// afterwards.
  ///
  /// - Complexity: one get for each writer.
  package static func publishedSequences(
    _ objects: any ObjectStore, storeID: [UInt8], of writers: [UInt64]
  ) throws(BlobStorageError) -> [UInt64: UInt32] {
    var sequences: [UInt64: UInt32] = [:]
    for writer in writers {
      sequences[writer] = try registration(of: writer, objects, storeID: storeID)?.publishedSequence
    }
    return sequences
  }

  /// The registration of a writer; nil if it has left. An unreadable one counts as a writer that has published nothing,
  /// because a later build may renew it.
  package static func registration(
    of writer: UInt64, _ objects: any ObjectStore, storeID: [UInt8]
  ) throws(BlobStorageError) -> WriterRegistration? {
    let name = SharedNames.writer(writer)
    do throws(BlobStorageError) {
      guard let bytes = try objects.whole(name, .registration) else { return nil }
      return try WriterRegistration(bytes, writer: writer, storeID: storeID)
    } catch {
      guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error }
      guard let bytes = try objects.get(name, 0..<1_024) else { return nil }
      return WriterRegistration(
        writer: writer, seenNumber: 0, lifeCount: UInt64(CRC32C.checksum(bytes.span.bytes)),
        publishedSequence: 0, process: WriterProcess(machine: "A writer of an unknown machine"))
    }
  }

  /// Deletes the acks of condemnations before `epoch`: no collector waits for them.
  package static func removeAcks(before epoch: UInt32, _ objects: any ObjectStore) throws(BlobStorageError) {
    for entry in try objects.listAll(SharedNames.acks) {
      guard let own = SharedNames.ackEpoch(entry.name), own < epoch else { continue }
      try objects.delete(entry.name)
    }
  }
}
