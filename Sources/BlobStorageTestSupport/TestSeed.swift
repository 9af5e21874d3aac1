import Foundation

/// The seed of a test's random choices.
public enum TestSeed {
  /// The seed in `BLOB_STORAGE_SEED`. Otherwise a soak gets another seed each time, and other runs always the same one,
  /// so that only changed code can fail.
  public static func choose() -> UInt64 {
    let environment = ProcessInfo.processInfo.environment
    if let seed = environment["BLOB_STORAGE_SEED"].flatMap({ UInt64($0) }) { return seed }
    return environment["BLOB_STORAGE_SOAK_SECONDS"] == nil ? 1 : UInt64.random(in: 1...1 << 40)
  }

  /// Chooses a seed, and prints it with the name of the test.
  public static func announce(_ test: String = #function) -> UInt64 {
    let seed = choose()
    print("\(test): seed \(seed)")
    return seed
  }
}
