import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization

/// How long the tests may run, and what they counted.
enum Soak {
  /// Seconds that each test may take; 0 for the bounded run of every day.
  static let seconds: Double = environment("BLOB_STORAGE_SOAK_SECONDS").flatMap(Double.init) ?? 0
  static var isOn: Bool { seconds > 0 }
  /// A seed to begin with, so that a failure can be played again.
  static let firstSeed = TestSeed.choose()

  private static let counts = Mutex<[String: Int]>([:])

  /// Adds to a count that is printed at the end.
  static func count(_ name: String, _ number: Int = 1) {
    counts.withLock { $0[name, default: 0] += number }
  }

  static let isTraced = environment("BLOB_STORAGE_TRACE") != nil

  /// Writes what led to a failure to the file that `BLOB_STORAGE_TRACE` names.
  static func trace(_ text: String) {
    guard let path = environment("BLOB_STORAGE_TRACE") else { return }
    try? text.write(toFile: path, atomically: true, encoding: .utf8)
  }

  /// Prints what was counted so far, on one line that `tools/soak` picks up.
  static func printCounts(_ title: String) {
    let text = counts.withLock { $0 }.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
    print("counts after \(title): \(text.joined(separator: ", "))")
  }

  /// The seeds of one test: `count` of them, or as many as the soak's time allows.
  static func seeds(_ count: Int) -> Seeds { Seeds(count: count) }

  struct Seeds: Sequence, IteratorProtocol {
    private let end: Date
    private let count: Int
    private var done = 0

    init(count: Int) {
      self.count = count
      end = Date().addingTimeInterval(Soak.seconds)
    }

    mutating func next() -> UInt64? {
      guard done < count || (Soak.isOn && Date() < end) else { return nil }
      defer { done += 1 }
      return Soak.firstSeed + UInt64(done)
    }
  }

  /// Of many things to try: every day so many, evenly spread; in a soak all in an order by chance, as far as its time
  /// allows.
  static func some<T>(of all: [T], daily count: Int) -> Some<T> { Some(all, count) }

  struct Some<T>: Sequence, IteratorProtocol {
    private var rest: ArraySlice<T>
    private let end: Date?

    init(_ all: [T], _ count: Int) {
      guard Soak.isOn else {
        let step = Swift.max(1, (all.count + count - 1) / count)
        rest = stride(from: 0, to: all.count, by: step).map { all[$0] }[...]
        end = nil
        return
      }
      var generator = SplitMix64(seed: Soak.firstSeed)
      rest = all.shuffled(using: &generator)[...]
      end = Date().addingTimeInterval(Soak.seconds)
    }

    mutating func next() -> T? {
      if let end, Date() > end { return nil }
      return rest.popFirst()
    }
  }

  private static func environment(_ name: String) -> String? { ProcessInfo.processInfo.environment[name] }
}
