import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

/// A store that came to be in steps, and a copy of its folder after each.
///
/// A killed writer left the last step but one, with a pack that is not sealed. The last step is the same store after
/// the next command has sealed it.
final class StoreHistory: Sendable {
  private let workshop: Workshop
  /// Copies of the store's folder, the oldest first.
  let steps: [URL]
  /// The newest value of each key.
  let values: [String: Data]
  /// A store with nothing in it.
  let empty: URL

  /// The store as a killed writer has left it.
  var killed: URL { steps[steps.count - 2] }
  /// The same store with sealed packs only.
  var sealed: URL { steps[steps.count - 1] }

  init() async throws {
    let workshop = try await Workshop()
    self.workshop = workshop
    var steps: [URL] = []
    func put(_ key: String, _ value: Data, _ options: String...) async throws {
      try await workshop.expect(0, ["put", key] + options, input: value)
    }
    empty = workshop.folder.appending(path: "empty")
    try await workshop.expect(0, ["init", "--store", empty.path])

    try await workshop.expect(0, ["cache", "set-limit", "1G", "--prefix", "temporary/"])
    try await put("temporary/x", Data("of a cache".utf8))
    try await put("replaced", Data("replaced: first".utf8))
    try await put("deleted", Data("deleted: never to be seen again".utf8))
    try await put("deleted later", noise(500, seed: 11))
    for name in ["a", "b", "folder/c"] {
      try workshop.write(Data("file \(name)".utf8), to: "tree/\(name)")
    }
    try await workshop.expect(0, ["import", "tree", "--prefix", "files/"])
    steps.append(try workshop.keepStep(steps.count))

    try await put("archived", Data("archived: first".utf8))
    try await put("archived", Data("archived: second".utf8), "--archive")
    for number in 1...4 { try await put("kept", Data("kept: \(number)".utf8), "--archive") }
    try await put("long", noise(3_000_000, seed: 1))
    steps.append(try workshop.keepStep(steps.count))

    try await put("replaced", Data("replaced: second".utf8))
    try await workshop.expect(0, ["delete", "deleted"])
    try await workshop.expect(0, ["keep", "--up-to", "1", "kept"])
    try workshop.write(Data("file b, written anew".utf8), to: "tree/b")
    try await workshop.expect(0, ["import", "tree", "--prefix", "files/"])
    steps.append(try workshop.keepStep(steps.count))

    try await workshop.expect(0, ["gc"])
    try await workshop.expect(0, ["gc"])
    steps.append(try workshop.keepStep(steps.count))

    try await put("replaced", Data("replaced: third".utf8))
    try await put("archived", Data("archived: third".utf8), "--archive")
    let long =
      noise(1_500_000, seed: 1) + Data("in the middle".utf8) + noise(3_000_000, seed: 1).suffix(1_500_000)
    try await put("long", long)
    try await workshop.expect(0, ["delete", "deleted later"])
    steps.append(try workshop.keepStep(steps.count))

    // What a copy shows that is made meanwhile is what a kill at that moment leaves.
    let store = try await BlobStore.open(at: workshop.storePath)
    _ = try await store.put(.data(Data("replaced: fourth".utf8)), forKey: "replaced")
    _ = try await store.put(
      .data(noise(2_000, seed: 21)), forKey: "open", options: PutOptions(metadata: Array("m".utf8)))
    steps.append(try workshop.keepStep(steps.count))
    _ = try await store.put(.data(Data("replaced: newest".utf8)), forKey: "replaced")
    _ = try await store.put(
      .data(noise(2_000, seed: 22)), forKey: "open", options: PutOptions(metadata: Array("n".utf8)))
    _ = try await store.delete(["files/a"])
    steps.append(try workshop.keepStep(steps.count))
    try await store.close()

    let next = workshop.folder.appending(path: "step \(steps.count)")
    try Workshop.copyStore(steps[steps.count - 1], to: next)
    try await workshop.expect(0, ["list", "--store", next.path])
    steps.append(next)
    self.steps = steps
    values = [
      "archived": Data("archived: third".utf8), "kept": Data("kept: 4".utf8), "long": long,
      "replaced": Data("replaced: newest".utf8), "open": noise(2_000, seed: 22),
      "temporary/x": Data("of a cache".utf8), "files/b": Data("file b, written anew".utf8),
      "files/folder/c": Data("file folder/c".utf8),
    ]
  }
}

