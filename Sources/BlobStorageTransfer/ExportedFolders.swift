import BlobStorage
import BlobStorageTrees

/// The folders that an export restores: those of the state, or of the last states that have keys with the prefix.
struct ExportedFolders {
  /// A folder with its attributes.
  private struct Folder {
    var key: [UInt8]
    var mark: FileMark
    /// Whether the folder is empty in the state.
    var isEmpty: Bool
  }

  /// Trails are renewed after this many folders.
  private static let countOfTrail = 64

  private let engine: Engine
  private let options: ExportOptions
  /// Parents before children; empty if an export has patterns.
  private var folders: [Folder] = []
  /// Whether a state has folders, even if this export leaves them out.
  private(set) var hasFolders = false
  /// States that cannot be read; their folders are missing here.
  private(set) var unreadable: [SkippedFile] = []

  init(_ engine: Engine, _ options: ExportOptions) throws(BlobStorageError) {
    self.engine = engine
    self.options = options
    guard options.restoresAttributes else { return }
    let file = StateFile(engine)
    var states = options.state.map { [$0] } ?? []
    if options.state == nil { states = try file.latest(overlapping: options.prefix) }
    hasFolders = states.contains { $0.folderCount > 0 }
    guard options.patterns.isEmpty else { return }
    // The state that was recorded last wins.
    var found: [[UInt8]: Folder] = [:]
    for state in states {
      do throws(BlobStorageError) { try Self.read(file.walk(state), options, &found) } catch {
        // Files keep their attributes without the state.
        guard error.code == .corrupted || error.code == .unsupportedFormat, options.state == nil else {
          throw error
        }
        unreadable.append(
          SkippedFile(
            path: state.text, code: error.code,
            reason: "the folders of state \(state.text) cannot be read: \(error.message)", isFailure: true))
      }
    }
    folders = found.values.sorted { $0.key.lexicographicallyPrecedes($1.key) }
  }

  private static func read(
    _ walk: StateWalk, _ options: ExportOptions, _ folders: inout [[UInt8]: Folder]
  ) throws(BlobStorageError) {
    defer { walk.close() }
    var last: [UInt8]?
    while let entry = try walk.next() {
      // The contents of a folder follow it.
      if let last, entry.key.starts(with: last) { folders[last]?.isEmpty = false }
      last = nil
      guard case .folder(let metadata) = entry.content, options.prefix.contains(entry.key),
        let mark = FileMark(metadata: metadata)
      else { continue }
      folders[entry.key] = Folder(key: entry.key, mark: mark, isEmpty: true)
      last = entry.key
    }
  }

  var isEmpty: Bool { folders.isEmpty }

  /// Their paths in the export.
  var paths: Set<[UInt8]> { Set(folders.compactMap(path)) }

  /// Nil for a folder above the exported one.
  private func path(of folder: Folder) -> [UInt8]? {
    var key = folder.key
    if key.last == UInt8(ascii: "/") { key.removeLast() }
    let stripped = options.stripped.start.utf8
    if folder.key.count <= stripped.count, stripped.starts(with: folder.key) {
      return folder.key.elementsEqual(stripped) || key.elementsEqual(stripped) ? [] : nil
    }
    let text = String(decoding: key, as: UTF8.self)
    return VersionWriter.path(of: text, folder.mark.attributes, options).flatMap {
      $0.isEmpty || FolderTrail.leadsDown($0) ? $0 : nil
    }
  }

  /// Gives new folders their attributes, and existing ones if the export overwrites. Children come before parents:
  /// writing into a folder changes its time.
  func restore(
    below target: OutputFolder, _ owners: OwnerNames?, _ report: inout ExportReport
  ) throws(BlobStorageError) {
    let written = try InputFolder(target.path)
    var trails = ExportTrails()
    for (index, folder) in folders.reversed().enumerated() {
      try CancellationFlag.check()
      if index.isMultiple(of: Self.countOfTrail) { trails = ExportTrails() }
      guard let attributes = folder.mark.attributes, let path = path(of: folder) else { continue }
      do throws(BlobStorageError) {
        if !folder.isEmpty, !path.isEmpty,
          try written.status(of: path, through: &trails.existing)?.kind != .directory
        {
          continue
        }
        if VersionWriter.isOwn(path) { throw BlobStorageError(.invalidArgument, VersionWriter.ownName) }
        let restored = RestoredAttributes(
          attributes: attributes, extended: try folder.mark.extendedAttributes(engine),
          modified: folder.mark.modified, owners: owners)
        if try !target.setAttributes(restored, ofFolder: path, through: &trails.written) {
          report.incompleteCount += 1
        }
        report.folderCount += 1
      } catch {
        let skipped = SkippedFile(
          path: String(decoding: folder.key, as: UTF8.self), code: error.code, reason: error.message,
          isFailure: true)
        switch error.code {
        case .noSpace, .cancelled, .closed: throw error
        case .corrupted: report.damaged.append(skipped)
        default: report.skipped.append(skipped)
        }
      }
    }
  }
}
