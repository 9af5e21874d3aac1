import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

/// Every decoder on its seeds, on what fuzzing has found before, and on seeded changes of both. `tools/fuzz` is the same
/// with libFuzzer, for longer.
@Suite("Decoders", .serialized)
struct FuzzTests {
  @Test("take or refuse whatever they are given", arguments: FuzzTarget.all.map(\.name))
  func replay(_ name: String) throws {
    let target = try #require(FuzzTarget.all.first { $0.name == name })
    var inputs = target.seeds()
    let folder = URL(filePath: #filePath).deletingLastPathComponent()
      .appending(path: "../../Fixtures/fuzz/\(name)").standardizedFileURL
    for file in (try? FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil))
      ?? []
    {
      inputs.append([UInt8](try Data(contentsOf: file)))
    }
    #expect(!inputs.isEmpty)
    inputs.append([])
    for input in inputs { target.run(input) }
    var generator = SplitMix64(seed: Soak.firstSeed)
    print("\(name) with BLOB_STORAGE_SEED=\(Soak.firstSeed)")
    // By time, because some decode a number and others open a store.
    let end = Date().addingTimeInterval(Soak.isOn ? Soak.seconds / 10 : 0.4)
    while Date() < end {
      target.run(Self.changed(inputs, &generator))
      Soak.count("fuzzed inputs of \(name)")
    }
    Soak.printCounts("fuzzing \(name)")
  }

  @Test("of a catalog's state begin with what it takes")
  func seedsOfState() throws {
    let target = try #require(FuzzTarget.all.first { $0.name == "state" })
    for seed in target.seeds() {
      let text = String(decoding: seed, as: UTF8.self)
      #expect(CatalogState(text)?.text == text)
    }
  }

  /// One of the inputs, changed in a few places.
  static func changed(_ inputs: [[UInt8]], _ generator: inout SplitMix64) -> [UInt8] {
    func below(_ bound: Int) -> Int { Int(generator.next() % UInt64(max(bound, 1))) }
    var input = inputs[below(inputs.count)]
    for _ in 0...below(4) {
      let place = below(input.count)
      switch below(7) {
      case 0 where !input.isEmpty: input[place] ^= 1 << UInt8(below(8))
      case 1 where !input.isEmpty: input[place] = [0, 1, 0x7f, 0x80, 0xff][below(5)]
      case 2 where !input.isEmpty: input.removeSubrange(place..<min(place + 1 + below(8), input.count))
      case 3: input.insert(contentsOf: (0..<1 + below(8)).map { _ in UInt8(below(256)) }, at: place)
      case 4 where input.count > 8:
        for index in place..<min(place + 8, input.count) { input[index] = 0xff }
      case 5: input.append(contentsOf: inputs[below(inputs.count)].prefix(below(200)))
      default: input = Array(input.prefix(place))
      }
    }
    return input
  }
}
