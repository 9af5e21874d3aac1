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
    state.withLock { state in
      guard !state.isFinished else { return }
      let now = ContinuousClock.now
      let isNewPhase = state.latest?.phase != progress.phase
      if isNewPhase {
        if !state.isShown { show(&state, now) }  // how the phase before ended
      }
      state.pace.update(progress, at: seconds(now))
      state.latest = progress
      state.isShown = false
      if let last = state.lastShown, !isNewPhase, last.duration(to: now) < .seconds(style.interval) { return }
      show(&state, now)
    }
  }

  /// Clears the line for a message. The bar comes back with the next progress.
  func clear() {
    state.withLock { state in
      if style == .bar, state.lastShown != nil { StandardError.write("", after: Terminal.clearedLine) }
    }
  }

  /// Shows the final progress, and clears the line.
  func finish() {
    state.withLock { state in
      guard !state.isFinished else { return }
      if !state.isShown { show(&state, .now) }
      state.isFinished = true
      if style == .bar, state.latest != nil { StandardError.write("", after: Terminal.clearedLine) }
    }
  }

  private func seconds(_ now: ContinuousClock.Instant) -> Double { began.duration(to: now) / .seconds(1) }

  private func show(_ state: inout State, _ now: ContinuousClock.Instant) {
    guard let progress = state.latest else { return }
    state.lastShown = now
    state.isShown = true
    let pace = Pace(progress, state.pace, now: seconds(now))
    switch style {
    case .bar: StandardError.write(pace.bar(width: Terminal.width), after: Terminal.clearedLine)
    case .plain: StandardError.write(pace.text + "\n")
    case .json: StandardError.write(pace.json + "\n")
    case .auto, .none: break
    }
  }
}

/// The width of the terminal behind standard error.
enum Terminal {
  /// Goes to the beginning of the line and clears it.
  static let clearedLine = "\r\u{1b}[K"

  static var width: Int {
    var size = winsize()
    guard ioctl(2, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
    return Int(size.ws_col)
  }
}
