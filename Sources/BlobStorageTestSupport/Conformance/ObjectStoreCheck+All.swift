import BlobStorage
import BlobStorageSharing
import Foundation
import Synchronization

extension ObjectStoreCheck {
  /// All checks.
  package static let all = [
    wholes, ranges, tails, files, missing, replacing, conditional, races, listings, pages, listedAtOnce,
    deleting,
  ]

  private static let wholes = ObjectStoreCheck("keeps objects of any length, byte for byte") { place in
    for count in [0, 1, 4_095, 700_000] {
      let bytes = place.bytes(count)
      try place.expect(try place.put("whole-\(count)", bytes), .stored, "a put of \(count) bytes")
      try place.expect(try place.get("whole-\(count)", 0..<Int64(count)), bytes, "\(count) bytes")
    }
  }

  private static let ranges = ObjectStoreCheck("reads a range, and less where the object ends before") {
    place in
    let bytes = place.bytes(10_000)
    try place.put("ranges", bytes)
    try place.put("nothing", [])
    let cases: [Range<Int64>] = [
      0..<1, 0..<10_000, 9_999..<10_000, 3_000..<7_000, 9_990..<20_000, 0..<20_000, 10_000..<10_010,
      50_000..<50_001, 5_000..<5_000, 10_000..<10_000,
    ]
    for range in cases {
      let expected = Array(bytes[Int(min(range.lowerBound, 10_000))..<Int(min(range.upperBound, 10_000))])
      try place.expect(try place.get("ranges", range), expected, "the range \(range)")
    }
    try place.expect(try place.get("nothing", 0..<100), [], "a range of an empty object")
  }

  private static let tails = ObjectStoreCheck("reads the last bytes and tells the length") { place in
    let bytes = place.bytes(5_000)
    try place.put("tails", bytes)
    try place.put("empty", [])
    for count in [1, 4_999, 5_000, 5_001, 100_000] {
      let tail = try place.store.tail(place.name("tails"), byteCount: count)
      try place.expect(tail?.bytes, Array(bytes.suffix(count)), "the last \(count) bytes")
      try place.expect(tail?.byteCount, 5_000, "the length, told with the last \(count) bytes")
    }
    let tail = try place.store.tail(place.name("empty"), byteCount: 10)
    try place.expect(tail?.bytes, [], "the last bytes of an empty object")
    try place.expect(tail?.byteCount, 0, "the length of an empty object")
  }

  private static let files = ObjectStoreCheck("stores the first bytes of a file") { place in
    let bytes = place.bytes(1_300_000)
    for count in [0, 1, 1_048_576, 1_299_999, 1_300_000] {
      let content = ObjectContent.file(MemoryFile(bytes), byteCount: Int64(count))
      try place.expect(
        try place.store.put(place.name("file-\(count)"), content, ifAbsent: true), .stored, "a put of a file")
      let found = try place.get("file-\(count)", 0..<2_000_000)
      try place.expect(found == Array(bytes.prefix(count)), true, "\(count) bytes of a file are kept")
    }
  }

  private static let missing = ObjectStoreCheck("says that there is no such object") { place in
    try place.expect(try place.get("missing", 0..<10), nil, "a range of nothing")
    try place.expect(try place.get("missing", 0..<0), nil, "an empty range of nothing")
    try place.expect(
      try place.store.tail(place.name("missing"), byteCount: 1)?.byteCount, nil, "the length of nothing")
    try place.store.delete(place.name("missing"))
    try place.expect(try place.names("missing"), [], "names that were never put")
  }

  private static let replacing = ObjectStoreCheck("replaces an object that is put again") { place in
    for count in [100, 10, 1_000] {
      try place.put("replaced", place.bytes(count))
      try place.expect(try place.get("replaced", 0..<5_000), place.bytes(count), "what was put last")
    }
  }

  private static let conditional = ObjectStoreCheck("stores once what is put if absent") { place in
    let bytes = place.bytes(1_000)
    try place.expect(try place.put("once", bytes, ifAbsent: true), .stored, "the first put")
    try place.expect(try place.put("once", [1], ifAbsent: true), .exists, "the second put")
    try place.expect(try place.put("once", bytes, ifAbsent: true), .exists, "the same put again")
    try place.expect(try place.get("once", 0..<5_000), bytes, "what the first one put")
  }

  private static let races = ObjectStoreCheck("lets one of many puts at once store") { place in
    let finding = try ConditionalPutProbe(roundCount: 3, contenderCount: 6).run(
      on: place.store, below: place.name("race"))
    try place.expect(finding, .holds, "what the probe finds")
    try place.expect(try place.names("race"), [], "what the probe leaves")
  }

  private static let listings = ObjectStoreCheck("lists names in byte order, below a prefix, after a name") {
    place in
    let names = ["a", "a-b", "a.b", "a/b", "a/b/c", "aB", "aa", "b0", "ba/x"]
    for (index, name) in names.enumerated().shuffled() { try place.put("l/\(name)", place.bytes(index)) }
    let sorted = names.map { "l/\($0)" }.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    try place.expect(try place.names("l/"), sorted, "all names")
    try place.expect(try place.names("l/a/"), ["l/a/b", "l/a/b/c"], "the names below a/")
    try place.expect(try place.names("l/b"), ["l/b0", "l/ba/x"], "the names that begin with b")
    try place.expect(try place.names("l/", after: "l/aa"), ["l/b0", "l/ba/x"], "the names after one")
    try place.expect(
      try place.names("l/", after: "l/ab"), ["l/b0", "l/ba/x"], "the names after one that is not there")
    try place.expect(try place.names("l/a", after: "l/zz"), [], "the names after all")
    let entries = try place.store.list(place.name("l/"), after: nil).entries
    for entry in entries {
      let name = String(entry.name.dropFirst(place.name("l/").utf8.count))
      try place.expect(entry.byteCount, Int64(names.firstIndex(of: name) ?? -1), "the length of \(name)")
    }
  }

  private static let pages = ObjectStoreCheck("lists many names page by page") { place in
    let names = (0..<60).map { "pages/\(1_000 + $0)" }
    for name in names { try place.put(name, []) }
    try place.expect(try place.names("pages/"), names, "all names of all pages")
    try place.expect(try place.names("pages/", after: names[40]), Array(names[41...]), "all names after one")
  }

  private static let listedAtOnce = ObjectStoreCheck("lists at once what was put or deleted") { place in
    for index in 0..<8 {
      try place.put("now/\(index)", [])
      try place.expect(try place.names("now/").last, "now/\(index)", "the newest name")
    }
    for index in (4..<8).reversed() {
      try place.store.delete(place.name("now/\(index)"))
      try place.expect(try place.names("now/").last, "now/\(index - 1)", "the newest name that is left")
    }
  }

  private static let deleting = ObjectStoreCheck("forgets what is deleted, twice as well") { place in
    try place.put("deleted", [1, 2, 3])
    for _ in 0..<2 {
      try place.store.delete(place.name("deleted"))
      try place.expect(try place.get("deleted", 0..<3), nil, "what was deleted")
    }
  }
}