extension Workshop {
  /// Keeps a copy of the store as it is now.
  fileprivate func keepStep(_ number: Int) throws -> URL {
    let copy = folder.appending(path: "step \(number)")
    try Self.copyStore(URL(fileURLWithPath: storePath), to: copy)
    return copy
  }

  /// Copies a store's folder; the copy stands for the original.
  static func copyStore(_ store: URL, to copy: URL) throws {
    try FileManager.default.copyItem(at: store, to: copy)
    try CopiedCatalog.adopt(copy.appending(path: "catalog").path)
  }
}

/// A way in which the files of a store are damaged.
struct StoreDamage: Sendable, CustomStringConvertible {
  enum Kind: CaseIterable, Sendable {
    case removed, cut, flipped, oldCopy, returned, exchanged, folder, combined
  }

  var kind: Kind
  var description: String
  /// Changes a copy of the store.
  var apply: @Sendable (URL) throws -> Void

  /// Every damage of one file of the store at `newest`, of folders of it, and some of two files.
  ///
  /// Leaves out what nothing in the store can tell: the whole folder of an earlier step, which is a store of its own;
  /// and damage of two places where only one knows what the other held:
  ///
  /// - the end of a pack that no writer has sealed, and an older catalog or none, which is how a crash leaves it;
  /// - a pack that gc had removed, or one that is lost, and a census that is older than that.
  static func all(_ newest: URL, before steps: [URL]) throws -> [StoreDamage] {
    let files = try StoreFiles(newest)
    let older = try steps.map(StoreFiles.init)
    var all: [StoreDamage] = []
    for (path, bytes) in files.inOrder {
      all += single(path, bytes)
      all += olds(of: path, in: older, except: bytes).map { number, old in
        StoreDamage(kind: .oldCopy, description: "\(path) of step \(number)") { try write(old, path, $0) }
      }
    }
    var gone = Set(older.flatMap(\.bytes.keys)).subtracting(files.bytes.keys)
    for path in older.flatMap({ $0.inOrder.map(\.path) }) where gone.remove(path) != nil {
      all += olds(of: path, in: older, except: nil).map { number, old in
        StoreDamage(kind: .returned, description: "\(path) of step \(number) returned") {
          try write(old, path, $0)
        }
      }
    }
    return all + exchanges(files) + folders(steps) + combinations(files, older, steps)
  }

  private static func single(_ path: String, _ bytes: Data) -> [StoreDamage] {
    var all = [
      StoreDamage(kind: .removed, description: "\(path) removed") {
        try FileManager.default.removeItem(at: $0.appending(path: path))
      }
    ]
    guard !bytes.isEmpty else {
      // Locks and the like have no content; something in them must not matter.
      return all + [
        StoreDamage(kind: .flipped, description: "\(path) has content") {
          try write(Data("content".utf8), path, $0)
        }
      ]
    }
    for count in Set([0, bytes.count / 2, bytes.count - 1]).sorted() {
      all.append(
        StoreDamage(kind: .cut, description: "\(path) cut to \(count) of \(bytes.count)") {
          try write(bytes.prefix(count), path, $0)
        })
    }
    // Evenly spread, and in the first and last bytes: headers, LMDB's two first pages, and trailers.
    var places = Set((0..<12).map { (2 * $0 + 1) * bytes.count / 24 })
    places.formUnion([21, 45, 4_096 + 21, 24, 144, 4_096 + 144].filter { $0 < bytes.count })
    places.formUnion([8, 40, 100, 160].compactMap { $0 < bytes.count ? bytes.count - $0 : nil })
    for (index, place) in places.sorted().enumerated() {
      all.append(
        StoreDamage(kind: .flipped, description: "\(path) flipped at \(place), bit \(index % 8)") {
          var flipped = bytes
          flipped[place] ^= 1 << UInt8(index % 8)
          try write(flipped, path, $0)
        })
    }
    return all
  }

  /// The different contents that a file had in earlier steps.
  private static func olds(of path: String, in older: [StoreFiles], except: Data?) -> [(number: Int, Data)] {
    var seen = Set([except].compactMap { $0 })
    return older.enumerated().compactMap { number, step in
      guard let old = step.bytes[path], seen.insert(old).inserted else { return nil }
      return (number, old)
    }
  }

