import BlobStorage
import SystemPackage

/// One kind of call on a simulated disk.
package enum CallKind: String, Sendable, Hashable, CaseIterable {
  case open, create, statusOfPath, list, createDirectory, rename, remove, removeDirectory, syncDirectory
  case read, write, synchronize, truncate, allocate, status, lock, unlock
  /// On a word of shared memory.
  case load, store
  /// Another step of a process: a lock of the catalog, or of bytes of the live table.
  case step

  /// Whether the call can change the disk, or what other processes see.
  package var isMutating: Bool {
    switch self {
    case .create, .createDirectory, .rename, .remove, .removeDirectory, .syncDirectory: true
    case .write, .synchronize, .truncate, .allocate, .store: true
    case .open, .statusOfPath, .list, .read, .status, .lock, .unlock, .load, .step: false
    }
  }

  /// Memory cannot fail, and no fault is planned for a step.
  package var canFail: Bool { self != .load && self != .store && self != .step }
}

/// One call that was made.
package struct CallRecord: Sendable, CustomStringConvertible {
  /// Its number among all calls on the disk, from 1.
  package let number: Int
  /// Its number among the mutating calls on the disk, from 1; nil for the others.
  package let mutationNumber: Int?
  /// The number of the process that made it.
  package let process: Int
  package let kind: CallKind
  /// The path, and the range or the second path.
  package let detail: String

  package var description: String { "#\(number) process \(process): \(kind.rawValue) \(detail)" }
}

/// A planned failure of a simulated disk.
package struct Fault: Sendable {
  /// The kind of call that fails; nil for any.
  package var kind: CallKind?
  /// Which of these calls fails, counted from 1 at the moment the fault is planned.
  package var count: Int
  /// The error of the call.
  package var errno: Errno
  /// Bytes of a failing write that are written nevertheless.
  package var landingByteCount: Int
  /// Whether all later calls of the kind fail too.
  package var isPermanent: Bool

  /// A failure of the `count`-th call of that kind from now on.
  package init(
    _ kind: CallKind?, count: Int = 1, errno: Errno, landingByteCount: Int = 0, isPermanent: Bool = false
  ) {
    precondition(count >= 1)
    self.kind = kind
    self.count = count
    self.errno = errno
    self.landingByteCount = landingByteCount
    self.isPermanent = isPermanent
  }
}

extension BlobStorageError.Code {
  /// The simulated process was killed, or stopped by the hook before a call.
  package static let simulatedStop = Self(rawValue: "simulatedStop")
}

extension BlobStorageError {
  /// The error by which a hook kills the calling process before the call.
  package static let simulatedStop = Self(.simulatedStop, "the simulated process was stopped")
}
