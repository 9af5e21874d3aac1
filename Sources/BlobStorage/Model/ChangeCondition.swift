/// The condition of a change.
///
/// The commit itself compares, so no other change can come between comparison and change. If the condition does not
/// hold, the change throws `conditionFailed` with the key's current version, and changes nothing. A store in a bucket
/// accepts only `always`: other conditions throw `invalidArgument`.
public enum ChangeCondition: Sendable, Hashable {
  /// No condition.
  case always
  /// The key's current version is this one.
  case current(BlobVersion.ID)
  /// The key has no version.
  case absent
}

/// One of several changes that are made together.
public enum BlobChange: Sendable {
  /// Stores the item's bytes as the current version of its key.
  case put(PutItem, replacement: Replacement = .replaceCurrent, if: ChangeCondition = .always)
  /// Drops the key with all its versions.
  case delete(String, if: ChangeCondition = .always)

  /// The key that it changes.
  public var key: String {
    switch self {
    case .put(let item, _, _): item.key
    case .delete(let key, _): key
    }
  }

  var condition: ChangeCondition {
    switch self {
    case .put(_, _, let condition), .delete(_, let condition): condition
    }
  }
}

extension BlobStorageError {
  /// The key's current version, if a change's condition did not hold; nil if the key has none.
  public var currentVersion: BlobVersion.ID? { currentVersionText.flatMap { BlobVersion.ID($0) } }
}
