import BlobStorageDropIn
import Foundation

/// The archive's operations for tasks. A handler that was called twice would be a trap.
extension DataArchive {
  func set(_ key: String, _ data: Data) async -> DataArchiveResult {
    await withCheckedContinuation { done in set(key: key, data: data) { done.resume(returning: $0) } }
  }

  func set(_ key: String, _ text: String) async -> DataArchiveResult { await set(key, Data(text.utf8)) }

  func set<T: ValueConverter>(_ key: String, value: T) async -> DataArchiveResult {
    await withCheckedContinuation { done in set(key: key, value: value) { done.resume(returning: $0) } }
  }

  func archive(_ key: String, _ data: Data) async -> DataArchiveResult {
    await withCheckedContinuation { done in
      archiveCurrent(key: key, andSetNewData: data) { done.resume(returning: $0) }
    }
  }

  func delete(_ key: String) async -> DataArchiveResult {
    await withCheckedContinuation { done in delete(key: key) { done.resume(returning: $0) } }
  }

  func keep(_ limit: Int, of key: String) async -> DataArchiveResult {
    await withCheckedContinuation { done in
      keep(upTo: limit, archivesForKey: key) { done.resume(returning: $0) }
    }
  }

  func get(_ key: String) async -> (Data?, DataArchiveResult) {
    await withCheckedContinuation { done in get(key: key) { done.resume(returning: ($0, $1)) } }
  }

  func text(_ key: String) async -> String? { await get(key).0.map { String(decoding: $0, as: UTF8.self) } }

  func all(_ key: String) async -> ([Data], DataArchiveResult) {
    await withCheckedContinuation { done in getAll(key: key) { done.resume(returning: ($0, $1)) } }
  }

  func texts(_ key: String) async -> [String] { await all(key).0.map { String(decoding: $0, as: UTF8.self) } }

  func person(_ key: String) async -> (Person?, DataArchiveResult) {
    await withCheckedContinuation { done in
      get(key: key, converterType: JSONValueConverter<Person>.self) { done.resume(returning: ($0, $1)) }
    }
  }

  func people(_ key: String) async -> ([Person], DataArchiveResult) {
    await withCheckedContinuation { done in
      getAll(key: key, converterType: JSONValueConverter<Person>.self) { done.resume(returning: ($0, $1)) }
    }
  }

  func reader(_ key: String) async -> DataArchiveLazyLockingReader? {
    await withCheckedContinuation { done in lazyLockingReader(key: key) { done.resume(returning: $0) } }
  }
}

extension DataArchiveLazyLockingReader {
  func next() async -> (Data?, DataArchiveResult) {
    await withCheckedContinuation { done in getNext { done.resume(returning: ($0, $1)) } }
  }

  func nextPerson() async -> (Person?, DataArchiveResult) {
    await withCheckedContinuation { done in
      getNext(converterType: JSONValueConverter<Person>.self) { done.resume(returning: ($0, $1)) }
    }
  }
}

extension DataArchiveResult {
  var isMissing: Bool { if case .fileNotFound = self { true } else { false } }
  var isUnconverted: Bool { if case .couldNotConvertFile = self { true } else { false } }
  var isUnwritten: Bool { if case .couldNotWriteToFile = self { true } else { false } }
  var isLimit: Bool { if case .limitNeedsToBePositiveNumber = self { true } else { false } }
  var isEnd: Bool { if case .lockingReaderWasFinished = self { true } else { false } }
}

/// What the tests store.
struct Person: Persistible, Codable, Hashable, Sendable {
  var name: String
  var age: Int

  init(_ name: String, _ age: Int) {
    self.name = name
    self.age = age
  }
}

/// A value that has no bytes.
struct Unconvertible: ValueConverter {
  var value = 0
  var toData: Data? { nil }
  static func from(data: Data) -> Unconvertible? { nil }
}
