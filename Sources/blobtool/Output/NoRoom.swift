import BlobStorage
import SystemPackage

/// A full disk or a limit, and how much a command had stored before.
struct NoRoom: Encodable {
  var error: String
  var code: BlobStorageError.Code
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
