import BlobStorage
import BlobStorageSharing
import Foundation
import Synchronization

/// Checks one behaviour that every ``ObjectStore`` has. The same checks run over all of them.
package struct ObjectStoreCheck: Sendable, CustomStringConvertible {
  /// The behaviour, as a sentence.
  package let description: String
  private let body: @Sendable (Place) throws -> Void

  init(_ description: String, _ body: @escaping @Sendable (Place) throws -> Void) {
    self.description = description
    self.body = body
  }

  /// Checks a store, under names below `folder` that no other client uses.
  ///
  /// - Throws: ``ObjectStoreDifference`` if the store behaves otherwise.
  package func run(on store: any ObjectStore, below folder: String) throws {
    try body(Place(store: store, folder: folder))
  }

  /// A store, and a folder of names that only this check uses.
  struct Place: Sendable {
    let store: any ObjectStore
    let folder: String

    func name(_ name: String) -> String { "\(folder)/\(name)" }

    @discardableResult
    func put(_ name: String, _ bytes: [UInt8], ifAbsent: Bool = false) throws -> ObjectPutOutcome {
      try store.put(self.name(name), .bytes(bytes), ifAbsent: ifAbsent)
    }

    func get(_ name: String, _ range: Range<Int64>) throws -> [UInt8]? {
      try store.get(self.name(name), range)
    }

    /// All names below a prefix, from all pages.
    func names(_ prefix: String, after name: String? = nil) throws -> [String] {
      var names: [String] = []
      var last = name.map { self.name($0) }
      while true {
        let page = try store.list(self.name(prefix), after: last)
        names += page.entries.map { String($0.name.dropFirst(folder.utf8.count + 1)) }
        guard page.isTruncated else { return names }
        try expect(page.entries.last != nil, true, "there is something on every page but the last")
        last = page.entries.last?.name
      }
    }
  }
}

/// A difference between what a store did and what it should have done.
package struct ObjectStoreDifference: Error, CustomStringConvertible {
  package let description: String
}

extension ObjectStoreCheck.Place {
  func expect<Value: Equatable>(_ found: Value, _ expected: Value, _ what: String) throws {
    guard found != expected else { return }
    throw ObjectStoreDifference(
      description:
        "\(what): found \(String("\(found)".prefix(200))), not \(String("\(expected)".prefix(200)))")
  }

  /// Random bytes, always the same.
  func bytes(_ count: Int) -> [UInt8] {
    var generator = SplitMix64(seed: 1)
    return generator.bytes(count)
  }
}
