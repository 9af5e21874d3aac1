import BlobStorage
import BlobStorageTransfer
import Foundation
import SystemPackage
import Testing

@Suite("A walk through folders")
struct DirectoryWalkerTests {
  private let temporary: TemporaryFolder
  private var root: FilePath { temporary.path }

  init() throws { temporary = try TemporaryFolder() }

  private func makeLink(_ name: String, to target: String) throws {
    try FileManager.default.createSymbolicLink(
      atPath: root.appending(name).string, withDestinationPath: target)
  }

  private func walk(_ folder: FilePath, depthMax: Int = 512) throws -> [DirectoryWalker.Item] {
    var walker = try DirectoryWalker(root: folder, depthMax: depthMax)
    var items: [DirectoryWalker.Item] = []
    while let item = walker.next() { items.append(item) }
    return items
  }

  @Test("goes depth first in byte order and never through a symbolic link")
  func goesInOrder() throws {
    let files = SystemFiles()
    for name in ["b", "b/deep", "empty"] { try files.createDirectory(root.appending(name)) }
    for name in ["a", "B", "b/deep/x", "b/z", "b.txt", "é", "with space"] {
      try files.write([1, 2], to: root.appending(name))
    }
    try makeLink("loop", to: ".")
    try makeLink("nowhere", to: "/does/not/exist")
    let items = try walk(root)
    #expect(
      items.map(\.path) == [
        "B", "a", "b", "b/deep", "b/deep/x", "b/z", "b.txt", "empty", "loop", "nowhere", "with space", "é",
      ])
    #expect(items.allSatisfy { $0.failure == nil })
    #expect(items.filter { $0.status?.kind == .symbolicLink }.map(\.path) == ["loop", "nowhere"])
    #expect(items.filter { $0.status?.kind == .regular }.allSatisfy { $0.status?.byteCount == 2 })
  }

  @Test("the root may be reached through a symbolic link")
  func followsRoot() throws {
    try SystemFiles().createDirectory(root.appending("real"))
    try SystemFiles().write([1], to: root.appending("real/a"))
    try makeLink("link", to: "real")
    #expect(try walk(root.appending("link")).map(\.path) == ["a"])
  }

  #if os(Linux)
    @Test("a name that is not UTF-8 has bytes and no path")
    func keepsOddNames() throws {
      let odd: [UInt8] = [0x61, 0xFF, 0x62]
      let name = FilePath(platformString: odd.map(CChar.init(bitPattern:)) + [0])
      try SystemFiles().createDirectory(root.pushing(name))
      try SystemFiles().write([1], to: root.pushing(name).appending("c"))
      let items = try walk(root)
      #expect(items.map(\.pathBytes) == [odd, odd + Array("/c".utf8)])
      #expect(items.map(\.path) == [nil, nil])
      #expect(items.last?.status?.byteCount == 1)
    }
  #endif

  @Test("a folder removed during the walk is an item with a failure, and the walk goes on")
  func goesOnAfterFailure() throws {
    for name in ["a", "b", "c"] { try SystemFiles().createDirectory(root.appending(name)) }
    var walker = try DirectoryWalker(root: root)
    let first = walker.next()
    #expect(first?.path == "a")
    try SystemFiles().removeDirectory(root.appending("b"))
    let rest = [walker.next(), walker.next(), walker.next()]
    #expect(rest.map { $0?.path } == ["b", "c", nil])
    #expect(rest[0]?.failure?.errno == ENOENT)
    #expect(rest[1]?.failure == nil)
  }

  @Test(
    "a folder that may not be read is an item with a failure",
    .enabled(if: Privileges.canBeDropped, "root may read every folder"))
  func reportsUnreadable() throws {
    for name in ["a", "b"] { try SystemFiles().createDirectory(root.appending(name)) }
    #expect(chmod(root.appending("a").string, 0) == 0)
    defer { _ = chmod(root.appending("a").string, 0o700) }
    let items = try Privileges.dropped { try walk(root) }
    #expect(items.map(\.path) == ["a", "b"])
    #expect(items.first?.failure?.code == .permissionDenied)
    #expect(items.first?.status?.kind == .directory)
  }

  @Test("leaves out what is below the last item, and nothing else")
  func skips() throws {
    for name in ["b", "b/deep", "d", "e"] { try SystemFiles().createDirectory(root.appending(name)) }
    for name in ["a", "b/deep/x", "b/y", "b/z", "c", "e/x"] {
      try SystemFiles().write([1], to: root.appending(name))
    }
    func walk(skipping skipped: [String]) throws -> [String?] {
      var walker = try DirectoryWalker(root: root)
      var paths: [String?] = []
      while let item = walker.next() {
        paths.append(item.path)
        if let path = item.path, skipped.contains(path) { walker.skipDescendants() }
      }
      return paths
    }
    #expect(try walk(skipping: ["b"]) == ["a", "b", "c", "d", "e", "e/x"])
    #expect(
      try walk(skipping: ["a", "b/deep", "b/y", "d", "e"]) == [
        "a", "b", "b/deep", "b/y", "b/z", "c", "d", "e",
      ])
  }

  @Test("what lies too deep is reported, not walked")
  func stopsAtDepth() throws {
    for name in ["a", "a/b", "a/b/c", "a/b/c/d", "e"] {
      try SystemFiles().createDirectory(root.appending(name))
    }
    let items = try walk(root, depthMax: 3)
    #expect(items.map(\.path) == ["a", "a/b", "a/b/c", "e"])
    #expect(items.map { $0.failure?.code } == [nil, nil, .limitExceeded, nil])
  }
}

extension DirectoryWalker.Item {
  /// The path; nil when it is not UTF-8.
  fileprivate var path: String? { String(validating: pathBytes, as: UTF8.self) }
}
