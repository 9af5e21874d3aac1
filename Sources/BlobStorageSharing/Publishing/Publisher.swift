import BlobStorage
import Foundation
import Logging

/// Publishes the packs of one writer in sequence, one at a time, while the writer fills the next.
///
/// A failed attempt leaves the pack in the spool, and the next thread that waits for it tries again. A pack that can
/// never be published ends the writer.
final class Publisher: Sendable {
  /// A sealed pack. Its locked file shows other processes that the writer lives, until the pack is published.
  struct Item: Sendable {
    var name: PackName
    var file: any File
    var byteCount: Int64
  }

  /// The error of a writer that another machine has fenced.
  static let fenced =
    "Another machine collected garbage and has fenced this writer: "
    + "unconfirmed changes were not stored; open the store again and repeat them."

  let backend: RemoteBackend
  private let waitingCountMax: Int
  private let hasThread: Bool
  private let logger: Logger
  private let codecs: CodecPool
  private let state: Monitor<State>

  private struct State: Sendable {
    var writer: UInt64
    /// The session that wrote the packs.
    weak var session: WriterSession?
    var waiting: [UInt32: Item] = [:]
    var publishedSequence: UInt32 = 0
    /// The lengths of published packs that the catalog does not know as such, or that still lie in the spool.
    var unrecorded: [PackName: Int64] = [:]
    var runCount = 0
    var isRunning = false
    var failure: (run: Int, error: BlobStorageError)?
    var ending: BlobStorageError?

    /// The pack to publish next, if it is sealed.
    var next: Item? { waiting[publishedSequence + 1] }

    /// Also true for an earlier number: a writer changes its number only when everything is published.
    func isPublished(_ name: PackName) -> Bool {
      name.writer != writer || publishedSequence >= name.sequence
    }

    mutating func beginRun() {
      isRunning = true
      runCount += 1
    }
  }

  init(
    writer: UInt64, backend: RemoteBackend, waitingCountMax: Int, hasThread: Bool, codecs: CodecPool,
    logger: Logger
  ) {
    self.codecs = codecs
    state = Monitor(State(writer: writer))
    self.backend = backend
    self.waitingCountMax = max(0, waitingCountMax)
    self.hasThread = hasThread
    self.logger = logger
  }

  /// Sets the session to publish for.
  func serve(_ session: WriterSession) { state.withLock { $0.session = session } }

  /// Whether the session has ended: it publishes nothing more.
  var hasEnded: Bool {
    let (ending, session) = state.withLock { ($0.ending, $0.session) }
    return ending != nil || session?.ending != nil
  }

  /// Queues a sealed pack, and starts publishing if it is the next one.
  func add(_ item: Item) {
    let begins = state.withLock { state in
      state.waiting[item.name.sequence] = item
      guard !state.isRunning, state.ending == nil, state.next != nil else { return false }
      state.beginRun()
      return true
    }
    if begins { go() }
  }

  /// Publishes on its own thread, so that a cancelled caller need not wait for a response.
  private func go() {
    if hasThread { Thread.start(named: "blob-publish") { [self] in run() } } else { run() }
  }

  /// The last published sequence under the current number.
  var publishedSequence: UInt32 { state.withLock { $0.publishedSequence } }

  /// Whether a pack and all before it are published.
  func hasPublished(_ name: PackName) -> Bool { state.withLock { $0.isPublished(name) } }

  /// Whether all packs before `sequence` are published, no later pack waits, and the writer has not ended.
  func isDone(before sequence: UInt32) -> Bool {
    state.withLock { $0.ending == nil && $0.waiting.isEmpty && $0.publishedSequence == sequence - 1 }
  }

  /// Continues under another number. Everything under the old one must be published.
  func begin(as writer: UInt64) {
    state.withLock { state in
      precondition(state.waiting.isEmpty, "a number is given up once all of its packs are published")
      state.writer = writer
      state.publishedSequence = 0
      state.failure = nil
    }
  }

  /// Waits until a sealed pack and all before it are published.
  ///
  /// - Throws: the error of the last attempt, if it began after the call; `fenced` or `poisoned` if the pack can never
  ///   be published; `cancelled` if the task was cancelled, while publishing continues.
  func wait(for name: PackName) throws(BlobStorageError) { try wait { $0.isPublished(name) } }

  /// Waits until the writer may start another pack.
  func waitForRoom() throws(BlobStorageError) { try wait { $0.waiting.count <= waitingCountMax } }

