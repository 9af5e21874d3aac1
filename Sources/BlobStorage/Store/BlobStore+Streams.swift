import Foundation

extension BlobStore {
  /// Stores what a sequence delivers, part by part, as the current version of a key.
  ///
  /// The store asks for the next part once it has taken the one before, so memory is bounded for any length. While the
  /// sequence waits, it occupies no thread that other operations need. The parts may have any length. Nothing is visible
  /// before the sequence has ended. If the put fails meanwhile, the call throws when the sequence has delivered the part
  /// under way, or has ended.
  ///
  /// - Parameters:
  ///   - source: the bytes in order. It is asked for nothing more once the put has failed.
  ///   - key: as for ``put(_:forKey:options:progress:)``.
  ///   - options: durability, condition, codec, metadata, and what happens to the previous version.
  ///   - progress: receives the bytes that were read.
  /// - Throws: `sourceFailed` if the sequence throws, `cancelled` if the task is cancelled, and what
  ///   ``put(_:forKey:options:progress:)`` throws; the key is then unchanged, and nothing is held.
  /// - Durability: as `options` says.
  /// - Complexity: each call has a thread of its own until it returns.
  @discardableResult
  public func put<Source: AsyncSequence>(
    from source: Source, forKey key: String, options: PutOptions = PutOptions(),
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> PutResult where Source.Element: Sequence<UInt8> {
    // Before the source is asked for anything.
    try await run { (engine) throws(BlobStorageError) in
      try engine.checkOpen()
      try engine.check(options.condition, on: try Engine.keyBytes(key))
    }
    let (engine, handover) = (engine, Handover())
    async let outcome = Self.result { () throws(BlobStorageError) in
      defer { handover.stop() }
      return try await OperationPool(width: 1, idleSeconds: 0).run { () throws(BlobStorageError) in
        try Self.put(engine, key, .stream { try handover.next() }, options, progress)
      }
    }
    do {
      for try await part in source {
        let data = Data(part)
        // No bytes would be the end.
        if !data.isEmpty, await !handover.give(data) { break }
      }
      // The sequence may end because the task was cancelled: then its end is not the end of the content.
      try Task.checkCancellation()
      handover.end()
    } catch { handover.end(error) }
    return try await outcome.get()
  }

  /// The bytes of a range of a key's current or named version, clamped at the blob's end; nil when there is no version.
  ///
  /// - Throws: `invalidArgument` for a range that begins past the end or below 0, `corrupted`.
  /// - Complexity: reads only the chunks that the range touches. For several ranges of one blob, a reader is faster.
  public func data(
    forKey key: String, version: BlobVersion.ID? = nil, in range: Range<Int64>
  ) async throws(BlobStorageError) -> Data? {
    try await run { (engine) throws(BlobStorageError) in
      guard let blob = try engine.openBlob(key, version) else { return nil }
      defer { blob.close() }
      return Data(try blob.read(range))
    }
  }

  /// Opens a key's current or named version, passes it to `body`, and closes it; nil when there is no version.
  public func withReader<Result>(
    forKey key: String, version: BlobVersion.ID? = nil, isolation: isolated (any Actor)? = #isolation,
    _ body: (BlobReader) async throws -> Result
  ) async throws -> Result? {
    guard let reader = try await reader(forKey: key, version: version) else { return nil }
    defer { reader.close() }
    return try await body(reader)
  }

  private static func result<T>(
    _ body: () async throws(BlobStorageError) -> T
  ) async -> Result<T, BlobStorageError> {
    do throws(BlobStorageError) { return .success(try await body()) } catch { return .failure(error) }
  }
}

/// Hands parts of content from a task to a thread, one at a time.
private final class Handover: Sendable {
  private struct State: Sendable {
    var part: Data?
    /// Waits until the part was taken, and learns whether more is wanted.
    var giver: CheckedContinuation<Bool, Never>?
    var hasEnded = false
    var failure: (any Error)?
    var isWanted = true
  }

  private let state = Monitor(State())

  /// Waits until the part was taken; false if nothing more is wanted.
  func give(_ part: Data) async -> Bool {
    await withCheckedContinuation { giver in
      let isWanted = state.withLock { state in
        if state.isWanted { (state.part, state.giver) = (part, giver) }
        return state.isWanted
      }
      if isWanted { state.wakeOne() } else { giver.resume(returning: false) }
    }
  }

  /// Says that there are no more parts, and why, if something failed.
  func end(_ failure: (any Error)? = nil) {
    state.withLock { ($0.hasEnded, $0.failure) = (true, failure) }
    state.wakeOne()
  }

  /// Waits for the next part; nil at the end.
  func next() throws -> Data? {
    let (part, giver, failure) = try state.withLockUnlessCancelled(when: { $0.part != nil || $0.hasEnded }) {
      ($0.part.take(), $0.giver.take(), $0.failure)
    }
    giver?.resume(returning: true)
    if let failure { throw failure }
    return part
  }

  /// Says that nothing more is wanted.
  func stop() {
    let giver = state.withLock { state in
      (state.isWanted, state.part) = (false, nil)
      return state.giver.take()
    }
    giver?.resume(returning: false)
  }
}
