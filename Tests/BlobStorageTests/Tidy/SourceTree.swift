import Foundation

/// The sources of the library, as text.
struct SourceTree {
  struct Source {
    /// The folder below `Sources/BlobStorage` or `Sources/BlobStorageSharing`.
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
    for library in ["BlobStorage", "BlobStorageSharing"].map({ Self.folder.appending(path: $0) }) {
      for room in try FileManager.default.contentsOfDirectory(atPath: library.path).sorted() {
        guard !room.hasSuffix(".docc") else { continue }
        for name in try FileManager.default.contentsOfDirectory(atPath: library.appending(path: room).path)
          .sorted()
        {
          let text = try String(contentsOf: library.appending(path: "\(room)/\(name)"), encoding: .utf8)
          sources.append(
            Source(
              room: room, name: name, lines: text.split(separator: "\n", omittingEmptySubsequences: false)))
        }
      }
    }
    self.sources = sources
  }
}
