import BlobStorage
import BlobStorageTrees
import Foundation
import SystemPackage

/// Collects what an import finds, and records it as a state if the import records one.
///
/// While it exists, no retention drops what the import may name.
final class ImportedState {
  /// Nil if no state is recorded.
  private let recorder: StateRecorder?
  /// Nil if the recorder holds the lock, or in a dry run.
  private let lock: StatesLock?

  init(
    _ engine: Engine, _ options: ImportOptions, _ paths: [FilePath], created: Date
  ) throws(BlobStorageError) {
    if options.recordsState, !options.isDryRun {
      var origin = options.origin
      if origin == nil { origin = try Self.origin(of: paths, options) }
      recorder = try StateRecorder(
        engine, prefix: options.prefix.start, name: options.stateName, origin: origin ?? TreeOrigin([]),
        created: options.stateDate ?? created)
    } else {
      recorder = nil
      // An import refuses a name that is taken, so its dry run does. A cache may get no state.
      if options.recordsState, let name = options.stateName, try engine.cacheSettings() == nil {
        try StateFile(engine).check(name)
      }
    }
    lock = recorder == nil && !options.isDryRun ? try StatesLock.shared(engine.folder) : nil
  }

  /// Files of one folder are one source, because a program may name its files by the day. So is a list of files, which
  /// says nothing of where the next one comes from.
  private static func origin(
    of paths: [FilePath], _ options: ImportOptions
  ) throws(BlobStorageError) -> TreeOrigin {
    var sources: [String] = []
    var identity: [String] = []
    for path in paths {
      let whole = try Engine.absolute(path.string).lexicallyNormalized()
      sources.append(whole.string)
      if options.keepsPaths { continue }
      let isFile = try SystemFiles().status(of: path)?.kind == .regular
      identity.append(isFile ? whole.removingLastComponent().pushing("*").string : whole.string)
    }
    return TreeOrigin(sources, identity: identity)
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
  /// - Parameter failed: the paths of the files that the state lacks.
  func finish(failed: [String], _ options: ImportOptions) throws(BlobStorageError) -> TreeState? {
    guard let recorder else { return nil }
    recorder.state.failedPaths = options.missingPaths + failed
    recorder.state.failureCount = recorder.state.failedPaths.count
    // An import that found nothing records no state.
    guard recorder.state.fileCount + recorder.state.linkCount + recorder.state.folderCount > 0 else {
      return nil
    }
    if let known = options.knownState, let state = try recorder.equal(known) { return state }
    return try recorder.finish(options.durability)
  }
}