  private static func exchanges(_ files: StoreFiles) -> [StoreDamage] {
    var all: [StoreDamage] = []
    for distance in 1...2 {
      for (one, other) in zip(files.packs, files.packs.dropFirst(distance)) {
        all.append(
          StoreDamage(kind: .exchanged, description: "\(one) exchanged with \(other)") {
            try write(files.bytes[other] ?? Data(), one, $0)
            try write(files.bytes[one] ?? Data(), other, $0)
          })
      }
    }
    return all
  }

  private static func folders(_ steps: [URL]) -> [StoreDamage] {
    ["catalog", "leases", "packs"].map { name in
      StoreDamage(kind: .folder, description: "\(name) removed") {
        try FileManager.default.removeItem(at: $0.appending(path: name))
      }
    }
      + steps.indices.map { number in
        StoreDamage(kind: .folder, description: "catalog of step \(number)") {
          try putBack("catalog", of: steps[number], $0)
        }
      }
  }

  private static func combinations(
    _ files: StoreFiles, _ older: [StoreFiles], _ steps: [URL]
  ) -> [StoreDamage] {
    var all: [StoreDamage] = []
    func add(_ description: String, _ apply: @escaping @Sendable (URL) throws -> Void) {
      all.append(StoreDamage(kind: .combined, description: description, apply: apply))
    }
    for pack in files.packs {
      let bytes = files.bytes[pack] ?? Data()
      let isSealed = bytes.suffix(64).starts(with: Data("BLOBFOOT".utf8))
      add("census and \(pack) removed") {
        try FileManager.default.removeItem(at: $0.appending(path: "census"))
        try FileManager.default.removeItem(at: $0.appending(path: pack))
      }
      for number in [nil] + steps.indices.map(Optional.some) {
        let which = number.map { "catalog of step \($0)" } ?? "no catalog"
        add("\(which), and \(pack) removed") {
          try putBack("catalog", of: number.map { steps[$0] }, $0)
          try FileManager.default.removeItem(at: $0.appending(path: pack))
        }
        guard isSealed else { continue }
        add("\(which), and \(pack) cut to half") {
          try putBack("catalog", of: number.map { steps[$0] }, $0)
          try write(bytes.prefix(bytes.count / 2), pack, $0)
        }
      }
    }
    for number in steps.indices {
      add("catalog and census of step \(number)") {
        try putBack("catalog", of: steps[number], $0)
        try write(older[number].bytes["census"] ?? Data(), "census", $0)
      }
      for pack in older[number].packs where files.bytes[pack] == nil {
        add("catalog and \(pack) of step \(number)") {
          try putBack("catalog", of: steps[number], $0)
          try write(older[number].bytes[pack] ?? Data(), pack, $0)
        }
      }
    }
    return all
  }

  /// Replaces a folder of the store by that of an earlier step, or removes it.
  private static func putBack(_ name: String, of step: URL?, _ store: URL) throws {
    try FileManager.default.removeItem(at: store.appending(path: name))
    guard let step else { return }
    try FileManager.default.copyItem(at: step.appending(path: name), to: store.appending(path: name))
    if name == "catalog" { try CopiedCatalog.adopt(store.appending(path: name).path) }
  }

  private static func write(_ bytes: Data, _ path: String, _ store: URL) throws {
    let url = store.appending(path: path)
    try FileManager.default.createDirectory(
      at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
    // A database that another program changes in its place, within the boot in which a writer was killed, is believed.
    try bytes.write(to: url, options: url.lastPathComponent == "data.mdb" ? .atomic : [])
  }
}

/// The files below a folder, by their paths there.
struct StoreFiles: Sendable {
  private(set) var bytes: [String: Data] = [:]

  init(_ folder: URL) throws {
    let names = FileManager.default.enumerator(atPath: folder.path)
    while let name = names?.nextObject() as? String {
      guard names?.fileAttributes?[.type] as? FileAttributeType == .typeRegular else { continue }
      bytes[name] = try Data(contentsOf: folder.appending(path: name))
    }
  }

  /// By their folders and lengths: names of packs are random, and what a seed chooses is to be the same each time.
  var inOrder: [(path: String, bytes: Data)] {
    bytes.sorted {
      let (one, other) = ($0.key.prefix { $0 != "/" }, $1.key.prefix { $0 != "/" })
      if one != other { return one < other }
      return $0.value.count != $1.value.count ? $0.value.count < $1.value.count : $0.key < $1.key
    }.map { ($0.key, $0.value) }
  }

  var packs: [String] { inOrder.map(\.path).filter { $0.hasSuffix(".pack") } }
}
