import Foundation

extension BlobStore {
  /// Stores bytes without a key. gc keeps them until the hold is released; ``link(_:to:options:)`` gives them a key.
  ///
  /// - Parameters:
  ///   - content: the bytes, a file, an open descriptor or a closure.
  ///   - name: the name of the hold.
  ///   - options: the codec. Holds are durable, and metadata belong to versions.
  ///   - progress: receives the bytes of long content that were read, and the total if it is known.
  /// - Throws: `conditionFailed` if the name holds another blob; `invalidArgument` for a name that cannot be one, and in
  ///   a store in a bucket; what ``put(_:forKey:options:progress:)`` throws. Then nothing is held.
  /// - Durability: durable.
  /// - Complexity: as of a durable put, and two more syncs for the hold.
  public func put(
    _ content: BlobContent, holding name: String, options: PutOptions = PutOptions(),
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> BlobHold {
    try await run { (engine) throws(BlobStorageError) in
      try engine.put(content, holding: name, options, progress)
    }
  }

  /// Keeps a blob from gc until the hold is released, whatever happens to the keys that have it.
  ///
  /// - Returns: nil if the store has no blob with that digest.
  /// - Throws: `conditionFailed` if the name holds another blob; `corrupted` for a blob that is damaged.
  /// - Durability: durable.
  /// - Complexity: reads and verifies the blob.
  @discardableResult
  public func hold(_ digest: BlobDigest, as name: String) async throws(BlobStorageError) -> BlobHold? {
    try await run { (engine) throws(BlobStorageError) in try engine.hold(digest, as: name) }
  }

  /// Ends a hold; false if there is none of that name. gc removes the blob then, unless a version or a hold has it.
  ///
  /// - Durability: durable.
  @discardableResult
  public func release(_ name: String) async throws(BlobStorageError) -> Bool {
    try await run { (engine) throws(BlobStorageError) in try engine.release(name) }
  }

  /// All holds, by name.
  ///
  /// - Throws: `corrupted` if the file `holds` cannot be read. gc removes nothing then.
  public func holds() async throws(BlobStorageError) -> [BlobHold] {
    try await run { (engine) throws(BlobStorageError) in try engine.holds() }
  }
}
