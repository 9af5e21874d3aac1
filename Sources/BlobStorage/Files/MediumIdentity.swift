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

  /// In which start of the machine a file was written to, and through which mounts of one file system.
  package struct Mark: Sendable, Hashable {
    package var boot: String
    package var mounts: [String]

    package init(boot: String, mounts: [String]) {
      self.boot = boot
      self.mounts = mounts
    }

    package init(_ text: Substring) {
      let words = text.split(separator: "/" as Character, omittingEmptySubsequences: false).map(String.init)
      self.init(boot: words[0], mounts: Array(words.dropFirst()))
    }

    package var text: String { ([boot.isEmpty ? "unknown" : boot] + mounts).joined(separator: "/") }
  }

  /// The mark of what is written to here.
  package var mark: Mark { Mark(boot: boot, mounts: [mount]) }

  /// The mark of what is written to here as well as where `other` says.
  package func mark(with other: Mark) -> Mark {
    guard boot == other.boot else { return mark }
    // The latest few: short-lived containers have a mount each.
    return Mark(boot: boot, mounts: [mount] + other.mounts.filter { $0 != mount }.prefix(7))
  }

  package func isOfThisBoot(_ mark: Mark) -> Bool { !boot.isEmpty && boot == mark.boot }

  /// Whether everything that was written under that mark is still there.
  package func trusts(_ mark: Mark) -> Bool {
    isOfThisBoot(mark) && mark.mounts.contains(mount)
  }
}
