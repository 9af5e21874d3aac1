extension LocalSharing {
  package func collect(
    _ engine: Engine, _ options: GarbageCollectionOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    guard options.fencedWriters.isEmpty else {
      throw BlobStorageError(
        .invalidArgument, "Only writers of a store in a bucket can be fenced: end the process instead.")
    }
    return try engine.collectGarbage(options, progress, by: LocalRemoval())
  }
}
