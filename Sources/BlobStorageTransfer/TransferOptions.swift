import BlobStorage
import BlobStorageTrees
import Foundation

/// How files are imported.
///
/// Every regular file below a path is stored under the prefix and its path relative to it, '/'-separated; a path that
/// is a file is stored under the prefix and its name. If two files would get the same key, the import throws
/// `keysCollide` before it stores anything.
///
/// A file is not read again if it has the size, modification time, change time and inode of its last import. If its key
/// is known to be unreadable, the file is read again. A symbolic link is stored as its target. Devices, sockets,
/// unreadable files, files that keep changing while they are read, and the store's own folder are skipped and reported,
/// never half stored.
///
/// Modes, owners, extended attributes and which files are hard links of each other are kept with each version, and those
/// of folders with the import's state. See ``FileAttributes``.
public struct ImportOptions: Sendable, Hashable {
  public var prefix: String
  public var replacement: Replacement
  public var durability: Durability
  public var codec: CodecKind?
  /// Reads and compares everything but changes nothing.
  public var isDryRun: Bool
  /// Files and folders to leave out: shell patterns (`*`, `?`, `[…]`) matched against the name, or against the
  /// relative path when the pattern holds a '/'. One that ends in '/' matches folders only.
  public var excluded: [String]
  /// Reads files again that seem unchanged.
  public var readsUnchanged: Bool
  /// Keeps links, empty folders and attributes. Otherwise only regular files are stored, with their times.
  public var keepsAttributes: Bool
  /// Keeps owners as well; nil: if root imports.
  public var keepsOwners: Bool?
  /// Leaves out what is on other file systems than the paths.
  public var staysOnFileSystem: Bool
  /// Leaves out what is in folders with a valid `CACHEDIR.TAG`, except that file.
  public var excludesCaches: Bool
  /// Records a state of the prefix. Versions that are replaced are kept for the states that have them, in no key's
  /// history. Values of a cache are in no state, and a prefix of a state has at most 400 bytes.
  public var recordsState: Bool
  /// The name of the state.
  public var stateName: String?
  /// The time of the state, if that is not the import's.
  package var stateDate: Date?
  /// Whether a file that was moved or copied, and is otherwise as the current version, keeps that version.
  package var comparesContent = false
  /// Whether no state is recorded although what is replaced is kept for earlier states.
  package var omitsState = false
  /// The paths are a list of files: each gets the prefix and its whole path as its key, without `./` and a '/' in front.
  /// Folders of the list are skipped, like anything else that is not a regular file.
  public var keepsPaths: Bool
  /// How many bytes of files to read in a second, on average; nil for no limit.
  public var maximumByteRate: Int64?

  public init(
    prefix: String = "", replacement: Replacement = .replaceCurrent, durability: Durability = .durable,
    codec: CodecKind? = nil, isDryRun: Bool = false, excluded: [String] = [], readsUnchanged: Bool = false,
    keepsAttributes: Bool = true, keepsOwners: Bool? = nil, staysOnFileSystem: Bool = false,
    excludesCaches: Bool = false, recordsState: Bool = true, stateName: String? = nil,
    keepsPaths: Bool = false, maximumByteRate: Int64? = nil
  ) {
    self.recordsState = recordsState
    self.stateName = stateName
    self.keepsAttributes = keepsAttributes
    self.keepsOwners = keepsOwners
    self.staysOnFileSystem = staysOnFileSystem
    self.excludesCaches = excludesCaches
    self.prefix = prefix
    self.replacement = replacement
    self.durability = durability
    self.codec = codec
    self.isDryRun = isDryRun
    self.excluded = excluded
    self.readsUnchanged = readsUnchanged
    self.keepsPaths = keepsPaths
    self.maximumByteRate = maximumByteRate
  }
}

/// A file or key that was left out, and why.
public struct SkippedFile: Sendable, Hashable, Codable {
  /// The path of the file, or the key.
  public var path: String
  /// The kind of reason: that of the error that stopped the file, or `notRegular`.
  public var code: BlobStorageError.Code
  /// One sentence for a person.
  public var reason: String
  /// Whether leaving it out is a failure: an unreadable file is, a symbolic link is not.
  public var isFailure: Bool

  public init(path: String, code: BlobStorageError.Code, reason: String, isFailure: Bool) {
    self.path = path
    self.code = code
    self.reason = reason
    self.isFailure = isFailure
  }
}

extension BlobStorageError.Code {
  /// A thing that is not kept: a device, a socket, or the store's own folder.
  public static let notRegular = Self(rawValue: "notRegular")
}

