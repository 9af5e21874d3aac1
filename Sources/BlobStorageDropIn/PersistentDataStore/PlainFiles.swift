import BlobStorage
import Foundation

/// The files that the original PersistentDataStore keeps: one an identifier, named by it.
enum PlainFiles {
  /// The files of a folder by age.
  static func groups(in folder: URL) throws(BlobStorageError) -> (found: [OldData.Group], unknown: [String]) {
    let (files, unknown) = try FoundFile.list(folder)
    let found = files.filter { $0.isRegular && !$0.url.lastPathComponent.hasPrefix(atomicWritePrefix) }
      .sorted { $0.modified < $1.modified }
      .map { OldData.Group(key: $0.url.lastPathComponent, files: [$0.url]) }
    return (found, unknown)
  }

  /// What Foundation leaves of an atomic write that was interrupted.
  private static let atomicWritePrefix = ".dat.nosync"
}
