import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

private let newData = Data("new".utf8)
private let newItem = PutItem(key: "k", data: newData)

/// A store of objects tells what is durable: another machine sees it.
@Suite("A change of a store")
struct ChangeDurabilityTests {
  private typealias Change = @Sendable (BlobStore) async throws -> Void

  private static let durable: [String: Change] = [
    "set": { _ = try await $0.set("k", to: newData) },
    "set value": { _ = try await $0.set("k", to: "new") },
    "archive": { _ = try await $0.set("k", to: newData, archivingCurrent: true) },
    "put": { _ = try await $0.put(.data(newData), forKey: "k") },
    "put several": { _ = try await $0.put([newItem]) },
    "apply": { _ = try await $0.apply([.put(newItem)]) },
    "delete several": { _ = try await $0.delete(["k"]) },
    "delete": { _ = try await $0.delete("k") },
    "delete prefix": { _ = try await $0.delete(prefix: .bytes("k")) },
    "delete all": { _ = try await $0.deleteAllKeys() },
    "keep": { _ = try await $0.keep(upTo: 0, of: "k") },
    "keep prefix": { _ = try await $0.trimHistory(of: .prefix(.bytes("k")), toArchived: 0) },
    "keep all": { _ = try await $0.trimHistory(of: .all, toArchived: 0) },
    "blocking put": { _ = try $0.blocking.put(.data(newData), forKey: "k") },
    "blocking put several": { _ = try $0.blocking.put([newItem]) },
    "blocking apply": { _ = try $0.blocking.apply([.put(newItem)]) },
    "blocking delete": { _ = try $0.blocking.delete("k") },
    "blocking delete prefix": { _ = try $0.blocking.delete(prefix: .bytes("k")) },
    "blocking delete all": { _ = try $0.blocking.deleteAllKeys() },
    "blocking keep": { _ = try $0.blocking.keep(upTo: 0, of: "k") },
  ]

  private static let relaxed: [String: Change] = [
    "set": { _ = try await $0.set("k", to: newData, durability: .relaxed) },
    "set value": { _ = try await $0.set("k", to: "new", options: .relaxed) },
    "archive": { _ = try await $0.set("k", to: newData, archivingCurrent: true, durability: .relaxed) },
    "put": { _ = try await $0.put(.data(newData), forKey: "k", options: .relaxed) },
    "put several": { _ = try await $0.put([newItem], options: .relaxed) },
    "apply": { _ = try await $0.apply([.put(newItem)], durability: .relaxed) },
    "delete several": { _ = try await $0.delete(["k"], durability: .relaxed) },
    "delete prefix": { _ = try await $0.delete(prefix: .bytes("k"), durability: .relaxed) },
    "keep prefix": {
      _ = try await $0.trimHistory(of: .prefix(.bytes("k")), toArchived: 0, durability: .relaxed)
    },
    "blocking keep": { _ = try $0.blocking.keep(upTo: 0, of: "k", durability: .relaxed) },
  ]

  private func open(_ place: RemotePlace, _ machine: String) async throws -> BlobStore {
    try await BlobStore.open(
      place.objects, state: place.statePath(machine), remote: RemoteConfiguration(interval: .zero))
  }

  @Test("is durable when it returns, unless the options say otherwise", arguments: durable.keys.sorted())
  func byDefault(_ name: String) async throws {
    let place = try RemotePlace()
    let (store, other) = (try await open(place, "one"), try await open(place, "two"))
    for text in ["1", "2"] { try await store.set("k", to: Data(text.utf8), archivingCurrent: true) }
    try await other.extend()
    let before = try contents(of: other.engine)
    #expect(before.count == 2)
    try await Self.durable[name]?(store)
    try await other.extend()
    let after = try contents(of: other.engine)
    #expect(try after == contents(of: store.engine))
    #expect(after != before)
    try await store.close()
    try await other.close()
    withExtendedLifetime(place) {}
  }

  @Test("that may be relaxed is durable once it is asked for", arguments: relaxed.keys.sorted())
  func onDemand(_ name: String) async throws {
    let place = try RemotePlace()
    let (store, other) = (try await open(place, "one"), try await open(place, "two"))
    for text in ["1", "2"] { try await store.set("k", to: Data(text.utf8), archivingCurrent: true) }
    try await other.extend()
    let before = try contents(of: other.engine)
    try await Self.relaxed[name]?(store)
    try await other.extend()
    #expect(try contents(of: other.engine) == before)
    if name.hasPrefix("blocking") {
      try store.blocking.synchronize()
    } else {
      try await store.synchronize()
    }
    try await other.extend()
    let after = try contents(of: other.engine)
    #expect(try after == contents(of: store.engine))
    #expect(after != before)
    try await store.close()
    try await other.close()
    withExtendedLifetime(place) {}
  }
}
