import BlobStorage
import BlobStorageTrees
import Foundation

/// Options for importing files.
///
/// Every regular file below a path is stored under the prefix, a '/' and its path relative to it, '/'-separated; a path
/// that is a file is stored under the prefix, a '/' and its name. No '/' is put behind `KeyPrefix.bytes(_:)`. If two files would get the same key, the import throws
/// `keysCollide` before it stores anything.
///
/// A file is not read again if it has the size, modification time, change time and inode of its last import. It is read
/// and compared if its change time cannot show a change: on tmpfs and network file systems, for example, or if it
/// changed in the moment when it was read. If its key is known to be unreadable, the file is read again. A symbolic
/// link is stored as its target. Devices, sockets, unreadable files and the store's own folder are skipped and
/// reported.
///
/// A file that changes while it is read is read again. If it changes again, it is stored as it was read, and reported
/// as uncertain. A file that only grows is stored with the bytes that it had at first, and reported, too.
///
/// Each version keeps the file's mode, owner, extended attributes and hard links, and the import's state keeps those of
/// folders. A value of a cache keeps its extended attributes only if all have at most about 1,000 bytes. See
/// ``FileAttributes``.
public struct ImportOptions: Sendable, Hashable {
  public var prefix: KeyPrefix
  public var replacement: Replacement
  public var durability: Durability
  public var codec: CodecKind?
  /// Reads and compares everything but changes nothing.
  public var isDryRun: Bool
  /// Files and folders to leave out: patterns by the rules of gitignore, relative to each path. The last pattern that
  /// matches decides, and `!` in front of it brings back. A pattern without a '/', apart from one at its end, matches
  /// names in all folders, and others match from the path on. `*` does not match a '/', and `**` does. One that ends in
  /// '/' matches folders only. A pattern may begin with the path itself.
  public var excluded: [String]
  /// Reads files again that seem unchanged.
  public var readsUnchanged: Bool
  /// Keeps links, empty folders and attributes. Otherwise only regular files are stored, with their times.
  public var keepsAttributes: Bool
  /// Whether to keep owners as well; nil keeps them if root imports.
  public var keepsOwners: Bool?
  /// Leaves out folders on other file systems than the paths.
  public var staysOnFileSystem: Bool
  /// Leaves out the contents of folders with a valid `CACHEDIR.TAG`, except that file.
  public var excludesCaches: Bool
  /// Records a state of the prefix. The states keep the versions that are replaced, outside any key's history. An
  /// import that can store values of a cache records none, nor does one without a name whose prefix has more than 400
  /// bytes.
  public var recordsState: Bool
  /// The name of the state.
  public var stateName: String?
  /// The time of the state; nil for the time of the import.
  package var stateDate: Date?
  /// Where the state comes from; nil for the paths of the import.
  package var origin: TreeOrigin?
  /// What the state lacks besides the files that this import skips.
  package var missingPaths: [String] = []
  /// Whether a file with the bytes and attributes of the current version keeps it, even if it was moved or copied.
  package var comparesContent = false
  /// Whether keys that have a version keep it as the current one: other versions are kept for the state alone.
  package var keepsCurrent = false
  /// A state that stands for this import's, if that would have the same entries.
  package var knownState: TreeState.ID?
  /// The paths are a list of files and folders: each file gets the prefix, a '/' and its whole path as its key, without `./` and
  /// a '/' in front. Patterns then match from the beginning of that path.
  public var keepsPaths: Bool
  /// Whether an import may find no file although the last state of the same prefix and paths has some. Otherwise it
  /// throws `sourceEmpty`, because a disk that is not mounted looks like that.
  public var allowsEmpty: Bool
  /// Drops the keys of files that are gone: those with the prefix that imports have stored and that this import did not
  /// find, unless the last state of other paths has them. States keep their versions.
  ///
  /// Keys stay that the import cannot judge: those below unreadable folders, those that it leaves out, and those that
  /// are held or belong to a cache.
  public var dropsMissing: Bool
  /// The average number of bytes of files to read per second; nil for no limit.
  public var maximumByteRate: Int64?

