/// Makes the packs of one session durable.
package protocol PackPublisher: Sendable {
  /// Makes collectors wait for the session. The session must not rely on anything that it looked up before.
  func join(_ session: WriterSession) throws(BlobStorageError)

  /// Makes collectors wait for the session of a stream. The stream relies on what it looks up from now on until it
  /// commits.
  ///
  /// - Returns: the put by which the lease file shows the stream, to be ended by the caller; nil if the stream needs
  ///   none yet.
  func joinStream(_ session: WriterSession, _ leases: LeaseFile) throws(BlobStorageError) -> UInt64?

  /// Waits until the session may write, and may begin a pack if it has none. Called without locks.
  func admit(_ session: WriterSession) throws(BlobStorageError)

  /// Seals a full pack.
  ///
  /// - Returns: how many bytes of it are durable. If that is 0, the publisher keeps the file, whose lock shows that the
  ///   writer lives, and closes it.
  func seal(_ writer: PackWriter, of session: WriterSession) throws(BlobStorageError) -> Int64

  /// Abandons a pack that cannot be written or sealed. Called with or without the append lock.
  ///
  /// - Returns: how many bytes of it are durable, if only the seal has failed.
  @discardableResult
  func giveUp(_ writer: PackWriter, _ cause: BlobStorageError, of session: WriterSession) -> Int64

  /// Whether a pack always becomes durable before anything that the session writes from now on.
  func precedes(_ pack: PackName, _ session: WriterSession) -> Bool

  /// Whether the record at `place` is stored for good once the session's records are. A pack that another process has
  /// not published yet may never be published (H1).
  ///
  /// - Parameter isChecked: whether the caller calls ``secure(_:of:)`` for the pack. If not, a durable import looks for
  ///   the pack at its end.
  func keeps(
    _ place: Place, _ transaction: ReadTransaction, _ session: WriterSession, isChecked: Bool
  ) throws(BlobStorageError) -> Bool

  /// Whether a durable pack is known to exist still: its object may have been deleted or cut.
  func isThere(_ pack: PackRow) -> Bool

  /// Ensures that other packs are durable and exist, so that new records may refer to them.
  ///
  /// - Returns: a pack that is not durable and never will be, if there is one.
  func secure(_ packs: Set<PackName>, of session: WriterSession) throws(BlobStorageError) -> PackName?

  /// Makes a commit durable.
  func publish(_ watermark: WriterSession.Watermark, of session: WriterSession) throws(BlobStorageError)

  /// Makes all sealed packs durable.
  func publishSealed(of session: WriterSession) throws(BlobStorageError)

  /// Makes all packs durable, and lets collectors stop waiting for the session.
  func close(_ session: WriterSession) throws(BlobStorageError)
}
