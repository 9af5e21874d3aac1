import Foundation

/// An error, with one sentence for a person and one code for a program.
///
/// The message names the thing (key, digest, pack, path) and the remedy, if there is one. `code` can grow: switch over
/// it with a default.
///
/// All methods throw this type, so a task that was cancelled gets the code `cancelled` and no `CancellationError`: ask
/// ``isCancellation``.
public struct BlobStorageError: Error, Sendable, CustomStringConvertible {
  /// A stable name for a kind of failure.
  public struct Code: RawRepresentable, Hashable, Sendable, Codable, CustomStringConvertible {
    /// The name, as in logs and JSON.
    public let rawValue: String

    /// A code of that name.
    public init(rawValue: String) { self.rawValue = rawValue }

    init(_ name: String) { self.init(rawValue: name) }

    public var description: String { rawValue }
  }

  /// The kind of failure.
  public let code: Code
  /// One sentence for a person.
  public let message: String
  /// The key it was about.
  public var key: String?
  /// The digest it was about.
  public var digest: BlobDigest?
  /// The name of the pack it was found in.
  public var pack: String?
  /// Where in that pack, in bytes from its start.
  public var offset: Int64?
  /// The path it was about.
  public var path: String?
  /// The text of ``currentVersion``.
  var currentVersionText: String?
  /// The failed system call's `errno`, if that was the cause.
  public var errno: Int32?
  /// What the caller's own source, sink or converter threw, if the code is `sourceFailed`.
  public var underlyingError: (any Error)?

  /// An error of that kind with that sentence.
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
  /// The message, so that `localizedDescription` is it as well.
  public var errorDescription: String? { message }
}

extension BlobStorageError.Code {
  /// Stored bytes do not match their digest or checksum, or what a version needs is missing.
  public static let corrupted = Self("corrupted")
  /// There is no store at the path.
  public static let noStore = Self("noStore")
  /// The path holds something that is not a store.
  public static let notAStore = Self("notAStore")
  /// The path already holds a store.
  public static let storeExists = Self("storeExists")
  /// The store, pack or record was written by a later build.
  public static let unsupportedFormat = Self("unsupportedFormat")
  /// An argument is outside its range; nothing was changed.
  public static let invalidArgument = Self("invalidArgument")
  /// A maximum of ``BlobLimits`` would be exceeded; nothing was changed.
  public static let limitExceeded = Self("limitExceeded")
  /// The medium is full; nothing half done is visible.
  public static let noSpace = Self("noSpace")
  /// The system refuses access.
  public static let permissionDenied = Self("permissionDenied")
  /// The medium cannot be written.
  public static let readOnly = Self("readOnly")
  /// A system call failed in a way that has no code of its own.
  public static let io = Self("io")
  /// A sync failed: what this writer wrote may not be on the medium. Open the store again to continue.
  public static let poisoned = Self("poisoned")
  /// Another process holds a needed resource, and waiting did not help.
  public static let busy = Self("busy")
  /// Another machine collected garbage while this one did not answer: unpublished changes are not in the store. Open it
  /// again and repeat them.
  public static let fenced = Self("fenced")
  /// The store or reader was closed before.
  public static let closed = Self("closed")
  /// The caller's task was cancelled; nothing half done is visible.
  public static let cancelled = Self("cancelled")
  /// The change's ``ChangeCondition`` does not hold; nothing was changed.
  public static let conditionFailed = Self("conditionFailed")
  /// Two files would get the same key; nothing was changed.
  public static let keysCollide = Self("keysCollide")
  /// A mirror would drop much of its target; nothing was changed.
  public static let wouldDropMany = Self("wouldDropMany")
  /// The caller's own source or converter failed.
  public static let sourceFailed = Self("sourceFailed")
}

/// Codes that never leave the library: callers answer them.
extension BlobStorageError.Code {
  /// A commit needs a new pack, which is begun without locks.
  static let needsPack = Self("needsPack")
  /// A commit has to run alone, in a catalog transaction.
  static let needsCatalog = Self("needsCatalog")
  /// A plan that looked nothing up does not do.
  static let needsLookup = Self("needsLookup")
  /// A transaction did not fit into the catalog's map, which is larger now: it has to be run again.
  static let mapFull = Self("mapFull")
  /// The catalog is not usable; it is rebuilt from the packs.
  package static let catalogDamaged = Self("catalogDamaged")
  /// A published pack has gone. The catalog, once extended, says where its records are now.
  package static let packGone = Self("packGone")
  /// Bytes are not in the page cache.
  static let notCached = Self("notCached")
}

/// The value; nil when what it is read from is damaged.
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
