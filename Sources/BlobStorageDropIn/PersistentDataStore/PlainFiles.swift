import BlobStorage
import Foundation

/// The files of the original PersistentDataStore: one for each identifier, named after it.
enum PlainFiles {
  /// The files of a folder by age.
  static func groups(in folder: URL) throws(BlobStorageError) -> (found: [OldData.Group], unknown: [String]) {
    let (files, unknown) = try FoundFile.list(folder)
    let found = files.filter { $0.isRegular && !$0.url.lastPathComponent.hasPrefix(atomicWritePrefix) }
      .sorted { $0.modified < $1.modified }
      .map { OldData.Group(key: $0.url.lastPathComponent, files: [$0.url]) }
    return (found, unknown)
  }

  /// The name of what an interrupted atomic write of Foundation leaves.
  private static let atomicWritePrefix = ".dat.nosync"
}