/// The result of an import or dry run.
public struct ImportReport: Sendable, Hashable, Codable {
  /// Files that were stored, or that the store already had.
  public var fileCount = 0
  public var byteCount: Int64 = 0
  /// Files that got a new key or a new version.
  public var newFileCount = 0
  /// Files that have not changed since their last import.
  public var unchangedFileCount = 0
  /// Symbolic links and folders that were stored, or that the store already had.
  public var linkCount = 0
  public var folderCount = 0
  /// Files among those of `fileCount` whose keys a cache has evicted again, to hold its limit; of more than a million,
  /// among the last million.
  public var evictedFileCount = 0
  /// Plain bytes of new chunks.
  public var newByteCount: Int64 = 0
  /// Plain bytes that the store already had.
  public var duplicateByteCount: Int64 = 0
  /// Bytes added to packs.
  public var storedByteCount: Int64 = 0
  public var skipped: [SkippedFile] = []
  /// The state that was recorded.
  public var state: TreeState?
  public var duration = Duration.zero

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case byteCount, newByteCount, duplicateByteCount, storedByteCount, skipped, state
    case fileCount = "files"
    case linkCount = "links"
    case folderCount = "folders"
    case newFileCount = "newFiles"
    case unchangedFileCount = "unchangedFiles"
    case evictedFileCount = "evictedFiles"
    case duration = "seconds"
  }
}

/// How keys are exported.
///
/// Each version is written, verified, at the folder + its key; modification times and attributes are restored, as far as
/// this user may. Folders get theirs in the end: those of the state, or of the last state that has keys with the prefix.
/// A folder that was there before the export, and is not the one to export to and empty, keeps what it has unless files
/// are replaced. Blocks of zeros become holes. No file is ever written outside the folder, or into the store's own. A
/// file that is replaced stays until the new one is on the medium. A file that has the bytes of its version already is
/// left alone, so that an interrupted export can be repeated.
public struct ExportOptions: Sendable, Hashable {
  /// The prefix of the keys to export.
  public var prefix: String
  /// The prefix to remove from each key.
  public var stripped: String
  /// Replaces files and links that exist, also where folders are to be, empty folders where files are to be, and
  /// attributes of folders.
  public var overwrites: Bool
  /// Shell patterns, one of which an exported key matches as a whole; empty for all keys. See ``KeyPattern``.
  public var patterns: [String]
  /// Writes what a state has instead of the current versions.
  public var state: TreeState?
  /// Restores links, empty folders and attributes. Otherwise a link becomes a file with its target.
  public var restoresAttributes: Bool
  /// Restores owners as well; nil: if root exports.
  public var restoresOwners: Bool?
  /// Looks up what is there, and writes nothing.
  public var isDryRun: Bool
  /// How many bytes of files to write in a second, on average; nil for no limit.
  public var maximumByteRate: Int64?

  public init(
    prefix: String = "", stripped: String = "", overwrites: Bool = false, patterns: [String] = [],
    state: TreeState? = nil, restoresAttributes: Bool = true, restoresOwners: Bool? = nil,
    isDryRun: Bool = false, maximumByteRate: Int64? = nil
  ) {
    self.state = state
    self.restoresAttributes = restoresAttributes
    self.restoresOwners = restoresOwners
    self.prefix = prefix
    self.stripped = stripped
    self.overwrites = overwrites
    self.patterns = patterns
    self.isDryRun = isDryRun
    self.maximumByteRate = maximumByteRate
  }
}

/// The result of an export.
public struct ExportReport: Sendable, Hashable, Codable {
  public var isDryRun = false
  /// Files that were written, or would be.
  public var fileCount = 0
  /// Bytes of those files.
  public var byteCount: Int64 = 0
  /// Files that had the bytes of their versions already.
  public var unchangedFileCount = 0
  public var unchangedByteCount: Int64 = 0
  public var linkCount = 0
  public var folderCount = 0
  /// Files, links and folders of which this user may not set all attributes.
  public var incompleteCount = 0
  public var skipped: [SkippedFile] = []
  /// Keys that could not be read because the store is damaged.
  public var damaged: [SkippedFile] = []
  public var duration = Duration.zero

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case byteCount, unchangedByteCount, skipped, damaged
    case isDryRun = "dryRun"
    case fileCount = "files"
    case linkCount = "links"
    case folderCount = "folders"
    case incompleteCount = "incompleteAttributes"
    case unchangedFileCount = "unchangedFiles"
    case duration = "seconds"
  }
}
