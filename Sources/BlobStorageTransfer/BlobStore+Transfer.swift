import BlobStorage
import SystemPackage

extension BlobStore {
  /// Stores files and whole trees of files. See ``ImportOptions``.
  ///
  /// - Parameter onFile: receives each file that is stored or unchanged. No file is durable before the call returns.
  /// - Throws: `keysCollide`, `busy` if a retention drops states for over a minute, and other errors that end the whole
  ///   import. A file that cannot be read is in the report.
  public func importFiles(
    _ paths: [some PathConvertible], options: ImportOptions = ImportOptions(),
    progress: ProgressHandler? = nil, onFile: TransferHandler? = nil
  ) async throws(BlobStorageError) -> ImportReport {
    let paths = try paths.map { (path) throws(BlobStorageError) in try path.filePath() }
    return try await work { (engine) throws(BlobStorageError) in
      try engine.watched("import", on: paths.map(\.string).joined(separator: ", "), progress) {
        (progress) throws(BlobStorageError) in
        try Importer(engine, options, progress, onFile: onFile).run(paths)
      }
    }
  }

  /// Writes the current versions of keys, or the versions of a state, as files below a folder. See ``ExportOptions``.
  ///
  /// - Parameter onFile: receives each file that is written or unchanged.
  public func exportFiles(
    to folder: some PathConvertible, options: ExportOptions = ExportOptions(),
    progress: ProgressHandler? = nil, onFile: TransferHandler? = nil
  ) async throws(BlobStorageError) -> ExportReport {
    let folder = try folder.filePath()
    return try await work { (engine) throws(BlobStorageError) in
      try engine.watched("export", on: folder.string, progress) { (progress) throws(BlobStorageError) in
        try Exporter(engine, options, progress, onFile).run(folder)
      }
    }
  }

  /// Copies the keys of this store with all their versions into another. See ``CopyOptions``.
  ///
  /// Sends only the chunks that the target lacks, as they are stored. A repeated copy continues where the last one
  /// ended. A key that changes during the copy is copied as of one moment.
  ///
  /// - Throws: `invalidArgument` for the same store or another digest algorithm, `busy` if a retention drops states for
  ///   over a minute, and what else ends the copy. For a mirror also `corrupted` and `wouldDropMany`. A version that
  ///   cannot be read is in the report, and the others are copied.
  /// - Durability: everything copied is on the medium on return, or published if the target is in a bucket.
  public func copy(
    to target: BlobStore, options: CopyOptions = CopyOptions(), progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> CopyReport {
    try await work { (source) throws(BlobStorageError) in
      try target.engine.watched("copy", on: source.information.path, progress) {
        (progress) throws(BlobStorageError) in
        try Copier(from: source, to: target.engine, options, progress).run()
      }
    }
  }
}
