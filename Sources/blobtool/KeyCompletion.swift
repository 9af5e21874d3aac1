import ArgumentParser
import BlobStorage
import Foundation

/// Completes keys for a shell, from the store that the command line or the environment names.
///
/// Changes nothing, and reports no errors: the command itself does.
enum KeyCompletion {
  static let kind = CompletionKind.custom { words, _, prefix in await keys(beginningWith: prefix, words) }

  private static let keyCountMax = 500
  /// A store with many chunks takes longer to open for reading only. The shell does not wait for it.
  private static let patience = Duration.seconds(2)

  private static func keys(beginningWith prefix: String, _ words: [String]) async -> [String] {
    guard let store = store(words) else { return [] }
    let (answers, continuation) = AsyncStream<[String]>.makeStream()
    Task.detached { continuation.yield(await keys(beginningWith: prefix, in: store)) }
    Task.detached {
      try? await Task.sleep(for: patience)  // it is not cancelled
      continuation.yield([])
    }
    for await answer in answers { return answer }
    return []
  }

  private static func keys(beginningWith prefix: String, in store: String) async -> [String] {
    do {
      let path = try StorePlace.path(store)
      guard !StorePlace.isInBucket(path) else { return [] }
      let store = try await BlobStore.openReadOnly(at: path)
      // A shell takes one completion a line, and a terminal obeys some characters.
      return try await store.keys(prefix: .bytes(prefix), limit: keyCountMax).map(\.key)
        .filter { $0.printable == $0 }.map(written)
    } catch { return [] }
  }

  /// The store that the words of the command line name. Some shells pass `=` as a word of its own.
  private static func store(_ words: [String]) -> String? {
    for (index, word) in words.enumerated() where word.hasPrefix("--store") {
      if word.hasPrefix("--store=") { return String(word.dropFirst("--store=".count)) }
      let next = words.dropFirst(index + 1).drop { $0 == "=" }.first
      if word == "--store", let next { return next }
    }
    return ProcessInfo.processInfo.environment["BLOBTOOL_STORE"]
  }

  /// The completion for the asking shell: zsh treats text after a colon as a description.
  private static func written(_ key: String) -> String {
    guard CompletionShell.requesting == .zsh else { return key }
    return key.replacing("\\", with: "\\\\").replacing(":", with: "\\:")
  }
}