  public init(
    prefix: some KeyPrefixConvertible = KeyPrefix.all, replacement: Replacement = .replaceCurrent,
    durability: Durability = .durable,
    codec: CodecKind? = nil, isDryRun: Bool = false, excluded: [String] = [], readsUnchanged: Bool = false,
    keepsAttributes: Bool = true, keepsOwners: Bool? = nil, staysOnFileSystem: Bool = false,
    excludesCaches: Bool = false, recordsState: Bool = true, stateName: String? = nil,
    keepsPaths: Bool = false, allowsEmpty: Bool = false, dropsMissing: Bool = false,
    maximumByteRate: Int64? = nil
  ) {
    self.allowsEmpty = allowsEmpty
    self.dropsMissing = dropsMissing
    self.recordsState = recordsState
    self.stateName = stateName
    self.keepsAttributes = keepsAttributes
    self.keepsOwners = keepsOwners
    self.staysOnFileSystem = staysOnFileSystem
    self.excludesCaches = excludesCaches
    self.prefix = prefix.keyPrefix
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

/// A file or key that was skipped, and the reason.
public struct SkippedFile: Sendable, Hashable, Codable {
  /// The path of the file, or the key.
  public var path: String
  /// The code of the error that stopped the file, or `notRegular`.
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

/// A file that changed while an import read it, and is stored as it was read. See `BlobVersion.isUncertain`.
public struct UncertainFile: Sendable, Hashable, Codable {
  public var path: String
  public var change: SourceChange

  public init(path: String, change: SourceChange) {
    self.path = path
    self.change = change
  }

  /// One sentence for a person.
  public var reason: String {
    switch change {
    case .grown: "it grew while it was read; stored are the bytes that it had at first"
    case .rewritten: "it changed while it was read; old and new bytes may be mixed in what is stored"
    }
  }
}

/// A file that an import has stored or an export has written, or would in a dry run.
public struct TransferredFile: Sendable, Hashable {
  public var key: String
  /// Whether the store or the folder had the file already.
  public var isUnchanged: Bool

  public init(key: String, isUnchanged: Bool) {
    self.key = key
    self.isUnchanged = isUnchanged
  }
}

/// Receives each file as soon as it is stored or written, on a thread of the store's own. It should not block.
///
/// The report lists skipped files with their reasons.
public typealias TransferHandler = @Sendable (TransferredFile) -> Void

extension BlobStorageError.Code {
  /// A file that the import does not keep, such as a device, a socket, or the store's own folder.
  public static let notRegular = Self(rawValue: "notRegular")
  /// An import found no files where the import before had found some.
  public static let sourceEmpty = Self(rawValue: "sourceEmpty")
}

/// The result of an import or dry run.
public struct ImportReport: Sendable, Hashable, Codable {
  /// Files that were stored, or that the store already had.
  public var fileCount = 0
  public var byteCount: Int64 = 0
  /// Files that got a new key or a new version, and files that were read again and equal their current version.
  public var newFileCount = 0
  /// Files that have not changed since their last import.
  public var unchangedFileCount = 0
  /// Symbolic links and folders that were stored, or that the store already had.
  public var linkCount = 0
  public var folderCount = 0
  /// Files in `fileCount` whose keys a cache evicted again to hold its limit. Above a million files, counts only the
  /// last ones.
  public var evictedFileCount = 0
  /// Plain bytes of new chunks.
  public var newByteCount: Int64 = 0
  /// Plain bytes that the store already had.
  public var duplicateByteCount: Int64 = 0
  /// Bytes added to packs.
  public var storedByteCount: Int64 = 0
  public var skipped: [SkippedFile] = []
  /// Files that are stored, and changed while they were read.
  public var uncertain: [UncertainFile] = []
  /// Patterns that leave nothing out, whatever the files.
  public var uselessPatterns: [UselessPattern] = []
  /// Keys that were dropped because their files are gone.
  public var droppedKeyCount = 0
  /// The state that was recorded.
  public var state: TreeState?
  public var duration = Duration.zero

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case byteCount, newByteCount, duplicateByteCount, storedByteCount, skipped, uncertain, uselessPatterns,
      state
    case droppedKeyCount = "droppedKeys"
    case fileCount = "files"
    case linkCount = "links"
    case folderCount = "folders"
    case newFileCount = "newFiles"
    case unchangedFileCount = "unchangedFiles"
    case evictedFileCount = "evictedFiles"
    case duration = "seconds"
  }
}

/// Options for exporting keys.
///
/// Each version is written, verified, at the folder + its key; modification times and attributes are restored, as far
/// as this user may. Folders get theirs in the end: those of the state, or of the last state that has keys with the
/// prefix. A folder that was there before the export keeps what it has, except its time. It gets attributes if files
/// are replaced, or if it is the folder to export to and was empty. Blocks of zeros become holes. No file is ever
/// written outside the folder, or into the store's own. A file that is replaced stays until the new one is on the
/// medium. A file that has the bytes of its version already is left alone, so that an interrupted export can be
/// repeated.
public struct ExportOptions: Sendable, Hashable {
  /// The prefix of the keys to export.
  public var prefix: KeyPrefix
  /// The prefix to remove from the keys below it, with its '/'.
  public var stripped: KeyPrefix
  /// Replaces files and links that exist, also where folders are to be, empty folders where files are to be, and
  /// attributes of folders.
  public var overwrites: Bool
  /// Shell patterns: exports the keys that match one of them as a whole; empty for all keys. See ``KeyPattern``.
  public var patterns: [String]
  /// Writes the versions of a state instead of the current versions.
  public var state: TreeState?
  /// Restores links, empty folders and attributes. Otherwise a link becomes a file with its target.
  public var restoresAttributes: Bool
  /// Whether to restore owners as well; nil restores them if root exports.
  public var restoresOwners: Bool?
  /// Examines existing files, and writes nothing.
  public var isDryRun: Bool
  /// The average number of bytes of files to write per second; nil for no limit.
  public var maximumByteRate: Int64?

  public init(
    prefix: some KeyPrefixConvertible = KeyPrefix.all, stripped: some KeyPrefixConvertible = KeyPrefix.all,
    overwrites: Bool = false, patterns: [String] = [],
    state: TreeState? = nil, restoresAttributes: Bool = true, restoresOwners: Bool? = nil,
    isDryRun: Bool = false, maximumByteRate: Int64? = nil
  ) {
    self.state = state
    self.restoresAttributes = restoresAttributes
    self.restoresOwners = restoresOwners
    self.prefix = prefix.keyPrefix
    self.stripped = stripped.keyPrefix
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
  /// Files that already had the bytes of their versions.
  public var unchangedFileCount = 0
  public var unchangedByteCount: Int64 = 0
  public var linkCount = 0
  public var folderCount = 0
  /// Files, links and folders with attributes that this user may not set.
  public var incompleteCount = 0
  public var skipped: [SkippedFile] = []
  /// Keys that could not be read because the store is damaged, and states with unreadable attributes of folders.
  public var damaged: [SkippedFile] = []
  /// The state that was exported; it says if it lacks files. Nil for current versions.
  public var state: TreeState?
  public var duration = Duration.zero

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case byteCount, unchangedByteCount, skipped, damaged, state
    case isDryRun = "dryRun"
    case fileCount = "files"
    case linkCount = "links"
    case folderCount = "folders"
    case incompleteCount = "incompleteAttributes"
    case unchangedFileCount = "unchangedFiles"
    case duration = "seconds"
  }
}