  private func wait(until isReached: (State) -> Bool) throws(BlobStorageError) {
    let before = state.withLock { $0.runCount }
    func failure(_ state: State) -> BlobStorageError? {
      state.failure.flatMap { $0.run > before ? $0.error : nil }
    }
    var isDone = false
    while !isDone {
      isDone = try state.withLockUnlessCancelled(
        when: { !$0.isRunning || isReached($0) || failure($0) != nil }
      ) { (state) throws(BlobStorageError) in
        if isReached(state) { return true }
        if let error = failure(state) ?? state.ending { throw error }
        guard state.next != nil else {
          throw BlobStorageError(
            .poisoned, "A pack could not be sealed, and no later one is published: open the store again.")
        }
        try CancellationFlag.check()
        state.beginRun()
        return false
      }
      if !isDone { go() }
    }
  }

  /// Publishes waiting packs until none is left or one fails.
  private func run() {
    while let item = next() {
      do throws(BlobStorageError) {
        if let (code, reason) = try publish(item) {
          return stop(BlobStorageError(code, reason, pack: item.name.description))
        }
        finish(item)
      } catch {
        logger.warning("Pack \(item.name) was not published yet.", metadata: ["reason": "\(error.message)"])
        state.withLock { state in
          // Cancelling one thread does not fail the others.
          if error.code != .cancelled { state.failure = (state.runCount, error) }
          state.isRunning = false
        }
        state.wakeAll()
        return
      }
    }
  }

  /// Publishes a pack, or says why it can never be published.
  private func publish(_ item: Item) throws(BlobStorageError) -> (BlobStorageError.Code, String)? {
    guard try isWhole(item) else {
      return (
        .poisoned,
        "Pack \(item.name) was damaged before it could be published: unconfirmed changes were not stored; "
          + "check the medium, open the store again and repeat them."
      )
    }
    return switch try backend.publish(item.name, item.file, byteCount: item.byteCount) {
    case .published: nil
    case .fenced: (.fenced, Self.fenced)
    case .foreign:
      (
        .poisoned,
        "Pack \(item.name) cannot be published, because an object with other bytes has its name: "
          + "open the store again and repeat unconfirmed changes."
      )
    }
  }

  /// Whether the whole pack is readable. Once it is published, machines have no other copy.
  private func isWhole(_ item: Item) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      return try PackScanner(file: item.file, name: item.name, codecs: codecs).isWhole()
    } catch {
      guard error.code == .corrupted else { throw error }
      return false
    }
  }

  /// The pack to publish next; nil ends the run.
  private func next() -> Item? {
    let item = state.withLock { state in
      if state.next == nil { state.isRunning = false }
      return state.next
    }
    if item == nil { state.wakeAll() }
    return item
  }

  private func finish(_ item: Item) {
    record(item.name, byteCount: item.byteCount)
    item.file.close()
    state.withLock { state in
      state.waiting[item.name.sequence] = nil
      state.publishedSequence = item.name.sequence
    }
    state.wakeAll()
  }

  /// Records that a pack is published, and moves it out of the spool. If that fails, on a full disk for example,
  /// ``recordLeft()`` tries again.
  private func record(_ name: PackName, byteCount: Int64) {
    guard let session = state.withLock({ $0.session }) else { return }
    do throws(BlobStorageError) {
      try session.markPublished(name, byteCount: byteCount)
      try backend.settle(name)
    } catch {
      state.withLock { $0.unrecorded[name] = byteCount }
      logger.warning(
        "Pack \(name) was published, but the state folder does not record that yet.",
        metadata: ["reason": "\(error.message)"])
    }
  }

  /// Records the published packs again that could not be recorded before.
  func recordLeft() {
    let left = state.withLock { state in
      defer { state.unrecorded = [:] }
      return state.unrecorded
    }
    for (name, byteCount) in left { record(name, byteCount: byteCount) }
  }

  private func stop(_ error: BlobStorageError) {
    state.withLock { $0.ending = error }
    if let session = state.withLock({ $0.session }) { end(session, error) }
    state.withLock { $0.isRunning = false }
    state.wakeAll()
  }

  /// Ends a session, and removes its unpublishable packs from the spool and the catalog.
  private func end(_ session: WriterSession, _ error: BlobStorageError) {
    session.end(error)
    do throws(BlobStorageError) {
      let left = try backend.localPackNames().live.filter {
        $0.writer == session.writerID && !session.isDurable($0)
      }
      for name in left {
        let place = try backend.setAsidePack(name)
        logger.warning("Pack \(name) cannot be published and was set aside.", metadata: ["place": "\(place)"])
      }
      try session.catalog.rebuild(because: error)
    } catch {
      logger.error("Unpublishable packs could not be removed.", metadata: ["reason": "\(error.message)"])
    }
  }
}
