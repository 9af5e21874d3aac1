import BlobStorage
import Foundation
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
///
/// Where several threads use the disk, the fault belongs to one of them or to a file. Otherwise it would be for whichever thread
/// comes first.
package struct Fault: Sendable {
  /// The kind of call that fails; nil for any.
  package var kind: CallKind?
  /// The thread whose calls fail; nil for any.
  package var thread: ThreadIdentity?
  /// A part of the path, for calls on certain files; nil for any.
  package var pathPart: String?
  /// Which of these calls fails, counted from 1 at the moment the fault is planned.
  package var count: Int
  /// The error of the call.
  package var errno: Errno
  /// Bytes of a failing write that are written nevertheless.
  package var landingByteCount: Int
  /// Whether all later calls of the kind fail too.
  package var isPermanent: Bool

  /// A failure of the `count`-th call of that kind from now on.
  ///
  /// - Parameters:
  ///   - thread: whose calls count; nil for any thread's.
  ///   - pathPart: a part of the paths that count; nil for any path.
  package init(
    _ kind: CallKind?, of thread: ThreadIdentity? = nil, in pathPart: String? = nil, count: Int = 1,
    errno: Errno,
    landingByteCount: Int = 0, isPermanent: Bool = false
  ) {
    precondition(count >= 1)
    self.kind = kind
    self.thread = thread
    self.pathPart = pathPart
    self.count = count
    self.errno = errno
    self.landingByteCount = landingByteCount
    self.isPermanent = isPermanent
  }
}

extension Fault {
  /// Whether the fault is for a call of this thread.
  func isFor(_ kind: CallKind, _ path: String) -> Bool {
    (self.kind ?? kind) == kind && (thread ?? .current) == .current && (pathPart.map(path.contains) ?? true)
  }
}

/// A thread of this process.
package struct ThreadIdentity: Sendable, Hashable {
  private let number: UInt

  /// The thread that runs this.
  package static var current: Self {
    Self(number: UInt(bitPattern: Unmanaged.passUnretained(Thread.current).toOpaque()))
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
