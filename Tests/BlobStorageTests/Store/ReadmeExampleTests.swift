import BlobStorage
import Foundation
import SystemPackage
import Testing

// As it stands in README.md, and compiled.
func remember(in folder: String, film: String) async throws -> [BlobVersion] {
  let store = try await BlobStore.create(at: folder)
  try await store.set("notes/today", to: Data("first".utf8))
  try await store.archive("notes/today", andSet: Data("second".utf8))  // the first stays in the history

  try await store.put("film", .file(film))  // any size, in bounded memory
  if let reader = try await store.reader(forKey: "film") {
    let part = try await reader.read(1_000..<2_000)  // reads only the chunks that the range touches
    print(part.count)
    reader.close()
  }

  let versions = try await store.versions(of: "notes/today")  // newest first
  try await store.keepInAllKeys(upTo: 0)  // only current versions from now on
  _ = try await store.collectGarbage()
  try await store.close()
  return versions
}

@Suite struct ReadmeExampleTests {
  @Test("the README's example does what its comments say")
  func runs() async throws {
    let folder = try TemporaryFolder()
    let film = folder.path.appending("film").string
    try Data(repeating: 7, count: 100_000).write(to: URL(fileURLWithPath: film))
    let versions = try await remember(in: folder.path.appending("store").string, film: film)
    #expect(versions.map(\.byteCount) == [6, 5])
  }

  @Test("the README holds the example of this file, line by line")
  func same() throws {
    let here = URL(fileURLWithPath: #filePath)
    let readme = try String(
      contentsOf: here.appending(path: "../../../../README.md").standardized, encoding: .utf8)
    let source = try String(contentsOf: here, encoding: .utf8)
    let start = try #require(source.range(of: "func remember("))
    let end = try #require(source.range(of: "\n}\n"))
    #expect(readme.contains(source[start.lowerBound..<end.upperBound]))
  }
}
