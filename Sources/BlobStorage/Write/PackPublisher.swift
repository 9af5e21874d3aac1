/// Makes the packs of one session durable.
package protocol PackPublisher: Sendable {
  /// Makes collectors wait for the session. It must not count on anything that it looked up before.
  func join(_ session: WriterSession) throws(BlobStorageError)

  /// Waits until the session may write, and begin a pack if it has none. Called without locks.
  func admit(_ session: WriterSession) throws(BlobStorageError)

  /// Accepts a sealed pack. If packs are published, the publisher closes the file, which gives up the pack's lock.
  func add(_ pack: PackName, _ file: any File, byteCount: Int64, of session: WriterSession)

  /// Makes durable what a commit has written.
  func publish(_ watermark: WriterSession.Watermark, of session: WriterSession) throws(BlobStorageError)

  /// Makes all sealed packs durable.
  func publishSealed(of session: WriterSession) throws(BlobStorageError)

  /// Makes all packs durable, and lets collectors stop waiting for the session.
  func close(_ session: WriterSession) throws(BlobStorageError)
}
