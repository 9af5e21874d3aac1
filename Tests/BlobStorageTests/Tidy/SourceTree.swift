import Foundation

/// The sources of the library, as text.
struct SourceTree {
  struct Source {
    /// The folder below `Sources/BlobStorage` or `Sources/BlobStorageSharing`, or what another target's name adds to
    /// `BlobStorage`, with its folder.
    let room: String
    let name: String
    let lines: [Substring]

    /// The lines without comments and what stands in quotes.
    var code: [String] {
      lines.map { line in
        let words = line.split(separator: "\"", omittingEmptySubsequences: false)
        let unquoted = words.enumerated().map { $0.offset % 2 == 0 ? String($0.element) : "" }.joined(
          separator: "\"")
        return String(unquoted.prefix(upTo: unquoted.range(of: "//")?.lowerBound ?? unquoted.endIndex))
      }
    }
  }

  static let folder = URL(filePath: #filePath).deletingLastPathComponent()
    .appending(path: "../../../Sources").standardizedFileURL

  /// The targets beside the core that are one room each.
  static let targets = [
    "Cache", "Trees", "Transfer", "Migration", "Mount", "Reports", "Observation", "Testing",
  ]

  let sources: [Source]

  /// The lines of all files with these extensions in a folder beside `Sources`.
  static func lines(
    below name: String, _ extensions: Set<String>
  ) throws -> [(place: String, text: String)] {
    let root = folder.appending(path: "../\(name)").standardizedFileURL
    var lines: [(place: String, text: String)] = []
    for path in try FileManager.default.subpathsOfDirectory(atPath: root.path).sorted()
    where extensions.contains(URL(filePath: path).pathExtension) {
      let text = try String(contentsOf: root.appending(path: path), encoding: .utf8)
      for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
        lines.append(("\(name)/\(path):\(index + 1)", String(line)))
      }
    }
    return lines
  }

  init() throws {
    var sources: [Source] = []
    func add(room: String, _ folder: URL) throws {
      for name in try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted() {
        guard name.hasSuffix(".swift") else {
          try add(room: "\(room) \(name)", folder.appending(path: name))
          continue
        }
        let text = try String(contentsOf: folder.appending(path: name), encoding: .utf8)
        sources.append(
          Source(
            room: room, name: name, lines: text.split(separator: "\n", omittingEmptySubsequences: false)))
      }
    }
    for library in ["BlobStorage", "BlobStorageSharing"].map({ Self.folder.appending(path: $0) }) {
      for room in try FileManager.default.contentsOfDirectory(atPath: library.path).sorted()
      where !room.hasSuffix(".docc") {
        try add(room: room, library.appending(path: room))
      }
    }
    for room in Self.targets { try add(room: room, Self.folder.appending(path: "BlobStorage\(room)")) }
    self.sources = sources
  }
}
