import Foundation

/// What the random choices of a test follow from.
public enum TestSeed {
  /// The seed that `BLOB_STORAGE_SEED` names. Else, in a soak, another each time; every day the same, so that nothing
  /// fails but what has changed.
  public static func choose() -> UInt64 {
    let environment = ProcessInfo.processInfo.environment
    if let seed = environment["BLOB_STORAGE_SEED"].flatMap({ UInt64($0) }) { return seed }
    return environment["BLOB_STORAGE_SOAK_SECONDS"] == nil ? 1 : UInt64.random(in: 1...1 << 40)
  }

  /// The same, and printed with the name of the test.
  public static func announce(_ test: String = #function) -> UInt64 {
    let seed = choose()
    print("\(test): seed \(seed)")
    return seed
  }
}
