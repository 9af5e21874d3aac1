import Foundation

/// The files that the original PersistentDataStore keeps: one an identifier, named by it.
enum PlainFiles {
  /// The files of a folder by age.
  static func items(in folder: URL) -> [OldData.Item] {
    FoundFile.list(folder).filter { $0.isRegular && !$0.url.lastPathComponent.hasPrefix(atomicWritePrefix) }
      .sorted { $0.modified < $1.modified }
      .map { OldData.Item(key: $0.url.lastPathComponent, file: $0.url) }
  }

  /// What Foundation leaves of an atomic write that was interrupted.
  private static let atomicWritePrefix = ".dat.nosync"
}
