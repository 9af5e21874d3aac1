import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("Machines that share a store", .serialized)
struct RemoteModelTests {
  private static let machines = ["one", "two", "three"]

  /// What every machine must come to hold: the versions that were reported done, and what hides them.
  private struct Model {
    var done: [String: [BlobVersion.ID: [UInt8]]] = [:]
    /// What each machine knows for sure, because it has caught up since.
    var publishedCount = 0
  }

  @Test(
    "agree once they have caught up, whatever is put, dropped, lost and opened again on which of them",
    arguments: 0..<3)
  func model(_ round: Int) throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace(StoreOptions(averageChunkByteCount: 1_024), pageCount: round == 0 ? 1_000 : 3)
    var engines: [String: Engine] = [:]
    func engine(_ machine: String) throws -> Engine {
      if let engine = engines[machine] { return engine }
      let opened = try place.engine(machine, packByteCount: 20_000, inline: round % 2 == 0)
      engines[machine] = opened
      return opened
    }
    var model = Model()
    let pool = (0..<6).map { _ in random.bytes(Int.random(in: 0...9_000, using: &random)) }
    let names = (0..<8).map { "key/\($0)" }
    for _ in 0..<80 {
      let machine = Self.machines.randomElement(using: &random) ?? ""
      let key = names.randomElement(using: &random) ?? ""
      var bytes = pool.randomElement(using: &random) ?? []
      if Bool.random(using: &random) { bytes += pool.randomElement(using: &random) ?? [] }
      switch Int.random(in: 0..<20, using: &random) {
      case 0..<9:
        let options = PutOptions(durability: .durable, replacement: .archiveCurrent)
        if Int.random(in: 0..<4, using: &random) == 0 {
          place.objects.trouble(
            [[.answerLost], [.refused], [.doubled], [.refused, .answerLost]].randomElement(using: &random)
              ?? [])
        }
        do {
          let result = try engine(machine).put(key, bytes, options)
          model.done[key, default: [:]][result.version.id] = bytes
        } catch let error as BlobStorageError {
          #expect(error.code == .io)
        }
        place.objects.trouble([])
      case 9..<12: try engine(machine).extend()
      case 12, 13: try engines.removeValue(forKey: machine)?.close()
      case 14:
        // It dies, and what it had published is all that counts.
        engines[machine] = nil
        try place.removeState(machine)
      case 15: engines[machine] = nil
      case 16: try engine(machine).catalog.rebuild(because: nil)
      case 17:
        // What a machine knows of a key goes, durably.
        let one = try engine(machine)
        let known = try one.versions(key)
        _ = try one.delete([key], .durable)
        for version in known { model.done[key]?[version.id] = nil }
      default:
        let one = try engine(machine)
        for version in try one.versions(key) {
          guard let expected = model.done[key]?[version.id] else { continue }
          #expect(try one.data(key, version.id) == Data(expected))
        }
      }
    }
    for machine in Self.machines {
      try engine(machine).synchronize()
    }
    // All packs: no change names one whose machine lost its folder after the object was there, until gc names it.
    for machine in Self.machines { try #require(engine(machine).publishedPacks).run(isFull: true) }
    let first = try contents(of: engine("one"))
    for machine in Self.machines.dropFirst() { #expect(try contents(of: engine(machine)) == first) }
    for (key, versions) in model.done {
      let one = try engine("two")
      for (id, bytes) in versions { #expect(try one.data(key, id) == Data(bytes), "\(key)") }
    }
    for machine in Self.machines { try engine(machine).catalog.rebuild(because: nil) }
    for machine in Self.machines {
      #expect(try contents(of: engine(machine)) == first)
      #expect(try engine(machine).verify().damaged == [])
    }
  }
}
