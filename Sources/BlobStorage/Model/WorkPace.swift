import Foundation

/// Estimates how fast work goes and how long the rest of it takes, from its progress reports.
///
/// Recent work counts most: its weight halves every eight seconds. Bytes and files have separate costs, because a
/// thousand small files take longer than one of the same length. Without evidence there is no estimate: in the first
/// two seconds of a phase, without a total, and after ten seconds without progress. The caller provides the time.
public struct WorkPace: Sendable {
  /// Seconds after which earlier work counts half.
  package static let halfLifeSeconds = 8.0
  /// Seconds of a phase before it reports the time left.
  package static let silenceSeconds = 2.0
  /// Seconds without progress after which it reports no time left.
  package static let stallSeconds = 10.0

  /// Bytes are counted in units that cost about as much as a file, so that neither is lost in the other's rounding.
  private static let byteUnit = 65_536.0
  private static let sampleSecondsMin = 0.05
  private static let sampleCountMin = 3

  private var latest: WorkProgress?
  private var began = 0.0
  /// Where the sample under way begins.
  private var sampled = (seconds: 0.0, byteCount: Int64(0), count: 0)
  private var advanced = 0.0
  private var sampleCount = 0
  /// Sums over samples: seconds, bytes, files, and their products.
  private var (seconds, bytes, files) = (0.0, 0.0, 0.0)
  private var (bytesBytes, bytesFiles, filesFiles, bytesSeconds, filesSeconds) = (0.0, 0.0, 0.0, 0.0, 0.0)

  /// Creates a pace without evidence.
  public init() {}

  /// Learns from a report. `now` is in seconds, on any clock that does not jump.
  public mutating func update(_ progress: WorkProgress, at now: Double) {
    guard let before = latest, before.phase == progress.phase, progress.doneCount >= before.doneCount,
      progress.doneByteCount >= before.doneByteCount
    else {
      self = WorkPace()
      latest = progress
      began = now
      advanced = now
      sampled = (now, progress.doneByteCount, progress.doneCount)
      return
    }
    if progress.doneByteCount > before.doneByteCount || progress.doneCount > before.doneCount {
      advanced = now
    }
    latest = progress
    let span = now - sampled.seconds
    guard span >= Self.sampleSecondsMin else { return }
    add(
      span, Double(progress.doneByteCount - sampled.byteCount) / Self.byteUnit,
      Double(progress.doneCount - sampled.count))
    sampled = (now, progress.doneByteCount, progress.doneCount)
  }

  /// Below what an `Int64` holds: the lengths that a forged store claims can add up to more in a second.
  package static let bytesPerSecondMax = 9e18

  /// Recent bytes per second; nil while there is no evidence.
  public var bytesPerSecond: Double? {
    seconds > 0 ? min(bytes * Self.byteUnit / seconds, Self.bytesPerSecondMax) : nil
  }

  /// Recent files, packs or blobs per second; nil while there is no evidence.
  public var countPerSecond: Double? { seconds > 0 ? files / seconds : nil }

  /// Seconds until the phase is done at the recent pace; nil when there is no estimate.
  public func secondsLeft(at now: Double) -> Double? {
    guard let latest, now - began >= Self.silenceSeconds, sampleCount >= Self.sampleCountMin,
      now - advanced < Self.stallSeconds, latest.totalByteCount > 0 || latest.totalCount > 0
    else { return nil }
    let bytesLeft = Double(max(0, latest.totalByteCount - latest.doneByteCount)) / Self.byteUnit
    let filesLeft = Double(max(0, latest.totalCount - latest.doneCount))
    let cost = cost(knowsBytes: latest.totalByteCount > 0, knowsFiles: latest.totalCount > 0)
    // Corrects the costs by the time that the work done so far really took, stops included.
    let expected = cost.byte * bytes + cost.file * files
    guard expected > 0 else { return nil }
    let left = (cost.byte * bytesLeft + cost.file * filesLeft) * seconds / expected
    return max(0, left - (now - sampled.seconds))
  }

  private mutating func add(_ span: Double, _ newBytes: Double, _ newFiles: Double) {
    let share = exp2(-span / Self.halfLifeSeconds)
    func fade(_ sum: inout Double, adding value: Double) { sum = sum * share + value }
    fade(&seconds, adding: span)
    fade(&bytes, adding: newBytes)
    fade(&files, adding: newFiles)
    fade(&bytesBytes, adding: newBytes * newBytes)
    fade(&bytesFiles, adding: newBytes * newFiles)
    fade(&filesFiles, adding: newFiles * newFiles)
    fade(&bytesSeconds, adding: newBytes * span)
    fade(&filesSeconds, adding: newFiles * span)
    sampleCount += 1
  }

  /// Seconds for a unit of bytes and for a file, by least squares; never negative.
  private func cost(knowsBytes: Bool, knowsFiles: Bool) -> (byte: Double, file: Double) {
    let byteAlone = (bytesBytes > 0 ? bytesSeconds / bytesBytes : 0, 0.0)
    let fileAlone = (0.0, filesFiles > 0 ? filesSeconds / filesFiles : 0)
    guard knowsBytes, bytesBytes > 0 else { return fileAlone }
    guard knowsFiles, filesFiles > 0 else { return byteAlone }
    // If all files are alike, the two costs cannot be told apart. A small bias then divides the cost between them.
    let bias = 0.001 * max(bytesBytes, filesFiles)
    let determinant = (bytesBytes + bias) * (filesFiles + bias) - bytesFiles * bytesFiles
    let byte = ((filesFiles + bias) * bytesSeconds - bytesFiles * filesSeconds) / determinant
    let file = ((bytesBytes + bias) * filesSeconds - bytesFiles * bytesSeconds) / determinant
    if byte <= 0 { return fileAlone }
    if file <= 0 { return byteAlone }
    return (byte, file)
  }
}
