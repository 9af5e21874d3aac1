/// The losses of a store that were neither repaired nor accepted.
///
/// While there are any, answers may be out of date, and gc removes nothing.
public struct StoreLosses: Sendable, Hashable, Codable {
  /// Packs whose files are missing. The store may have lost versions and deletions of any key.
  public var lostPacks: [String] = []
  /// Packs with places that cannot be read. Versions and deletions of any key may have been there.
  public var damagedPacks: [String] = []

  /// The log of a store in a bucket ends before an entry that this machine has read. Its end is lost, or the bucket was
  /// brought back from an older copy; `repair` finds out which.
  public var lacksLog = false

  public init() {}

  public var isEmpty: Bool { lostPacks.isEmpty && damagedPacks.isEmpty && !lacksLog }

  /// What is lost, in a few words; nil when nothing is.
  public var summary: String? {
    var parts: [String] = []
    func add(_ names: [String], _ one: String, _ many: String) {
      guard let first = names.first else { return }
      parts.append(names.count == 1 ? "\(one) (\(first))" : "\(names.count) \(many) (\(first) and others)")
    }
    add(lostPacks, "a pack is missing", "packs are missing")
    add(damagedPacks, "a pack is damaged", "packs are damaged")
    if lacksLog { parts.append("the end of its log is missing") }
    return parts.isEmpty ? nil : parts.joined(separator: ", ")
  }
}
