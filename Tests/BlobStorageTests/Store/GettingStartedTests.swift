import BlobStorage
import Foundation
import SystemPackage
import Testing

/// GettingStarted.md, line by line: when this has to change, so has the page.
@Suite("The example of GettingStarted.md")
struct GettingStartedTests {
  @Test("does what it says")
  func example() async throws {
    let temporary = try TemporaryFolder()
    let store = try await BlobStore.create(at: temporary.path.appending("example").string)
    try await store.set("greeting", to: Data("hello".utf8))
    try await store.set("greeting", to: Data("hello, blob".utf8), archivingCurrent: true)
    #expect(try await store.versions(of: "greeting").map(\.byteCount) == [11, 5])
    let reader = try #require(try await store.reader(forKey: "greeting"))
    #expect(String(decoding: try await reader.read(7..<11), as: UTF8.self) == "blob")
    reader.close()
    try await store.keep(upTo: 0, of: "greeting")
    #expect(try await store.collectGarbage().freedByteCount > 0)
    try await store.close()
  }
}
