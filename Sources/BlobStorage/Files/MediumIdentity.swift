/// Identifies the boot of the machine, and the mount, through which a store is used.
///
/// While both are the same, unsynced writes are still there. A disk that disconnects and returns has a new mount.
package struct MediumIdentity: Sendable, Hashable {
  /// Empty if the system does not tell: then every opening counts as a new boot.
  package let boot: String
  /// Empty if the system does not tell.
  package let mount: String

  package init(boot: String, mount: String) {
    self.boot = boot
    self.mount = mount
  }

  /// One text for both; empty if the boot is unknown.
  package var text: String { boot.isEmpty ? "" : "\(boot)/\(mount)" }

  /// The boot in which a file was written, and the mounts of its file system through which it was written.
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

  /// The mark for files written in this boot and through this mount.
  package var mark: Mark { Mark(boot: boot, mounts: [mount]) }

  /// The mark for files written here and under `other`.
  package func mark(with other: Mark) -> Mark {
    guard boot == other.boot else { return mark }
    // Keep the latest few: each short-lived container has its own mount.
    return Mark(boot: boot, mounts: [mount] + other.mounts.filter { $0 != mount }.prefix(7))
  }

  package func isOfThisBoot(_ mark: Mark) -> Bool { !boot.isEmpty && boot == mark.boot }

  /// Whether all writes under that mark are still there.
  package func trusts(_ mark: Mark) -> Bool {
    isOfThisBoot(mark) && mark.mounts.contains(mount)
  }
}
