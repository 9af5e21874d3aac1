import Foundation
import Synchronization
import SystemPackage

/// Tells other processes how far long work is. Nothing about it is ever a reason for the work to fail: where nothing
/// can be written, the work stays unreported.
final class ActivityFile: Sendable {
  static let suffix = ".activity"
  private static let secondsBetweenWrites = 0.25

  private struct State: Sendable {
    var file: (any File)?
    var path: FilePath?
    var hasFailed = false
    var pace = WorkPace()
    var phase: String?
    var written = -1.0
  }

  private let engine: Engine
  private let operation: String
  private let subject: String
  private let byteCountMin: Int64
  private let started: UInt64
  private let clock = ContinuousClock.now
  private let state = Mutex(State())

  /// - Parameter byteCountMin: bytes after which the work is reported.
  init(_ engine: Engine, _ operation: String, _ subject: String, byteCountMin: Int64) {
    self.engine = engine
    self.operation = operation
    self.subject = subject
    self.byteCountMin = byteCountMin
    started = engine.clock.now()
  }

  func update(_ progress: WorkProgress) {
    state.withLock { state in
      let now = clock.duration(to: .now) / .seconds(1)
      state.pace.note(progress, at: now)
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

  /// The work has ended.
  func end() {
    state.withLock { state in
      // The next reader removes what stays.
      if let path = state.path { engine.folder.files.discard(path) }
      state.file?.close()
      state.file = nil
      state.hasFailed = true
    }
  }

  private func create(_ state: inout State) throws(BlobStorageError) {
    let folder = engine.folder
    try folder.makePart(folder.activities)
    // Otherwise files of dead processes would accumulate where no process reads them.
    _ = try Activity.all(folder)
    let name = Hex.text(randomUInt64()) + Self.suffix
    state.file = try OwnedFiles(folder: folder.activities, files: folder.files).create(name)
    state.path = folder.activities.appending(name)
  }

  private func record(_ progress: WorkProgress, _ pace: WorkPace, _ now: Double) -> ActivityRecord {
    ActivityRecord(
      operation: operation, processID: ProcessInfo.processInfo.processIdentifier, started: started,
      updated: engine.clock.now(), phase: progress.phase, doneByteCount: progress.doneByteCount,
      totalByteCount: progress.totalByteCount, doneCount: Int64(progress.doneCount),
      totalCount: Int64(progress.totalCount), bytesPerSecond: pace.bytesPerSecond.map { Int64($0) } ?? -1,
      millisecondsLeft: pace.secondsLeft(at: now).map { Int64(min($0, 1e12) * 1_000) } ?? -1,
      subject: subject)
  }
}

extension Engine {
  /// Does long work so that other processes can watch it, too.
  func watched<T>(
    _ operation: String, on subject: String = "", byteCountMin: Int64 = 0, _ progress: ProgressHandler?,
    _ body: (@escaping ProgressHandler) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let file = ActivityFile(self, operation, subject, byteCountMin: byteCountMin)
    defer { file.end() }
    return try body { report in
      file.update(report)
      progress?(report)
    }
  }
}
