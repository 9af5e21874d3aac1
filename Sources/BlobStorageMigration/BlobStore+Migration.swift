import BlobStorage
import BlobStorageTransfer
import BlobStorageTrees
import Foundation

/// The result of a migration.
public struct MigrationReport: Sendable, Hashable, Codable {
  /// A snapshot whose files were imported.
  public struct Snapshot: Sendable, Hashable, Codable {
    public var snapshot: SnapshotRepository.Snapshot
    /// The state that it became; nil if it has no files. If the program could not write it whole, its name ends in
    /// `-partial`, and the next migration imports the snapshot again.
    public var state: TreeState?
    /// Files that could not be imported.
    public var skipped: [SkippedFile]
  }

  public var snapshots: [Snapshot] = []
  /// Snapshots that were states already.
  public var knownCount = 0
  public var newByteCount: Int64 = 0
  public var storedByteCount: Int64 = 0

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case snapshots, newByteCount, storedByteCount
    case knownCount = "known"
  }
}

extension BlobStore {
  /// Imports all snapshots of another program's repository, oldest first, so that each becomes a state with its time.
  ///
  /// The program writes each snapshot into a folder, which is imported and removed: that needs room for the longest
  /// one. A file that is as in the snapshot before keeps its version. Snapshots that are states already are passed
  /// over, so that an interrupted migration can be started again. If the program cannot write a snapshot whole, the
  /// state has what it has written, and a name that ends in `-partial`. The next migration imports the snapshot again;
  /// the same part is no second state. A snapshot that is imported after a younger one changes no current version. A
  /// cancelled task ends the program.
  ///
  /// - Parameters:
  ///   - options: how to import; its prefix applies to all keys. Each state gets the name of its snapshot.
  ///   - workFolder: the folder for the snapshots' folders; nil for the system's folder for temporary files.
  ///   - begin: called with each snapshot before its import.
  /// - Throws: `sourceFailed` with the program's message, and what an import throws.
  /// - Durability: unless `options` are relaxed, each state is durable before the next snapshot is begun.
  public func importSnapshots(
    of repository: SnapshotRepository, options: ImportOptions = ImportOptions(), workFolder: URL? = nil,
    begin: @escaping @Sendable (SnapshotRepository.Snapshot) -> Void = { _ in },
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> MigrationReport {
    var report = MigrationReport()
    let snapshots = try await Self.blocking { () throws(BlobStorageError) in try repository.snapshots() }
    let states = try await states()
    var names = Set(states.compactMap(\.name))
    let prefix = options.prefix.start
    let known = states.filter { $0.prefix.utf8.elementsEqual(prefix.utf8) }
    let youngest = known.map(\.created).max()
    for snapshot in snapshots {
      func last(isWhole: Bool) -> TreeState? {
        known.last { state in state.name.map { snapshot.names($0, isWhole: isWhole) } ?? false }
      }
      if last(isWhole: true) != nil {
        report.knownCount += 1
        continue
      }
      if Task.isCancelled { throw BlobStorageError(.cancelled, "The migration was cancelled.") }
      begin(snapshot)
      let workFolder = (workFolder ?? FileManager.default.temporaryDirectory)
        .appending(path: "blobtool-migration-\(UUID().uuidString)")
      let folder = workFolder.appending(path: "files")
      defer { Self.remove(workFolder) }
      do {
        // The program sets the modes of folders last: no other user may look into them before.
        try FileManager.default.createDirectory(
          at: workFolder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: false)
      } catch {
        throw BlobStorageError(
          .io, "The folder \(folder.path) for a snapshot cannot be created.", path: folder.path,
          underlying: error)
      }
      var skipped: [SkippedFile] = []
      var isWhole = true
      func skip(_ reason: String) {
        skipped.append(
          SkippedFile(path: snapshot.id, code: .sourceFailed, reason: reason, isFailure: true))
      }
      do throws(BlobStorageError) {
        let warnings = try await Self.blocking { () throws(BlobStorageError) in
          try repository.extract(snapshot, to: folder)
        }
        if let warnings { skip(warnings) }
      } catch {
        // One file that cannot be restored does not exclude the others.
        let written = try? FileManager.default.contentsOfDirectory(atPath: folder.path)
        guard error.code == .sourceFailed, written?.isEmpty == false else { throw error }
        isWhole = false
        skip(
          "The rest was imported; import again when \(repository.program.rawValue) can read it: \(error.message)"
        )
      }
      // The state has the time of the folder.
      try? FileManager.default.setAttributes([.modificationDate: snapshot.created], ofItemAtPath: folder.path)
      var options = options
      // The same snapshot may be a state of another prefix.
      let wanted = isWhole ? snapshot.stateName : snapshot.partialName
      var (name, number) = (wanted, 1)
      while !names.insert(name).inserted {
        number += 1
        name = "\(wanted)-\(number)"
      }
      options.stateName = name
      options.recordsState = true
      // A younger state has what is current.
      if let youngest, snapshot.created < youngest {
        options.keepsCurrent = true
        options.replacement = .archiveCurrent
      }
      // Of the same snapshot, the whole state is the later one.
      options.stateDate = isWhole ? snapshot.created : snapshot.created.addingTimeInterval(-0.001)
      options.comparesContent = true
      options.origin = TreeOrigin(
        snapshot.paths, identity: snapshot.identity, host: snapshot.host, isTakenOver: true)
      if !isWhole {
        options.knownState = last(isWhole: false)?.id
        options.missingPaths = ["what \(repository.program.rawValue) could not write of \(snapshot.id)"]
      }
      let imported = try await importFiles([folder.path], options: options, progress: progress)
      report.newByteCount += imported.newByteCount
      report.storedByteCount += imported.storedByteCount
      report.snapshots.append(
        MigrationReport.Snapshot(
          snapshot: snapshot, state: imported.state, skipped: skipped + imported.skipped))
    }
    return report
  }

  /// Removes a folder, whatever its modes.
  private static func remove(_ folder: URL) {
    if (try? FileManager.default.removeItem(at: folder)) != nil { return }
    let files = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: [.isDirectoryKey])
    while let url = files?.nextObject() as? URL {
      if (try? url.resourceValues(forKeys: [.isDirectoryKey]))?.isDirectory == true {
        try? FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: url.path)
      }
    }
    try? FileManager.default.removeItem(at: folder)
  }
}
