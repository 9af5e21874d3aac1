import BlobStorage
import BlobStorageTrees
import Foundation

/// Collects what an import finds, and records it as a state if the import records one.
///
/// While it exists, no retention drops what the import may name.
final class ImportedState {
  /// Nil if no state is recorded.
  private let recorder: StateRecorder?
  /// Nil if the recorder holds the lock, or in a dry run.
  private let lock: StatesLock?

  init(_ engine: Engine, _ options: ImportOptions, sources: [String], start: Date) throws(BlobStorageError) {
    if options.recordsState, !options.isDryRun {
      recorder = try StateRecorder(
        engine, prefix: options.prefix, name: options.stateName, sources: sources,
        created: options.stateDate ?? start)
    } else {
      recorder = nil
      // An import refuses a name that is taken, so its dry run does. A cache may get no state.
      if options.recordsState, let name = options.stateName, try engine.cacheSettings() == nil {
        try StateFile(engine).check(name)
      }
    }
    lock = recorder == nil && !options.isDryRun ? try StatesLock.shared(engine.folder) : nil
  }

  var isRecorded: Bool { recorder != nil }

  func add(_ source: ImportSource, _ version: BlobVersion) {
    guard let recorder else { return }
    recorder.add(Array(source.key.utf8), version.id)
    if source.isLink {
      recorder.state.linkCount += 1
    } else {
      recorder.state.fileCount += 1
      recorder.state.byteCount = recorder.state.byteCount.addingClamped(version.byteCount)
    }
  }

  func addFolder(_ key: String, _ mark: FileMark) {
    recorder?.addFolder(Array(key.utf8), mark.metadata)
    recorder?.state.folderCount += 1
  }

  /// Records the state; nil if the import records none.
  ///
  /// - Parameter failureCount: the number of files missing from the state.
  func finish(failureCount: Int, _ options: ImportOptions) throws(BlobStorageError) -> TreeState? {
    guard let recorder else { return nil }
    recorder.state.failureCount = failureCount
    // An import that found nothing records no state.
    guard recorder.state.fileCount + recorder.state.linkCount + recorder.state.folderCount > 0 else {
      return nil
    }
    if let known = options.knownState, let state = try recorder.equal(known) { return state }
    return try recorder.finish(options.durability)
  }
}
