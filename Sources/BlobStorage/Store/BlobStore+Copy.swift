extension BlobStore {
  /// Copies what this store shows into another: keys with all their versions, under the same IDs. See ``CopyOptions``.
  ///
  /// Chunks go over as they are stored, and only those that the target lacks. Repeated, it goes on where it ended,
  /// whatever ended it. Keys that change meanwhile are copied as they were at some moment of it.
  ///
  /// - Throws: `invalidArgument` for the same store, or another digest; what ends the whole copy. A version that cannot be
  ///   read is in the report, and the others are copied.
  /// - Durability: all that was copied is on the medium on return; published, where the target's packs are objects.
  public func copy(
    to target: BlobStore, options: CopyOptions = CopyOptions(), progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> CopyReport {
    try await run { (source) throws(BlobStorageError) in
      try target.engine.watched("copy", on: source.information.path, progress) {
        (progress) throws(BlobStorageError) in
        try Copier(from: source, to: target.engine, options, progress).run()
      }
    }
  }
}
