import BlobStorage
import SystemPackage
import Testing

@Suite("Parts of a path")
struct FilePathTests {
  /// What swift-system says is right.
  @Test(
    "are swift-system's",
    arguments: ["", "/", "a", "/a", "a/b", "/a/b", "a//b/", "/a/./b/..", "./a", "ü/ö b"])
  func parts(_ text: String) {
    let path = FilePath(text)
    #expect(path.entry("c d") == path.appending("c d"))
    #expect(path.entry("c.new") == path.entry("c").withSuffix(".new"))
    #expect(path.folder == path.removingLastComponent())
  }

  @Test("keep bytes that are no UTF-8")
  func bytes() {
    let path = FilePath(platformString: [CChar]([47, 97, -1, 47, 98, -2, 0]))
    #expect(path.entry("c") == path.appending("c"))
    #expect(path.entry("c").folder == path)
    #expect(path.folder == path.removingLastComponent())
  }
}
