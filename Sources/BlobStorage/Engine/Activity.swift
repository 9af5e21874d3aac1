import Foundation
import SystemPackage

/// Long work that a process currently does on a store, as it reports it.
public struct Activity: Sendable, Hashable {
  /// The kind of work: "put", "import", "export", "copy", "gc", "verify", "repair", "report"; a later build may have
  /// others.
  public var operation: String
  /// What it works on: a key, paths or a folder; empty when that is the store.
  public var subject: String
  public var processID: Int32
  public var started: Date
  /// The time of its last report.
  public var updated: Date
  public var progress: WorkProgress
  public var bytesPerSecond: Double?
  /// Seconds left in this phase, as the work saw it at `updated`.
  public var secondsLeft: Double?

  init(_ record: ActivityRecord) {
    operation = record.operation
    subject = record.subject
    processID = record.processID
    started = Date(timeIntervalSince1970: Double(record.started) / 1_000)
    updated = Date(timeIntervalSince1970: Double(record.updated) / 1_000)
    progress = WorkProgress(
      phase: record.phase, doneByteCount: record.doneByteCount, totalByteCount: record.totalByteCount,
      doneCount: Int(record.doneCount), totalCount: Int(record.totalCount))
    bytesPerSecond = record.bytesPerSecond < 0 ? nil : Double(record.bytesPerSecond)
    secondsLeft = record.millisecondsLeft < 0 ? nil : Double(record.millisecondsLeft) / 1_000
  }

  /// The work in progress on a store, in order of its beginning. Removes the files of dead processes.
  ///
  /// Each file is locked for as long as its process lives, so a free lock proves that the process is dead.
  package static func all(_ folder: StoreFolder) throws(BlobStorageError) -> [Activity] {
    let files = folder.files
    guard try files.status(of: folder.activities)?.kind == .directory else { return [] }
    var activities: [Activity] = []
    let owned = OwnedFiles(folder: folder.activities, files: files)
    for name in try files.list(folder.activities) {
      do throws(BlobStorageError) {
        try owned.visit(name, .read) { (file, isDead) throws(BlobStorageError) in
          if isDead {
            files.discard(folder.activities.appending(name))
          } else if name.hasSuffix(ActivityFile.suffix), let record = try record(file) {
            activities.append(Activity(record))
          }
        }
      } catch {
        // It belongs to another user.
        continue
      }
    }
    return activities.sorted { ($0.started, $0.processID) < ($1.started, $1.processID) }
  }

  private static func record(_ file: any File) throws(BlobStorageError) -> ActivityRecord? {
    // A slot that is being written while it is read can be torn.
    for _ in 0..<4 {
      let bytes = try file.bytes(at: 0, ActivityRecord.byteCount, pack: nil)
      if let record = bytes.withUnsafeBytes({ ActivityRecord($0) }) { return record }
    }
    return nil
  }
}
