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

  /// Finds the state that the text means.
  ///
  /// - Parameters:
  ///   - prefix: the prefix of the keys in question; a time means the last state of these.
  ///   - isOfPrefix: whether a time means the last import of just that prefix.
  /// - Throws: `Failure` if there is no such state, or if the text fits several.
  func state(in store: BlobStore, prefix: String = "", isOfPrefix: Bool = false) async throws -> TreeState {
    let states = try await store.states()
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
    if digits.count >= Self.digitCountMin, digits.allSatisfy({ $0.isASCII && $0.isHexDigit }) {
      let found = states.filter { $0.id.description.hasPrefix(digits) }
      if found.count > 1 {
        throw Failure(
          ExitStatus.wrongUsage,
          "The IDs of several states begin with \(text): \(found.prefix(5).map(\.id.description).joined(separator: ", "))."
        )
      }
      if let state = found.first { return state }
    }
    let time = text == "latest" ? Date.distantFuture : Self.time(text)
    guard let time else {
      if text.prefixMatch(of: /\d{4}-\d/) != nil {
        throw Failure(
          ExitStatus.wrongUsage,
          "“\(text.printable)” is no time: one is like 2026-01-31 or 2026-01-31T18:30, in local time or with a zone."
        )
      }
      throw Failure(
        ExitStatus.notFound,
        "There is no state “\(text.printable)”: `blobtool states` lists them, and a time is like 2026-01-31 or "
          + "2026-01-31T18:30.")
    }
    for state in try await store.unreadableStates() {
      StandardError.say(
        "warning: state \(state.text) cannot be read, and may be a later one: \(state.reason.printable)")
    }
    let until = states.filter { $0.created <= time }
    let fits =
      isOfPrefix
      ? until.filter { $0.prefix.utf8.elementsEqual(prefix.utf8) }
      : until.filter { $0.overlaps(prefix) }
    guard let last = fits.last else {
      throw Failure(ExitStatus.notFound, "There is no state of “\(prefix.printable)” from then or before.")
    }
    let isOfOwn = !prefix.isEmpty && fits.contains { $0.prefix.utf8.elementsEqual(prefix.utf8) }
    if isOfOwn || prefix.utf8.starts(with: last.prefix.utf8) {
      let covering = fits.filter { prefix.utf8.starts(with: $0.prefix.utf8) }
      return try await Self.last(of: covering, with: prefix, in: store) ?? last
    }
    // A state of a longer prefix does not have all these keys.
    if let other = fits.last(where: { !$0.prefix.utf8.elementsEqual(last.prefix.utf8) }) {
      let others = other.prefix.isEmpty ? "states without a prefix" : "of “\(other.prefix.printable)”"
      throw Failure(
        ExitStatus.wrongUsage,
        "There are states of “\(last.prefix.printable)” and \(others): give a prefix, or name a state.")
    }
    return last
  }

  /// The last of the states that can have keys of a prefix. A state with a shorter prefix must have some.
  private static func last(
    of states: [TreeState], with prefix: String, in store: BlobStore
  ) async throws -> TreeState? {
    var seen: Set<[UInt8]> = []
    for state in states.reversed() where seen.insert(Array(state.prefix.utf8)).inserted {
      if state.prefix.utf8.elementsEqual(prefix.utf8) { return state }
      if try await store.hasEntries(prefix, in: state) { return state }
    }
    return states.last
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

  /// Whether it can have keys that begin with the prefix.
  fileprivate func overlaps(_ prefix: String) -> Bool {
    prefix.utf8.starts(with: self.prefix.utf8) || self.prefix.utf8.starts(with: prefix.utf8)
  }
}

extension BlobStore {
  fileprivate func hasEntries(_ prefix: String, in state: TreeState) async throws -> Bool {
    struct Found: Error {}
    do { try await forEachEntry(of: state, prefix: prefix) { _ in throw Found() } } catch is Found {
      return true
    }
    return false
  }
}
