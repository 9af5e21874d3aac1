import ArgumentParser
import BlobStorage
import BlobStorageTrees
import Foundation

/// A state as it was typed: its name, the first digits of its ID, `latest`, or a time.
struct StateArgument: ExpressibleByArgument {
  /// The fewest digits of an ID that name a state.
  private static let digitCountMin = 4

  let text: String

  init?(argument: String) {
    guard !argument.isEmpty else { return nil }
    text = argument
  }

  /// The state that is meant.
  ///
  /// - Parameter prefix: what the keys that are asked for begin with; a time means the last state of these.
  /// - Throws: `Failure` if there is none, or if several may be meant.
  func state(in store: BlobStore, prefix: String = "") async throws -> TreeState {
    let states = try await store.states()
    if let named = states.first(where: { $0.name == text }) { return named }
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
    // One of the prefix, or of one that it begins with; else of prefixes below.
    if let last = until.last(where: { prefix.utf8.starts(with: $0.prefix.utf8) }) { return last }
    let below = until.filter { $0.prefix.utf8.starts(with: prefix.utf8) }
    guard let last = below.last else {
      throw Failure(ExitStatus.notFound, "There is no state of “\(prefix.printable)” from then or before.")
    }
    if let other = below.last(where: { !$0.prefix.utf8.elementsEqual(last.prefix.utf8) }) {
      throw Failure(
        ExitStatus.wrongUsage,
        "There are states of “\(last.prefix.printable)” and of “\(other.prefix.printable)”: give a prefix, or name a "
          + "state.")
    }
    return last
  }

  /// A day, until its end, or a minute or second of it, in local time unless a zone follows.
  static func time(_ text: String) -> Date? {
    let match =
      text.wholeMatch(
        of: /(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?)?(Z|[+-]\d{2}:?\d{2})?/)
    guard let match, let year = Int(match.1), let month = Int(match.2), let day = Int(match.3),
      1...12 ~= month, 1...31 ~= day
    else { return nil }
    var calendar = Calendar(identifier: .gregorian)
    if let zone = match.7 {
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
    // Until the end of what was named.
    return date.addingTimeInterval(0.999)
  }
}
