import ArgumentParser
import BlobStorage
import Foundation

/// `watch`: shows the work on a store, from another terminal.
struct WatchCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "watch", abstract: "Shows imports, gc and other long work that runs on the store now.",
    discussion: """
      It runs until it is interrupted; --once shows what runs now and ends. With --json it prints one line for each \
      operation, each time. It does not open the store, and does not see the work of other users.
      """)

  @Flag(help: "Show what runs now, and end.")
  var once = false

  @Option(help: ArgumentHelp("Look after each DURATION: 5s, 2m, 1h.", valueName: "duration"))
  var interval = DurationArgument(seconds: 1)

  @OptionGroup var shared: SharedOptions

  func validate() throws {
    guard interval.value >= .seconds(0.1), interval.value <= .seconds(86_400) else {
      throw ValidationError("--interval is from 0.1s to 1d")
    }
  }

  func run() async throws {
    let place = try shared.place()
    var display = WatchDisplay(isTerminal: isatty(1) == 1 && !once)
    while true {
      let activities = try await place.explaining { () throws(BlobStorageError) in
        try await BlobStore.activities(at: place.folder)
      }
      try Interruption.check()
      if shared.json {
        for activity in activities { try JSONText.print(activity) }
      } else {
        try display.show(activities, saysNothing: once)
      }
      if once { return }
      try await Task.sleep(for: interval.value)
    }
  }
}

/// Prints long work on standard output. On a terminal, each print replaces the one before.
struct WatchDisplay {
  let isTerminal: Bool
  private var shownLineCount = 0

  init(isTerminal: Bool) { self.isTerminal = isTerminal }

  mutating func show(_ activities: [StoreActivity], saysNothing: Bool) throws {
    var lines: [String] = []
    for activity in activities { lines += Self.lines(activity, isTerminal: isTerminal) }
    if lines.isEmpty, isTerminal || saysNothing { lines = ["Nothing is running."] }
    var control = ""
    if isTerminal {
      if shownLineCount > 0 { control += "\u{1b}[\(shownLineCount)A" }
      control += "\r\u{1b}[J"
      shownLineCount = lines.count
    }
    try StandardOutput.write(lines.map { $0 + "\n" }.joined(), after: control)
  }

  private static func lines(_ activity: StoreActivity, isTerminal: Bool) -> [String] {
    let width = isTerminal ? Terminal.width : 200
    let now = Date()
    var title = activity.operation.printable
    if !activity.subject.isEmpty { title += " " + activity.subject.printable }
    let age = max(0, now.timeIntervalSince(activity.started))
    let facts = ", process \(activity.processID), for \(HumanText.duration(.seconds(age)))"
    if title.count + facts.count > width - 1 {
      title = title.prefix(max(8, width - 2 - facts.count)) + "…"
    }
    let pace = Pace(
      activity.progress, bytesPerSecond: activity.bytesPerSecond, countPerSecond: nil,
      secondsLeft: activity.timeLeft.map { $0 / .seconds(1) })
    var line = isTerminal ? pace.bar(width: width - 2) : pace.text
    let silence = now.timeIntervalSince(activity.updated)
    if silence >= 10 { line += " (reported \(HumanText.duration(.seconds(silence))) ago)" }
    return [title + facts, "  " + String(line.prefix(width - 3))]
  }
}
