/// In which start of the machine, and through which mount, a store is used.
///
/// What was written without a sync is still there while both are the same. A disk that went away and came back is
/// mounted again.
package struct MediumIdentity: Sendable, Hashable {
  /// Empty where the system does not tell: then it is another start every time.
  package let boot: String
  /// Empty where the system does not tell.
  package let mount: String

  package init(boot: String, mount: String) {
    self.boot = boot
    self.mount = mount
  }

  /// One text for both; empty where the system does not tell the start.
  package var text: String { boot.isEmpty ? "" : "\(boot)/\(mount)" }

  /// What has written to a file since it was last synced.
  package enum Mark: Sendable, Hashable {
    /// All of it is on the medium.
    case clean
    /// It was written to in that start of the machine, through these mounts of one file system.
    case written(boot: String, mounts: [String])

    package init(_ text: Substring) {
      let words = text.split(separator: "/" as Character, omittingEmptySubsequences: false).map(String.init)
      self = text == "clean" ? .clean : .written(boot: words[0], mounts: Array(words.dropFirst()))
    }

    package var text: String {
      switch self {
      case .clean: "clean"
      case .written(let boot, let mounts):
        ([boot.isEmpty ? "unknown" : boot] + mounts).joined(separator: "/")
      }
    }
  }

  /// The mark of what is written to here.
  package var mark: Mark { .written(boot: boot, mounts: [mount]) }

  /// The mark of what is written to here as well as where `other` says.
  package func mark(with other: Mark) -> Mark {
    guard case .written(boot, let mounts) = other else { return mark }
    // The latest few: short-lived containers have a mount each.
    return .written(boot: boot, mounts: [mount] + mounts.filter { $0 != mount }.prefix(7))
  }

  package func isOfThisBoot(_ mark: Mark) -> Bool {
    guard case .written(boot, _) = mark else { return false }
    return !boot.isEmpty && boot == self.boot
  }

  /// Whether everything that was written under that mark is still there.
  package func trusts(_ mark: Mark) -> Bool {
    guard isOfThisBoot(mark), case .written(_, let mounts) = mark else { return false }
    return mounts.contains(mount)
  }
}
