import ArgumentParser
import BlobStorage
import BlobStorageTrees
import Foundation

/// A state as the user typed it: its name, the first digits of its ID, `latest`, or a time.
struct StateArgument: ExpressibleByArgument {
  /// The fewest digits of an ID that can name a state.
  private static let digitCountMin = 4

  let text: String

  init?(argument: String) {
    guard !argument.isEmpty else { return nil }
    text = argument
  }

  /// Finds the snapshot that the text means, and says if it lacks files.
  ///
  /// - Parameters:
  ///   - prefix: the prefix of the keys in question; a time means the last snapshot of these.
  ///   - series: the series that a time means; nil for any that has the keys.
  /// - Throws: `Failure` if there is no such snapshot, or if the text fits several.
  func state(
    in store: BlobStore, prefix: KeyPrefix = .all, of series: TreeSeries? = nil
  ) async throws -> TreeState {
    let found = try await find(in: store, prefix, series)
    if found.failureCount > 0 {
      let names = found.failedPaths.map { "“\($0.printable)”" }.joined(separator: ", ")
      let some = found.failedPaths.count < found.failureCount ? ", among them " : ": "
      StandardError.say(
        "warning: snapshot \(found.text.printable) is incomplete: it lacks \(HumanText.count(found.failureCount, "file")) that"
          + " could not be read when it was recorded\(names.isEmpty ? "" : some + names)")
    }
    return found
  }

  private func find(
    in store: BlobStore, _ prefix: KeyPrefix, _ series: TreeSeries?
  ) async throws -> TreeState {
    if let named = try named(among: try await store.states(), prefix) { return named }
    let time = Self.time(text)
    guard time != nil || text == "latest" else { throw missing }
    for state in try await store.unreadableStates() {
      StandardError.say(
        "warning: state \(state.text) cannot be read, and may be a later one: \(state.reason.printable)")
    }
    let found: TreeState?
    if let series {
      found = try await store.snapshot(at: time, of: series)
    } else {
      found = try await store.snapshot(at: time, prefix: prefix)
    }
    guard let found else {
      throw Failure(
        ExitStatus.notFound,
        "There is no state of “\((series?.prefix ?? prefix.text).printable)” from then or before.")
    }
    return found
  }

  /// The snapshot of that name, or whose ID begins with the text; nil if there is none.
  ///
  /// - Parameter prefix: the prefix of the keys in question, which decides among several of one name.
  /// - Throws: `Failure` if there are several.
  func named(among states: [TreeState], _ prefix: KeyPrefix = .all) throws -> TreeState? {
    let all = states.filter { $0.isNamed(text) }
    let named = all.count > 1 ? all.filter { $0.overlaps(prefix) } : all
    if named.count > 1 {
      throw Failure(
        ExitStatus.wrongUsage,
        "Several states have the name “\(text.printable)”, because a copy brought one: name it by its ID, one of "
          + "\(named.prefix(5).map(\.id.description).joined(separator: ", ")).")
    }
    if let named = named.first { return named }
    let digits = text.lowercased()
    guard digits.count >= Self.digitCountMin, digits.allSatisfy({ $0.isASCII && $0.isHexDigit }) else {
      return nil
    }
    let found = states.filter { $0.id.description.hasPrefix(digits) }
    if found.count > 1 {
      throw Failure(
        ExitStatus.wrongUsage,
        "The IDs of several states begin with \(text): \(found.prefix(5).map(\.id.description).joined(separator: ", "))."
      )
    }
    return found.first
  }

  /// The failure for a text that names no snapshot.
  private var missing: Failure {
    if text.prefixMatch(of: /\d{4}-\d/) != nil {
      return Failure(
        ExitStatus.wrongUsage,
        "“\(text.printable)” is no time: one is like 2026-01-31 or 2026-01-31T18:30, in local time or with a zone."
      )
    }
    return Failure(
      ExitStatus.notFound,
      "There is no state “\(text.printable)”: `blobtool states` lists them, and a time is like 2026-01-31 or "
        + "2026-01-31T18:30.")
  }

  /// Whether it is `latest` or a time.
  var isTime: Bool { text == "latest" || Self.time(text) != nil }

  /// The end of a day, or of a minute, second or millisecond of it, in local time unless a zone follows.
  static func time(_ text: String) -> Date? {
    let form = /(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(\.\d+)?)?)?(Z|[+-]\d{2}:?\d{2})?/
    // A number of other digits would count as left out.
    let match = text.wholeMatch(of: form.asciiOnlyDigits())
    guard let match, let year = Int(match.1), let month = Int(match.2), let day = Int(match.3),
      1...12 ~= month, 1...31 ~= day
    else { return nil }
    var calendar = Calendar(identifier: .gregorian)
    if let zone = match.8 {
      let digits = zone.filter(\.isNumber)
      let minutes = (Int(digits.prefix(2)) ?? 0) * 60 + (Int(digits.dropFirst(2)) ?? 0)
      guard let found = TimeZone(secondsFromGMT: (zone.hasPrefix("-") ? -60 : 60) * minutes) else {
        return nil
      }
      calendar.timeZone = found
    }
    let hour = match.4.flatMap { Int($0) }
    let minute = match.5.flatMap { Int($0) }
    let second = match.6.flatMap { Int($0) }
    let components = DateComponents(
      year: year, month: month, day: day, hour: hour ?? 23, minute: minute ?? 59, second: second ?? 59)
    guard components.isValidDate(in: calendar), let date = calendar.date(from: components) else { return nil }
    // The end of the named second, or of the named part of it.
    let fraction = match.7.flatMap { Double("0\($0)") } ?? 0
    let digitCount = match.7.map { $0.count - 1 } ?? 0
    return date.addingTimeInterval(fraction + 0.999 * pow(10, -Double(digitCount)))
  }
}

extension TreeState {
  /// Whether it has that name. Names are compared by bytes, as the store does.
  func isNamed(_ text: String) -> Bool { name.map { $0.utf8.elementsEqual(text.utf8) } ?? false }
}
