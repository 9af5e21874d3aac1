import BlobStorage
import Foundation
import SystemPackage
import Testing

// As it stands in README.md, but for the folder.
private func notes(in folder: String) async throws {
  let store = try await BlobStore.openOrCreate(at: folder)
  try await store.set("today", to: Data("first".utf8))  // durable when it returns
  try await store.set("today", to: Data("second".utf8), archivingCurrent: true)  // keeps the first
  for version in try await store.versions(of: "today") {  // newest first
    print(version.created, version.byteCount, version.digest)
  }
  if let data = try await store.data(forKey: "today") { print(String(decoding: data, as: UTF8.self)) }
  try await store.trimHistory(of: .all, toArchived: 0)  // drops archived versions
  print("freed", try await store.collectGarbage().freedByteCount, "bytes")
  try await store.close()
}

@Suite struct ReadmeExampleTests {
  @Test("the README's example does what its comments say")
  func runs() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path.appending("notes.store").string
    // Once more with what the first run has left.
    for _ in 0..<2 { try await notes(in: path) }
    let store = try await BlobStore.open(at: path)
    #expect(try await store.versions(of: "today").map(\.byteCount) == [6])
    try await store.close()
  }

  @Test("the README holds the example of this file, line by line")
  func same() throws {
    let here = URL(fileURLWithPath: #filePath)
    let readme = try String(
      contentsOf: here.appending(path: "../../../../README.md").standardized, encoding: .utf8)
    let source = try String(contentsOf: here, encoding: .utf8)
    let start = try #require(source.range(of: "async throws {\n"))
    let end = try #require(source.range(of: "\n}\n"))
    let lines = source[start.upperBound..<end.lowerBound].split(separator: "\n").map {
      $0.dropFirst(2).replacing("at: folder", with: "at: \"notes.store\"")
    }
    #expect(readme.contains(lines.joined(separator: "\n")))
  }
}
