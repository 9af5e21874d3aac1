import Foundation

/// An error, with one sentence for people and one code for programs.
///
/// The message names the key, digest, pack or path, and the remedy, if there is one. New codes may be added: switch
/// over `code` with a default.
///
/// All methods throw this type. A cancelled task gets the code `cancelled` instead of `CancellationError`: check
/// ``isCancellation``.
public struct BlobStorageError: Error, Sendable, CustomStringConvertible {
  /// A stable name for a kind of failure.
  public struct Code: RawRepresentable, Hashable, Sendable, Codable, CustomStringConvertible {
    /// The name, as in logs and JSON.
    public let rawValue: String

    /// A code with that name.
    public init(rawValue: String) { self.rawValue = rawValue }

    init(_ name: String) { self.init(rawValue: name) }

    public var description: String { rawValue }
  }

  /// The kind of failure.
  public let code: Code
  /// One sentence for people.
  public let message: String
  /// The key concerned.
  public var key: String?
  /// The digest concerned.
  public var digest: BlobDigest?
  /// The name of the pack concerned.
  public var pack: String?
  /// The offset in that pack, in bytes.
  public var offset: Int64?
  /// The path concerned.
  public var path: String?
  /// The text of ``currentVersion``.
  var currentVersionText: String?
  /// Whether the code is `closed` because the store's path names another folder, or none.
  package var folderHasChanged = false
  /// The failed system call's `errno`, if that was the cause.
  public var errno: Int32?
  /// The error of the caller's own source, sink or converter, if the code is `sourceFailed`.
  public var underlyingError: (any Error)?

  /// Creates an error.
  public init(
    _ code: Code, _ message: String, key: String? = nil, digest: BlobDigest? = nil, pack: String? = nil,
    offset: Int64? = nil, path: String? = nil, errno: Int32? = nil, underlying: (any Error)? = nil
  ) {
    self.code = code
    self.message = message
    self.key = key
    self.digest = digest
    self.pack = pack
    self.offset = offset
    self.path = path
    self.errno = errno
    underlyingError = underlying
  }

  /// Whether the caller's task was cancelled.
  public var isCancellation: Bool { code == .cancelled }

  public var description: String { message }
}

extension BlobStorageError: LocalizedError {
  /// The message, which `localizedDescription` then returns, too.
  public var errorDescription: String? { message }
}

extension BlobStorageError.Code {
  /// Stored bytes do not match their digest or checksum, or data that a version needs is missing.
  public static let corrupted = Self("corrupted")
  /// There is no store at the path.
  public static let noStore = Self("noStore")
  /// The path holds something that is not a store, or lies inside a store.
  public static let notAStore = Self("notAStore")
  /// The path already holds a store.
  public static let storeExists = Self("storeExists")
  /// Another build wrote the store, pack or record, and this one cannot read it.
  public static let unsupportedFormat = Self("unsupportedFormat")
  /// An argument is invalid, or this store does not support the call; nothing was changed.
  public static let invalidArgument = Self("invalidArgument")
  /// The call would exceed a maximum, such as those of ``BlobLimits``; nothing was changed.
  public static let limitExceeded = Self("limitExceeded")
  /// The medium is full; no partial change is visible.
  public static let noSpace = Self("noSpace")
  /// The system denies access.
  public static let permissionDenied = Self("permissionDenied")
  /// The medium cannot be written, or the store was opened for reading only.
  public static let readOnly = Self("readOnly")
  /// A system call, a codec or a request to the object store failed for a reason without its own code.
  public static let io = Self("io")
  /// A sync failed: this writer's data may not be on the medium. Open the store again to continue. If it was another
  /// process's sync, which a change relies on, close the store there and try again.
  public static let poisoned = Self("poisoned")
  /// Another process holds a needed resource, and waiting did not help.
  public static let busy = Self("busy")
  /// Another machine collected garbage while this one was silent: unpublished changes are not in the store. Open it
  /// again and repeat them.
  public static let fenced = Self("fenced")
  /// The store or reader was already closed, or the store's path no longer leads to the folder that was opened. Open
  /// the store again to continue.
  public static let closed = Self("closed")
  /// The caller's task was cancelled; no partial change is visible.
  public static let cancelled = Self("cancelled")
  /// The change's ``ChangeCondition`` does not hold; nothing was changed.
  public static let conditionFailed = Self("conditionFailed")
  /// Two files would get the same key; nothing was changed.
  public static let keysCollide = Self("keysCollide")
  /// A mirror would drop a large part of its target; nothing was changed.
  public static let wouldDropMany = Self("wouldDropMany")
  /// The caller's own source, sink or converter failed, or a file or program that the call reads.
  public static let sourceFailed = Self("sourceFailed")
}

/// Codes that never leave the library: its callers handle them.
extension BlobStorageError.Code {
  /// A commit needs a new pack, which a writer begins without locks.
  static let needsPack = Self("needsPack")
  /// A commit must run alone, in a catalog transaction.
  static let needsCatalog = Self("needsCatalog")
  /// A plan without lookups does not suffice.
  static let needsLookup = Self("needsLookup")
  /// The pack of a version that is replaced and kept must be synced first.
  static let needsSync = Self("needsSync")
  /// A pack's file has another name, in a copy of the store: it must not change any more.
  static let sharedFile = Self("sharedFile")
  /// A transaction did not fit into the catalog's map. The map has grown: run the transaction again.
  static let mapFull = Self("mapFull")
  /// The catalog is not usable; it is rebuilt from the packs.
  package static let catalogDamaged = Self("catalogDamaged")
  /// A published pack is gone. Extend the catalog: it then has the new places of the pack's records.
  package static let packGone = Self("packGone")
  /// The bytes are not in the page cache.
  static let notCached = Self("notCached")
}

/// Evaluates `value`; nil if it throws `corrupted`.
///
/// - Throws: any error but `corrupted`.
package func unlessCorrupted<T>(
  _ value: @autoclosure () throws(BlobStorageError) -> T
) throws(BlobStorageError) -> T? {
  do throws(BlobStorageError) { return try value() } catch {
    guard error.code == .corrupted else { throw error }
    return nil
  }
}
