import BlobStorage
import BlobStorageTransfer
import Foundation
import SystemPackage
import Testing

@Suite("Paths that are imported together")
struct KeyCollisionTests {
  private let place: StorePlace
  private let engine: Engine
  private var root: String { place.temporary.path.string }

  init() throws {
    place = try StorePlace()
    engine = try place.engine()
  }

  private func write(_ names: String...) throws {
    for name in names {
      let url = URL(filePath: "\(root)/\(name)")
      try FileManager.default.createDirectory(
        at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
      try Data(name.utf8).write(to: url)
    }
  }

  private func importPaths(_ paths: String..., options: ImportOptions = ImportOptions()) throws
    -> ImportReport
  {
    try Importer(engine, options, nil).run(paths.map { "\(root)/\($0)" })
  }

  private func keys() throws -> [String] { try engine.keys("", after: nil, limit: 100).map(\.key) }

  @Test(
    "are refused if two files would get the same key, and nothing is stored",
    arguments: [
      (["A/x.jpg", "A/y", "B/x.jpg"], ["A", "B"], "x.jpg", ["A/x.jpg", "B/x.jpg"]),
      (["A/d/e/f", "A/d/g", "B/d/e/f", "B/h"], ["A", "B"], "d/e/f", ["A/d/e/f", "B/d/e/f"]),
      (["x", "A/x"], ["x", "A"], "x", ["x", "A/x"]),
      (["A/x", "B/x"], ["A/x", "B/x"], "x", ["A/x", "B/x"]),
      (["A/x", "B/y", "C/x"], ["A", "B", "C"], "x", ["A/x", "C/x"]),
      // One lies in the other.
      (["A/x", "A/B/x"], ["A", "A/B"], "x", ["A/x", "A/B/x"]),
    ])
  func refused(_ files: [String], _ paths: [String], _ key: String, _ named: [String]) throws {
    for file in files { try write(file) }
    for isDryRun in [false, true] {
      let error = #expect(throws: BlobStorageError.self) {
        try Importer(engine, ImportOptions(prefix: "p/", isDryRun: isDryRun), nil)
          .run(paths.map { "\(root)/\($0)" })
      }
      #expect(error?.code == .keysCollide)
      #expect(error?.key == "p/\(key)")
      for path in named { #expect(error?.message.contains("\(root)/\(path)") == true, "\(path)") }
    }
    #expect(try keys() == [])
  }

  @Test("are imported if they share folders, links, one file, or names that differ in bytes alone")
  func allowed() throws {
    try write("A/d/x", "A/e", "B/d/y", "B/e/z", "A/é", "B/e\u{301}", "A/skipped/log", "B/skipped/log")
    for folder in ["A", "B"] {
      try FileManager.default.createSymbolicLink(
        atPath: "\(root)/\(folder)/link", withDestinationPath: "nowhere")
    }
    let report = try importPaths(
      "A", "B", options: ImportOptions(excluded: ["skipped/"], keepsAttributes: false))
    #expect(report.newFileCount == 6)
    // A folder beside a file of its name is as two keys may be.
    #expect(try keys() == ["d/x", "d/y", "e", "e/z", "e\u{301}", "é"])
    // A file beside the folder that it lies in, a path once more, and a link to it.
    try FileManager.default.createSymbolicLink(atPath: "\(root)/C", withDestinationPath: "A")
    let again = try importPaths(
      "A", "A/e", "A/./", "C",
      options: ImportOptions(prefix: "again/", excluded: ["d"], keepsAttributes: false))
    // Links are kept otherwise, and there are two of one name.
    #expect(throws: BlobStorageError.self) {
      try importPaths("A", "B", options: ImportOptions(prefix: "links/", excluded: ["skipped/"]))
    }
    #expect(again.fileCount == 4)
    #expect(try engine.keys("again/", after: nil, limit: 100).count == 3)
  }

  @Test("are hard links of one file with keys of their own, and what is named twice is stored once")
  func hardLinks() throws {
    try write("A/f1", "A/f3", "B/g")
    for name in ["A/f2", "B/f1"] {
      try FileManager.default.linkItem(atPath: "\(root)/A/f1", toPath: "\(root)/\(name)")
    }
    try FileManager.default.createSymbolicLink(atPath: "\(root)/l", withDestinationPath: "nowhere")
    let report = try importPaths("A/f1", "A/f2", "A/f3", "B/f1", "A/f1", "l", "l")
    #expect(report.fileCount == 3 && report.linkCount == 1 && report.skipped == [])
    #expect(try keys() == ["f1", "f2", "f3", "l"])
  }

  @Test(
    "are refused if one is a link to a file, and the other a file of that name",
    arguments: ["../A/x", "nowhere"])
  func namedLink(_ target: String) throws {
    try write("A/x", "B/y")
    try FileManager.default.createSymbolicLink(atPath: "\(root)/B/x", withDestinationPath: target)
    let error = #expect(throws: BlobStorageError.self) { try importPaths("A/x", "B/x") }
    #expect(error?.code == .keysCollide && error?.key == "x")
    #expect(try keys() == [])
    // Without attributes, the link is left out.
    let report = try importPaths("A/x", "B/x", options: ImportOptions(keepsAttributes: false))
    #expect(report.fileCount == 1 && report.skipped.map(\.path) == ["\(root)/B/x"])
  }
}
