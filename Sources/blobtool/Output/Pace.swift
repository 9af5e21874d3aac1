import BlobStorage
import Foundation

/// Describes the progress and speed of work.
struct Pace {
  private let progress: WorkProgress
  private let bytesPerSecond: Double?
  private let countPerSecond: Double?
  private let secondsLeft: Double?

  init(_ progress: WorkProgress, _ pace: WorkPace, now: Double) {
    self.init(
      progress, bytesPerSecond: pace.bytesPerSecond, countPerSecond: pace.countPerSecond,
      secondsLeft: pace.secondsLeft(at: now))
  }

  init(_ progress: WorkProgress, bytesPerSecond: Double?, countPerSecond: Double?, secondsLeft: Double?) {
    self.progress = progress
    self.bytesPerSecond = bytesPerSecond
    self.countPerSecond = countPerSecond
    self.secondsLeft = secondsLeft
  }

  /// One line without a bar.
  var text: String { text(hasCounts: true, hasRate: true) }

  private func text(hasCounts: Bool, hasRate: Bool) -> String {
    var facts: [String] = []
    if progress.totalByteCount > 0 {
      facts.append("\(HumanText.size(progress.doneByteCount)) of \(HumanText.size(progress.totalByteCount))")
    } else if progress.doneByteCount > 0 {
      facts.append(HumanText.size(progress.doneByteCount))
    }
    // Show counts always when there are no bytes.
    if hasCounts || facts.isEmpty {
      if progress.totalCount > 0 {
        facts.append("\(HumanText.grouped(progress.doneCount)) of \(counted(progress.totalCount))")
      } else if progress.doneCount > 0 {
        facts.append(counted(progress.doneCount))
      }
    }
    if hasRate {
      if let bytesPerSecond, bytesPerSecond >= 1 {
        facts.append("\(HumanText.size(Int64(bytesPerSecond)))/s")
      } else if let countPerSecond, countPerSecond >= 1 {
        facts.append("\(counted(Int(countPerSecond)))/s")
      }
    }
    if let secondsLeft { facts.append("about \(HumanText.roughDuration(secondsLeft)) left") }
    return progress.phase.printable + (facts.isEmpty ? "" : ": ") + facts.joined(separator: ", ")
  }

  /// A count with the phase's noun.
  private func counted(_ count: Int) -> String {
    switch progress.phase {
    case "planning", "importing", "syncing", "exporting": HumanText.count(count, "file")
    case "marking", "copying": HumanText.count(count, "key")
    case "verifying", "compacting", "deleting": HumanText.count(count, "pack")
    default: HumanText.grouped(count)
    }
  }

  /// One line with a bar, if it fits. A narrow line omits the rate and the counts.
  func bar(width: Int) -> String {
    let variants = [(true, true), (true, false), (false, false)].map {
      text(hasCounts: $0.0, hasRate: $0.1)
    }
    guard let share else {
      return String((variants.first { $0.count < width } ?? variants[2]).prefix(width - 1))
    }
    for text in variants {
      let barWidth = min(30, width - 1 - text.count - 3)
      guard barWidth >= 8 else { continue }
      let full = Int((share * Double(barWidth)).rounded(.down))
      return "[" + String(repeating: "#", count: full) + String(repeating: ".", count: barWidth - full) + "] "
        + text
    }
    return String((variants.first { $0.count < width } ?? variants[2]).prefix(width - 1))
  }

  /// One JSON object.
  var json: String {
    let line = Line(
      phase: progress.phase, doneByteCount: progress.doneByteCount, totalByteCount: progress.totalByteCount,
      doneCount: progress.doneCount, totalCount: progress.totalCount,
      bytesPerSecond: Int64(bytesPerSecond ?? 0),
      secondsLeft: secondsLeft?.roundedToMilliseconds)
    return (try? JSONText().line(line)) ?? "{}"
  }

  private var share: Double? {
    // A forged activity may have a negative count.
    if progress.totalByteCount > 0 {
      return min(max(0, Double(progress.doneByteCount) / Double(progress.totalByteCount)), 1)
    }
    guard progress.totalCount > 0 else { return nil }
    return min(max(0, Double(progress.doneCount) / Double(progress.totalCount)), 1)
  }

  private struct Line: Encodable {
    var phase: String
    var doneByteCount: Int64
    var totalByteCount: Int64
    var doneCount: Int
    var totalCount: Int
    var bytesPerSecond: Int64
    var secondsLeft: Double?
  }
}
