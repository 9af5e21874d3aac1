import Foundation
import Logging

/// Publishes the packs of one writer, strictly in the order of their sequence and one at a time, beside the filling of
/// the next.
///
/// A failed attempt leaves the pack in the spool; whoever needs it published tries again. A pack that can never be
/// published ends the writer, which is told once.
final class Publisher: @unchecked Sendable {
  /// A sealed pack. Its file is locked, so that nobody takes it for a dead writer's, and closed once it is published.
  struct Item: Sendable {
    var name: PackName
    var file: any File
    var byteCount: Int64
  }

  /// What a writer is told that another machine has fenced.
  static let fenced =
    "Another machine collected garbage and waited for this writer too long: "
    + "what was not reported done was not stored; open the store anew and do it again."

  private let backend: any PublishingBackend
  private let waitingCountMax: Int
  private let hasThread: Bool
  private let logger: Logger
  private let codecs: CodecPool
  /// Whose packs they are; set before any is added.
  weak var session: WriterSession?
  private let condition = NSCondition()
  // Guarded by `condition`.
  private var writer: UInt64
  private var waiting: [UInt32: Item] = [:]
  private var publishedSequence: UInt32 = 0
  private var runCount = 0
  private var isRunning = false
  private var failure: (run: Int, error: BlobStorageError)?
  private var ending: BlobStorageError?

  init(
    writer: UInt64, backend: any PublishingBackend, waitingCountMax: Int, hasThread: Bool, codecs: CodecPool,
    logger: Logger
  ) {
    self.codecs = codecs
    self.writer = writer
    self.backend = backend
    self.waitingCountMax = max(0, waitingCountMax)
    self.hasThread = hasThread
    self.logger = logger
  }

  /// Takes a pack that was sealed, and begins to publish it if it is its turn.
  func add(_ item: Item) {
    condition.lock()
    waiting[item.name.sequence] = item
    guard !isRunning, ending == nil, waiting[publishedSequence + 1] != nil else {
      condition.unlock()
      return
    }
    beginRun()
    condition.unlock()
    go()
  }

  /// Publishes on a thread that nobody waits on, so that who is cancelled need not wait for an answer.
  private func go() {
    guard hasThread else {
      run()
      return
    }
    let thread = Thread { [self] in run() }
    thread.stackSize = 1 << 20
    thread.start()
  }

  /// Whether that pack and all before it are published.
  func hasPublished(_ name: PackName) -> Bool {
    condition.lock()
    defer { condition.unlock() }
    return isPublished(name)
  }

  /// Of a number that was given up for another, everything had been published.
  private func isPublished(_ name: PackName) -> Bool {
    name.writer != writer || publishedSequence >= name.sequence
  }

  /// Whether there is nothing left to publish but what begins at that sequence, and publishing goes on.
  func isDone(before sequence: UInt32) -> Bool {
    condition.lock()
    defer { condition.unlock() }
    return ending == nil && waiting.isEmpty && publishedSequence == sequence - 1
  }

  /// Begins anew under another number. Nothing was left to publish.
  func begin(as writer: UInt64) {
    condition.lock()
    defer { condition.unlock() }
    precondition(waiting.isEmpty, "a number is given up once all of its packs are published")
    self.writer = writer
    publishedSequence = 0
    failure = nil
  }

  /// Waits until that pack and all before it, which were all sealed, are published.
  ///
  /// - Throws: what the last attempt failed with, if it began after the call; `cancelled` for a task that was: then it
  ///   goes on.
  func wait(for name: PackName) throws(BlobStorageError) { try wait { $0.isPublished(name) } }

  /// Waits until another pack may be begun.
  func waitForRoom() throws(BlobStorageError) { try wait { $0.waiting.count <= $0.waitingCountMax } }

  private func wait(until isReached: (Publisher) -> Bool) throws(BlobStorageError) {
    condition.lock()
    defer { condition.unlock() }
    let before = runCount
    while !isReached(self) {
      if let failure, failure.run > before { throw failure.error }
      if isRunning {
        try condition.waitUnlessCancelled()
        continue
      }
      if let ending { throw ending }
      guard waiting[publishedSequence + 1] != nil else {
        throw BlobStorageError(
          .poisoned, "A pack could not be sealed, and no later one is published: open the store anew.")
      }
      try CancellationFlag.check()
      beginRun()
      condition.unlock()
      go()
      condition.lock()
    }
  }

  private func beginRun() {
    isRunning = true
    runCount += 1
  }

  /// Publishes what is there, until there is no more or it fails.
  private func run() {
    while let item = next() {
      do throws(BlobStorageError) {
        guard try isWhole(item) else {
          stop(
            BlobStorageError(
              .poisoned,
              "Pack \(item.name) was damaged before it could be published: what was not reported done was not "
                + "stored; check the medium, open the store anew and do it again.",
              pack: item.name.description))
          return
        }
        switch try backend.publish(item.name, item.file, byteCount: item.byteCount) {
        case .published: finish(item)
        case .fenced:
          stop(BlobStorageError(.fenced, Self.fenced, pack: item.name.description))
          return
        case .foreign:
          stop(
            BlobStorageError(
              .poisoned,
              "Pack \(item.name) cannot be published, because other bytes have its name: "
                + "open the store anew and do it again.",
              pack: item.name.description))
          return
        }
      } catch {
        logger.warning("Pack \(item.name) was not published yet.", metadata: ["reason": "\(error.message)"])
        condition.lock()
        // Who was cancelled gave up for himself.
        if error.code != .cancelled { failure = (runCount, error) }
        isRunning = false
        condition.broadcast()
        condition.unlock()
        return
      }
    }
  }

  /// Whether what is about to be published can be read: other machines have no other copy.
  private func isWhole(_ item: Item) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      return try PackScanner(file: item.file, name: item.name, codecs: codecs).isWhole()
    } catch {
      guard error.code == .corrupted else { throw error }
      return false
    }
  }

  private func next() -> Item? {
    condition.lock()
    defer { condition.unlock() }
    if let item = waiting[publishedSequence + 1] { return item }
    isRunning = false
    condition.broadcast()
    return nil
  }

  private func finish(_ item: Item) {
    do throws(BlobStorageError) {
      if let session {
        try session.note(item)
        try backend.settle(item.name)
      }
    } catch {
      // Published it is. Whoever opens the store next finds it in the spool and sees that it is.
      logger.warning(
        "Pack \(item.name) was published and not noted.", metadata: ["reason": "\(error.message)"])
    }
    item.file.close()
    condition.lock()
    waiting[item.name.sequence] = nil
    publishedSequence = item.name.sequence
    condition.broadcast()
    condition.unlock()
  }

  private func stop(_ error: BlobStorageError) {
    condition.lock()
    ending = error
    condition.unlock()
    session?.end(error)
    condition.lock()
    isRunning = false
    condition.broadcast()
    condition.unlock()
  }
}
