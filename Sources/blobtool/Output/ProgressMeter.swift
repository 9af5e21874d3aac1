import ArgumentParser
import BlobStorage
import Foundation
import Synchronization

/// How to show long work.
enum ProgressStyle: String, ExpressibleByArgument, CaseIterable {
  case auto, bar, plain, json, none

  /// The style that `auto` means here.
  var decided: Self {
    guard self == .auto else { return self }
    return isatty(2) == 1 ? .bar : .none
  }

  /// Seconds between two messages.
  fileprivate var interval: Double {
    switch self {
    case .plain: 1
    default: 0.1
    }
  }
}

/// Shows the progress of long work on standard error.
final class ProgressMeter: Sendable {
  private struct State: Sendable {
    var latest: WorkProgress?
    var pace = WorkPace()
    var lastShown: ContinuousClock.Instant?
    /// Whether `latest` has been shown.
    var isShown = true
    var isFinished = false
  }

  private let style: ProgressStyle
  private let began = ContinuousClock.now
  private let state = Mutex(State())

  init(_ style: ProgressStyle) { self.style = style.decided }

  /// The handler for long work; nil to show nothing.
  var handler: ProgressHandler? {
    if style == .none { return nil }
    return { [self] in update($0) }
  }

  /// Records progress, and shows it when it is time.
  func update(_ progress: WorkProgress) {
    guard style != .none else { return }
    let texts = state.withLock { state -> [String] in
      guard !state.isFinished else { return [] }
      let now = ContinuousClock.now
      let isNewPhase = state.latest?.phase != progress.phase
      // How the phase before ended.
      let end = isNewPhase && !state.isShown ? shown(&state, now) : ""
      state.pace.update(progress, at: seconds(now))
      state.latest = progress
      state.isShown = false
      if let last = state.lastShown, !isNewPhase, last.duration(to: now) < .seconds(style.interval) {
        return []
      }
      return [end, shown(&state, now)]
    }
    for text in texts { write(text) }
  }

  /// Clears the line for a message. The bar comes back with the next progress.
  func clear() {
    if style == .bar, state.withLock({ $0.lastShown != nil }) { clearLine() }
  }

  /// Shows the final progress, and clears the line.
  func finish() {
    let text = state.withLock { state -> String? in
      guard !state.isFinished else { return nil }
      state.isFinished = true
      return state.isShown ? "" : shown(&state, .now)
    }
    guard let text else { return }
    write(text)
    if style == .bar, state.withLock({ $0.latest != nil }) { clearLine() }
  }

  private func seconds(_ now: ContinuousClock.Instant) -> Double { began.duration(to: now) / .seconds(1) }

  /// The text that shows the latest progress, which then counts as shown; empty if there is none.
  private func shown(_ state: inout State, _ now: ContinuousClock.Instant) -> String {
    guard let progress = state.latest else { return "" }
    state.lastShown = now
    state.isShown = true
    let pace = Pace(progress, state.pace, now: seconds(now))
    return switch style {
    case .bar: pace.bar(width: Terminal.width)
    case .plain: pace.text + "\n"
    case .json: pace.json + "\n"
    case .auto, .none: ""
    }
  }

  private func write(_ text: String) {
    if !text.isEmpty { StandardError.write(text, after: style == .bar ? Terminal.clearedLine : "") }
  }

  private func clearLine() { StandardError.write("", after: Terminal.clearedLine) }
}

/// The width of the terminal behind standard error.
enum Terminal {
  /// Goes to the beginning of the line and clears it.
  static let clearedLine = "\r\u{1b}[K"

  static var width: Int {
    var size = winsize()
    guard ioctl(2, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
    return max(Int(size.ws_col), 20)
  }
}
