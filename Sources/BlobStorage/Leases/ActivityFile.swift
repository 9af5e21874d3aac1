import Foundation
import SystemPackage

/// Reports the progress of long work to other processes. A failure to write is never a reason for the work to fail: the
/// work then stays unreported.
final class ActivityFile: Sendable {
  static let suffix = ".activity"
  private static let secondsBetweenWrites = 0.25

  private struct State {
    var file: (any File)?
    var path: FilePath?
    var hasFailed = false
    var pace = WorkPace()
    var phase: String?
    var written = -1.0
  }

  private let folder: StoreFolder
  private let wallClock: WallClock
  private let operation: String
  private let subject: String
  private let byteCountMin: Int64
  private let started: UInt64
  private let clock = ContinuousClock.now
  private let state = IOLock(State())

  /// - Parameter byteCountMin: the bytes after which the work is reported.
  init(
    _ folder: StoreFolder, _ clock: WallClock, _ operation: String, _ subject: String, byteCountMin: Int64
  ) {
    self.folder = folder
    wallClock = clock
    self.operation = operation
    self.subject = subject
    self.byteCountMin = byteCountMin
    started = clock.now()
  }

  func update(_ progress: WorkProgress) {
    state.withLock { state in
      let now = clock.duration(to: .now) / .seconds(1)
      state.pace.update(progress, at: now)
      guard !state.hasFailed, progress.doneByteCount >= byteCountMin,
        progress.phase != state.phase || now - state.written >= Self.secondsBetweenWrites
      else { return }
      do throws(BlobStorageError) {
        if state.file == nil { try create(&state) }
        let bytes = record(progress, state.pace, now).encoded()
        try state.file?.put(bytes, at: 0)
        state.phase = progress.phase
        state.written = now
      } catch { state.hasFailed = true }
    }
  }

  /// Ends the report.
  func end() {
    state.withLock { state in
      // If the file stays, the next reader removes it.
      if let path = state.path { folder.files.discard(path) }
      state.file?.close()
      state.file = nil
      state.hasFailed = true
    }
  }

  private func create(_ state: inout State) throws(BlobStorageError) {
    try folder.makePart(folder.activities)
    // Removes files of dead processes, which would otherwise accumulate if no process reads them.
    _ = try StoreActivity.all(folder)
    let name = Hex.text(randomUInt64()) + Self.suffix
    state.file = try OwnedFiles(folder: folder.activities, files: folder.files).create(name)
    state.path = folder.activities.entry(name)
  }

  private func record(_ progress: WorkProgress, _ pace: WorkPace, _ now: Double) -> ActivityRecord {
    ActivityRecord(
      operation: operation, processID: ProcessInfo.processInfo.processIdentifier, started: started,
      updated: wallClock.now(), phase: progress.phase, doneByteCount: progress.doneByteCount,
      totalByteCount: progress.totalByteCount, doneCount: Int64(progress.doneCount),
      totalCount: Int64(progress.totalCount), bytesPerSecond: pace.bytesPerSecond.map { Int64($0) } ?? -1,
      millisecondsLeft: pace.secondsLeft(at: now).map { Int64(min($0, 1e12) * 1_000) } ?? -1,
      subject: subject)
  }
}

extension StoreActivity {
  /// The current work on a store, in the order of its beginning. Removes the files of dead processes.
  ///
  /// A process locks its file while it lives, so a free lock proves that it is dead.
  package static func all(_ folder: StoreFolder) throws(BlobStorageError) -> [StoreActivity] {
    let files = folder.files
    guard try files.status(of: folder.activities)?.kind == .directory else { return [] }
    var activities: [StoreActivity] = []
    let owned = OwnedFiles(folder: folder.activities, files: files)
    for name in try files.list(folder.activities) {
      do throws(BlobStorageError) {
        try owned.visit(name, .read) { (file, isDead) throws(BlobStorageError) in
          if isDead {
            files.discard(folder.activities.entry(name))
          } else if name.hasSuffix(ActivityFile.suffix), let record = try record(file) {
            activities.append(StoreActivity(record))
          }
        }
      } catch {
        // The file belongs to another user.
        continue
      }
    }
    return activities.sorted { ($0.started, $0.processID) < ($1.started, $1.processID) }
  }

  private static func record(_ file: any File) throws(BlobStorageError) -> ActivityRecord? {
    // A slot can be torn if its process writes it during the read.
    for _ in 0..<4 {
      let bytes = try file.bytes(at: 0, ActivityRecord.byteCount, pack: nil)
      if let record = bytes.withUnsafeBytes({ ActivityRecord($0) }) { return record }
    }
    return nil
  }
}
