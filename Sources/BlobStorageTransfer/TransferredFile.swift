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
