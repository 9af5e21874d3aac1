import BlobStorage

/// One writer of a shared store, as the others know it.
///
/// The order that makes it safe: a writer registers and *then* reads what collectors have said; a collector condemns
/// and *then* lists the writers. Either the collector sees the writer, or the writer the condemnation.
package struct Membership: Sendable {
  package let writer: UInt64
  private let objects: any ObjectStore
  private let storeID: [UInt8]
  private let machine: String
  private var lifeCount: UInt64 = 0

  /// Registers a writer, and reads what collectors have said so far.
  ///
  /// - Parameter known: what was known before; the writer uses nothing of it that the answer condemns or removes.
  /// - Returns: what holds from now on. A condemnation that stands has been passed: there is nothing before it.
  package static func join(
    _ objects: any ObjectStore, storeID: [UInt8], writer: UInt64, machine: String,
    known: Collections = Collections()
  ) throws(BlobStorageError) -> (membership: Membership, collections: Collections) {
    var membership = Membership(objects, storeID: storeID, writer: writer, machine: machine)
    try membership.signLife(known)
    let collections = try CollectionLog(objects, storeID: storeID).read(after: known)
    if collections.isStanding { try membership.pass(collections.epoch) }
    return (membership, collections)
  }

  /// A writer that has registered already, or is about to.
  package init(_ objects: any ObjectStore, storeID: [UInt8], writer: UInt64, machine: String) {
    self.objects = objects
    self.storeID = storeID
    self.writer = writer
    self.machine = machine
  }

  /// Registers again, so that a collector sees that this writer lives.
  package mutating func signLife(_ known: Collections) throws(BlobStorageError) {
    lifeCount += 1
    let registration = WriterRegistration(
      writer: writer, seenNumber: known.number, lifeCount: lifeCount, machine: machine)
    _ = try objects.put(
      SharedNames.writer(writer), .bytes(registration.encoded(storeID: storeID)), ifAbsent: false)
  }

  /// Says that nothing this writer has not published counts on what is condemned, and that nothing will.
  package func pass(_ epoch: UInt32) throws(BlobStorageError) {
    let ack = SharedObject(.ack, number: epoch, storeID: storeID, writer: writer)
    _ = try objects.put(SharedNames.ack(epoch, writer), .bytes(ack.encoded()), ifAbsent: false)
  }

  /// Ends the registration, once everything is published. The number is never used again.
  package func leave() throws(BlobStorageError) { try objects.delete(SharedNames.writer(writer)) }

  // MARK: What collectors ask

  /// Every writer that is registered.
  package static func writers(_ objects: any ObjectStore) throws(BlobStorageError) -> [UInt64] {
    try objects.listAll(SharedNames.writers).compactMap { SharedNames.writerNumber($0.name) }
  }

  /// Those who have passed a condemnation.
  package static func passed(_ epoch: UInt32, _ objects: any ObjectStore) throws(BlobStorageError) -> Set<
    UInt64
  > {
    Set(
      try objects.listAll(SharedNames.acks(of: epoch)).compactMap {
        SharedNames.ackWriter($0.name, epoch: epoch)
      })
  }

  /// What a writer has registered with; nil when it has left.
  package static func registration(
    of writer: UInt64, _ objects: any ObjectStore, storeID: [UInt8]
  ) throws(BlobStorageError) -> WriterRegistration? {
    guard let bytes = try objects.whole(SharedNames.writer(writer), .registration) else { return nil }
    return try WriterRegistration(bytes, writer: writer, storeID: storeID)
  }

  /// Takes away what acks are left of condemnations before `epoch`: nobody waits for them.
  package static func removeAcks(before epoch: UInt32, _ objects: any ObjectStore) throws(BlobStorageError) {
    for entry in try objects.listAll(SharedNames.acks) where entry.name < SharedNames.acks(of: epoch) {
      try objects.delete(entry.name)
    }
  }
}
