import BlobStorage
import Synchronization
import SystemPackage

/// A full disk or a limit, and how much a command had stored before.
struct NoRoom: Encodable {
  var error: String
  var code = BlobStorageError.Code.noSpace
  /// For an import or a put.
  var files: Int? = 0
  /// For a copy.
  var keys: Int?
  var byteCount: Int64 = 0

  /// The failure. With `--json`, also prints it on standard error as an object.
  ///
  /// - Parameters:
  ///   - stored: what the command had stored.
  ///   - then: what to do once there is room.
  ///   - place: the place of the store.
  func failure(_ stored: String, then: String, json: Bool, in place: StorePlace) throws -> Failure {
    if json { StandardError.write(try JSONText().line(self) + "\n") }
    let remedy =
      switch place {
      case .folder: "free space with `blobtool delete` and `blobtool gc`, which work on a full disk"
      case .bucket(_, let state, _):
        "free space on the disk of \(state.printable), where this machine keeps the state of the store"
      }
    return Failure(ExitStatus.failed, "\(error.clause): \(stored); \(remedy), and \(then).")
  }
}

extension OutputOptions {
  /// Shows the progress of an import or a copy. If the disk is full, the failure says how much is in the store.
  ///
  /// - Parameters:
  ///   - work: the word for the work.
  ///   - store: the words for the store.
  ///   - isOfKeys: whether the work counts keys; else it counts files.
  func withProgress<T>(
    of work: String, in place: StorePlace, _ store: String, isOfKeys: Bool = false,
    _ body: (ProgressMeter, @escaping ProgressHandler) async throws -> T
  ) async throws -> T {
    let latest = Mutex<WorkProgress?>(nil)
    do {
      return try await withProgress { meter in
        try await body(meter) { progress in
          latest.withLock { $0 = progress }
          meter.update(progress)
        }
      }
    } catch let error as BlobStorageError where error.fullDiskMessage != nil {
      let (count, byteCount) = latest.withLock { ($0?.doneCount ?? 0, $0?.doneByteCount ?? 0) }
      let room = NoRoom(
        error: error.fullDiskMessage ?? error.message, files: isOfKeys ? nil : count,
        keys: isOfKeys ? count : nil, byteCount: byteCount)
      throw try room.failure(
        "\(HumanText.count(count, isOfKeys ? "key" : "file")) of this \(work), \(HumanText.size(byteCount)),"
          + " \(count == 1 ? "is" : "are") in \(store)",
        then: "start the \(work) again to continue it", json: json, in: place)
    }
  }
}

extension BlobStorageError {
  /// The message for a full disk; nil for another error. In a bucket, a pack without room ends its writer.
  var fullDiskMessage: String? {
    if code == .noSpace { return message }
    guard code == .poisoned, let path, let reason = errno.map(Errno.init(rawValue:)),
      reason == .noSpace || reason == .diskQuotaExceeded
    else { return nil }
    return "cannot write \(path): \(reason.description)"
  }
}
