import Foundation

// Five small programs, each in a file of its own. `swift run Examples NAME FOLDER` runs one of them.

let programs: [String: @Sendable (URL) async throws -> Void] = [
  "image-cache": serveImages, "documents": editDocuments, "photo-import": importPhotos,
  "ranges": serveRanges, "maintenance": maintainAtNight,
]
let words = CommandLine.arguments
guard words.count == 3, let program = programs[words[1]] else {
  print("usage: Examples \(programs.keys.sorted().joined(separator: "|")) FOLDER")
  exit(64)
}
try await program(URL(filePath: words[2], directoryHint: .isDirectory))
