/// Makes the packs of one session durable.
package protocol PackPublisher: Sendable {
  /// Makes collectors wait for the session. It must not count on anything that it looked up before.
  func join(_ session: WriterSession) throws(BlobStorageError)

  /// The same for a stream, which counts on what it looks up from now on until it commits.
  ///
  /// - Returns: the lease by which the stream is seen, to be ended by the caller; nil if the stream needs none yet.
  func joinStream(_ session: WriterSession, _ leases: LeaseFile) throws(BlobStorageError) -> UInt64?

  /// Waits until the session may write, and begin a pack if it has none. Called without locks.
  func admit(_ session: WriterSession) throws(BlobStorageError)

  /// Seals a full pack.
  ///
  /// - Returns: how many bytes of it are durable. If none are yet, the publisher keeps the file, whose lock shows that the
  ///   writer lives, and closes it.
  func seal(_ writer: PackWriter, of session: WriterSession) throws(BlobStorageError) -> Int64

  /// Gives up a pack that cannot be written or sealed. Called with or without the append lock.
  ///
  /// - Returns: how many bytes of it are durable, if nothing has failed but the seal.
  @discardableResult
  func giveUp(_ writer: PackWriter, _ cause: BlobStorageError, of session: WriterSession) -> Int64

  /// Whether a pack is always durable before anything that the session writes from now on.
  func precedes(_ pack: PackName, _ session: WriterSession) -> Bool

  /// Whether the record at `place` is stored for good once the records of the session are. A pack that another process
  /// has not published may never be (H1).
  func keeps(
    _ place: Place, _ transaction: ReadTransaction, _ session: WriterSession
  ) throws(BlobStorageError) -> Bool

  /// Whether a pack that is durable is known to be there still: its object may have been deleted.
  func isThere(_ pack: PackName) -> Bool

  /// Makes sure that other packs are durable and there, so that new records may refer to them.
  ///
  /// - Returns: one that is not, and never will be.
  func secure(_ packs: Set<PackName>, of session: WriterSession) throws(BlobStorageError) -> PackName?

  /// Makes durable what a commit has written.
  func publish(_ watermark: WriterSession.Watermark, of session: WriterSession) throws(BlobStorageError)

  /// Makes all sealed packs durable.
  func publishSealed(of session: WriterSession) throws(BlobStorageError)

  /// Makes all packs durable, and lets collectors stop waiting for the session.
  func close(_ session: WriterSession) throws(BlobStorageError)
}
