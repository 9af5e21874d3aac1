import Foundation
import Testing

@Suite("The source tree")
struct TidyTests {
  /// The rooms, each using only those before it. Those of one line do not use each other.
  static let rooms = [
    ["Errors"], ["Bytes"], ["Digest"], ["Format"], ["Chunking", "Codec", "Similarity"], ["Model"], ["Files"],
    ["Backend"], ["Pack"], ["Catalog"], ["Leases", "Read"], ["Write"], ["Engine"],
    ["Maintenance"], ["Store"],
    // Targets of their own, which the core cannot import.
    ["Cache"], ["Trees"], ["Transfer Files"], ["Transfer", "Reports", "Observation", "Testing"],
    ["Migration", "Mount"],
    // For stores that machines share.
    ["Objects", "Index"], ["Packs"], ["Publishing", "Extending"], ["SharedStore"], ["Collecting"],
  ]
  /// An error names the digest that it is about.
  static let allowed: Set<String> = ["Errors uses BlobDigest"]
  /// What the glossary says not to say, as far as the words have no other meaning here.
  static let wordsAvoided = [
    "segment", "fragment", "splitter", "fingerprint", "compressor", "recipe", "bundle", "registry",
    "revision", "vault", "driver", "orphan", "dangling", "junk", "trash", "prune", "vacuum", "repack",
    "defrag", "fsck",
    "purge", "latch", "asset", "delta",
  ]

  let tree: SourceTree

  init() throws { tree = try SourceTree() }

  @Test("has the rooms that are listed and no others")
  func roomNames() {
    #expect(Set(tree.sources.map(\.room)) == Set(Self.rooms.joined()))
  }

  @Test("uses types of a room only in it and in those below")
  func directions() throws {
    var rank: [String: Int] = [:]
    for (index, row) in Self.rooms.enumerated() { for room in row { rank[room] = index } }
    let declaration =
      /^(?:@\S+ )*(?:public |package |indirect |final )*(?:struct|class|enum|protocol|actor|typealias) ([A-Z]\w*)/
    var owner: [Substring: String] = [:]
    for source in tree.sources {
      for line in source.lines {
        if let match = line.prefixMatch(of: declaration) { owner[match.1] = source.room }
      }
    }
    #expect(owner.count > 100)
    var wrong: Set<String> = []
    for source in tree.sources {
      for (number, line) in source.code.enumerated() {
        for match in line.matches(of: /(?:^|[^.\w])([A-Z]\w*)/) {
          guard let room = owner[match.1], room != source.room, (rank[room] ?? 0) >= (rank[source.room] ?? 0),
            !Self.allowed.contains("\(source.room) uses \(match.1)")
          else { continue }
          wrong.insert("\(source.room)/\(source.name):\(number + 1) uses \(match.1) of \(room)")
        }
      }
    }
    #expect(wrong.sorted() == [])
  }

  @Test("calls the system in Files only")
  func systemCalls() throws {
    let header = try String(
      contentsOf: SourceTree.folder.appending(path: "CBlobKernels/include/bs_system.h"), encoding: .utf8)
    let calls = Set(header.matches(of: /\b(bs_\w+)\(/).map { String($0.1) })
    #expect(calls.count > 5)
    var wrong: [String] = []
    // A lock that the thread sanitizer sees, under it only: every room uses it.
    let exempt = "Mutex+ThreadSanitizer.swift"
    for source in tree.sources where !source.room.hasSuffix("Files") && source.name != exempt {
      for (number, line) in source.code.enumerated() {
        let isCall = line.matches(of: /\bbs_\w+/).contains { calls.contains(String($0.0)) }
        if isCall || line.contains(/\bimport (Glibc|Musl|Darwin)\b/) {
          wrong.append("\(source.room)/\(source.name):\(number + 1)")
        }
      }
    }
    #expect(wrong == [])
  }

  /// Fails if a descriptor is closed where nothing stops debug builds at the second time.
  @Test("closes descriptors in one place")
  func closes() {
    let places = tree.sources.filter { $0.code.contains { $0.contains(/\bbs_close\b/) } }.map(\.name)
    #expect(places == ["SystemCall.swift"])
  }

  @Test("has nothing in it that traps on bytes from disk, prints or is left to do")
  func forbidden() {
    let pattern = /\btry!|\bas!|\bfatalError\b|(?:^|[^.\w])print\(/
    var wrong: [String] = []
    for source in tree.sources {
      for (number, line) in source.code.enumerated() where line.contains(pattern) {
        wrong.append("\(source.room)/\(source.name):\(number + 1): \(line)")
      }
      for (number, line) in source.lines.enumerated() where line.contains(/\b(TODO|FIXME|XXX)\b/) {
        wrong.append("\(source.room)/\(source.name):\(number + 1): \(line)")
      }
    }
    #expect(wrong == [])
  }

  @Test("has files of at most 600 lines, named in the glossary's words")
  func files() {
    #expect(tree.sources.filter { $0.lines.count > 601 }.map(\.name) == [])
    let names = tree.sources.map { $0.name.lowercased() }
    #expect(names.filter { name in Self.wordsAvoided.contains { name.contains($0) } } == [])
  }

  @Test("names the actor in comments, messages and pages")
  func actors() throws {
    let lines = try SourceTree.lines(below: "Sources", ["swift", "md"])
    #expect(lines.count > 30_000)
    #expect(places(in: lines) { $0.contains("nobody") || $0.contains("whoever") } == [])
  }

  @Test("has no method named take, note, said or beat")
  func verbs() throws {
    let lines =
      try SourceTree.lines(below: "Sources", ["swift"]) + SourceTree.lines(below: "Tests", ["swift"])
    #expect(lines.count > 60_000)
    let verbs = ["take", "note", "said", "beat"].flatMap { ["func \($0)(", "func \($0)<"] }
    #expect(places(in: lines) { line in verbs.contains { line.contains($0) } } == [])
  }

  @Test("says recover of the packs of dead writers, and catch up only of what other machines publish")
  func recovery() throws {
    let rooms = Set(Self.rooms.prefix { $0 != ["Engine"] }.joined())
    let phrases = ["catchup", "catch up", "catches up", "catching up", "caught up"]
    let lines = tree.sources.filter { rooms.contains($0.room) }.flatMap { source in
      source.lines.enumerated().map {
        (place: "\(source.room)/\(source.name):\($0.offset + 1)", text: String($0.element))
      }
    }
    #expect(lines.count > 10_000)
    #expect(places(in: lines) { line in phrases.contains { line.contains($0) } } == [])
  }

  /// Where a line is wrong, whatever the case of its letters.
  private func places(
    in lines: [(place: String, text: String)], where isWrong: (String) -> Bool
  ) -> [String] {
    lines.filter { isWrong($0.text.lowercased()) }.map { "\($0.place): \($0.text)" }
  }
}
