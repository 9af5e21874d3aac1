import BlobStorage
import Foundation

/// How far and how fast work goes, in words.
struct Pace {
  private let progress: WorkProgress
  private let bytesPerSecond: Double
  private let secondsLeft: Double?

  init(_ progress: WorkProgress, seconds: Double) {
    self.progress = progress
    bytesPerSecond = seconds > 0 ? Double(progress.doneByteCount) / seconds : 0
    let left = progress.totalByteCount - progress.doneByteCount
    // A guess from the first moments would be wild.
    secondsLeft = seconds >= 0.5 && bytesPerSecond > 0 && left >= 0 && progress.totalByteCount > 0
      ? Double(left) / bytesPerSecond : nil
  }

  /// One line without a bar.
  var text: String {
    var facts: [String] = []
    if progress.totalByteCount > 0 {
      facts.append("\(HumanText.size(progress.doneByteCount)) of \(HumanText.size(progress.totalByteCount))")
    } else if progress.doneByteCount > 0 {
      facts.append(HumanText.size(progress.doneByteCount))
    }
    if progress.totalCount > 0 {
      facts.append("\(HumanText.grouped(progress.doneCount)) of \(HumanText.grouped(progress.totalCount))")
    } else if progress.doneCount > 0 {
      facts.append(HumanText.grouped(progress.doneCount))
    }
    if bytesPerSecond >= 1 { facts.append("\(HumanText.size(Int64(bytesPerSecond)))/s") }
    if let secondsLeft { facts.append("\(HumanText.duration(secondsLeft)) left") }
    return progress.phase + (facts.isEmpty ? "" : ": ") + facts.joined(separator: ", ")
  }

  /// One line with a bar, if it fits in.
  func bar(width: Int) -> String {
    guard let share else { return String(text.prefix(width - 1)) }
    let barWidth = min(30, width - 1 - text.count - 3)
    guard barWidth >= 5 else { return String(text.prefix(width - 1)) }
    let full = Int((share * Double(barWidth)).rounded(.down))
    return "[" + String(repeating: "#", count: full) + String(repeating: ".", count: barWidth - full) + "] " + text
  }

  /// One JSON object.
  var json: String {
    let line = Line(
      phase: progress.phase, doneByteCount: progress.doneByteCount, totalByteCount: progress.totalByteCount,
      doneCount: progress.doneCount, totalCount: progress.totalCount,
      bytesPerSecond: Int64(bytesPerSecond), secondsLeft: secondsLeft?.roundedToMilliseconds)
    return (try? JSONText().line(line)) ?? "{}"
  }

  private var share: Double? {
    if progress.totalByteCount > 0 {
      return min(1, Double(progress.doneByteCount) / Double(progress.totalByteCount))
    }
    return progress.totalCount > 0 ? min(1, Double(progress.doneCount) / Double(progress.totalCount)) : nil
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
