import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// Stores that a program has open while others move, replace or delete their folders.
@Suite("An open store whose path")
struct ExchangedFolderTests {
  /// What happens to the folder. Its path is `parent/link`, a link to `parent/store`.
  enum Change: String, CaseIterable, CustomTestStringConvertible {
    case becomesACopy = "is moved away, with a copy in its place"
    case becomesALinkToACopy = "is moved away, with a link to a copy in its place"
    case isMoved = "is moved away"
    case isDeleted = "is deleted"
    case becomesANewStore = "is deleted, with a new store in its place"
    case isRelinked = "is reached by a link that leads to another store now"
    case losesItsParent = "is in a folder that is moved, with a copy in its place"
    case becomesAFile = "is deleted, with a file in its place"
    case hasOtherPacks = "has another folder “packs”"
    case hasLinkedPacks = "has a link in the place of “packs”"
    case hasOtherContents = "has the files of another store in its place"
    case isRestored = "has an older copy of its files in their place"

    var testDescription: String { rawValue }

    private static let inPlace: Set<Change> = [
      .hasOtherContents, .isRestored, .hasOtherPacks, .hasLinkedPacks,
    ]
    /// Whether the path leads to a store afterwards that the program may open.
    var leavesAStore: Bool { ![.isMoved, .isDeleted, .becomesAFile].contains(self) }
    /// Whether the folder stays where it is, and only its contents change.
    var isInPlace: Bool { Self.inPlace.contains(self) }
  }

  private let temporary: TemporaryFolder
  private let parent: URL
  private var path: URL { parent.appending(path: "link") }
  private var folder: URL { parent.appending(path: "store") }
  private var other: URL { URL(filePath: temporary.path.appending("other").string) }
  private var moved: URL { URL(filePath: temporary.path.appending("moved").string) }
  private static let files = FileManager.default

  init() throws {
    temporary = try TemporaryFolder()
    parent = URL(filePath: temporary.path.appending("parent").string)
    try Self.files.createDirectory(at: parent, withIntermediateDirectories: false)
    try Self.files.createSymbolicLink(at: path, withDestinationURL: folder)
    try Engine.create(at: folder.path, options: StoreOptions())
    let first = try engine()
    _ = try first.put("old", [1], PutOptions())
    try first.close()
    try Self.files.copyItem(at: folder, to: temporary.path.appending("backup").url)
    try Engine.create(at: other.path, options: StoreOptions())
  }

  private func engine() throws -> Engine {
    try Engine(path: path.path, configuration: StoreConfiguration(threadCount: 1))
  }

  private func apply(_ change: Change) throws {
    let files = Self.files
    switch change {
    case .becomesACopy:
      try files.copyItem(at: folder, to: other.appending(path: "copy"))
      try files.moveItem(at: folder, to: moved)
      try files.moveItem(at: other.appending(path: "copy"), to: folder)
    case .becomesALinkToACopy:
      try files.copyItem(at: folder, to: other.appending(path: "copy"))
      try files.moveItem(at: folder, to: moved)
      try files.createSymbolicLink(at: folder, withDestinationURL: other.appending(path: "copy"))
    case .isMoved: try files.moveItem(at: folder, to: moved)
    case .isDeleted: try files.removeItem(at: folder)
    case .becomesANewStore:
      try files.removeItem(at: folder)
      try Engine.create(at: folder.path, options: StoreOptions())
    case .isRelinked:
      try files.removeItem(at: path)
      try files.createSymbolicLink(at: path, withDestinationURL: other)
    case .losesItsParent:
      try files.copyItem(at: parent, to: other.appending(path: "copy"))
      try files.moveItem(at: parent, to: moved)
      try files.moveItem(at: other.appending(path: "copy"), to: parent)
    case .becomesAFile:
      try files.removeItem(at: folder)
      try Data().write(to: folder)
    case .hasOtherPacks, .hasLinkedPacks:
      let packs = folder.appending(path: "packs")
      try files.copyItem(at: packs, to: other.appending(path: "copy"))
      try files.moveItem(at: packs, to: moved)
      if change == .hasOtherPacks {
        try files.moveItem(at: other.appending(path: "copy"), to: packs)
      } else {
        try files.createSymbolicLink(at: packs, withDestinationURL: moved)
      }
    case .hasOtherContents: try exchangeFiles(from: other)
    case .isRestored: try exchangeFiles(from: temporary.path.appending("backup").url)
    }
  }

  /// Replaces all files below the store's folder, and keeps its folders, as `rsync --delete` does.
  private func exchangeFiles(from source: URL) throws {
    for name in try Self.files.subpathsOfDirectory(atPath: folder.path) {
      let file = folder.appending(path: name)
      if (try file.resourceValues(forKeys: [.isDirectoryKey])).isDirectory != true {
        try Self.files.removeItem(at: file)
      }
    }
    for name in try Self.files.subpathsOfDirectory(atPath: source.path) {
      let (from, to) = (source.appending(path: name), folder.appending(path: name))
      if (try from.resourceValues(forKeys: [.isDirectoryKey])).isDirectory == true {
        try Self.files.createDirectory(at: to, withIntermediateDirectories: true)
      } else {
        try Self.files.copyItem(at: from, to: to)
      }
    }
  }

  /// The files that a program sees below a path, with their contents.
  private func image(of place: URL) throws -> [String: Data] {
    let root = place.resolvingSymlinksInPath()
    var image: [String: Data] = [:]
    for name in (try? Self.files.subpathsOfDirectory(atPath: root.path)) ?? [] {
      image[name] = try? Data(contentsOf: root.appending(path: name))
    }
    return image
  }

  private func expectClosed(
    _ what: Comment, sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void
  ) {
    let error = failure(body)
    #expect(error?.code == .closed, what, sourceLocation: sourceLocation)
    #expect(error?.folderHasChanged == true, what, sourceLocation: sourceLocation)
  }

  @Test(
    "is exchanged ends as closed with its next durable change, and touches nothing",
    arguments: Change.allCases)
  func durableChange(_ change: Change) throws {
    let engine = try engine()
    _ = try engine.put("kept", [2], PutOptions())
    try apply(change)
    let before = try image(of: path)
    expectClosed("a put") { _ = try engine.put("lost", [3], PutOptions()) }
    // From then on without another look, and without a system call that could fail in some other way.
    expectClosed("a second put") { _ = try engine.put("lost", [3], .relaxed) }
    expectClosed("a get") { _ = try engine.data("old", nil) }
    expectClosed("a list") { _ = try engine.keys("", after: nil, limit: 1) }
    expectClosed("a deletion") { _ = try engine.delete(["old"], .durable) }
    expectClosed("gc") { _ = try engine.collectGarbage(GarbageCollectionOptions(), progress: nil) }
    expectClosed("closing") { try engine.close() }
    // What the store wrote before it looked may be in its own folder, and never in another one.
    if change.isInPlace {
      #expect(try image(of: path)["census"] == before["census"])
      let names = { (image: [String: Data]) in image.keys.filter { $0.hasPrefix("packs/") }.sorted() }
      #expect(names(try image(of: path)) == names(before))
    } else {
      #expect(try image(of: path) == before)
    }
    guard change.leavesAStore, change != .hasLinkedPacks else { return }
    let next = try self.engine()
    #expect(try next.data("lost", nil) == nil)
    // The catalog stays beside the other packs, and knows the length that the lost put published.
    if change != .hasOtherPacks { #expect(try next.losses().isEmpty) }
    try next.close()
  }

  @Test(
    "is exchanged begins no pack in the new folder", arguments: Change.allCases.filter { $0 != .isRestored })
  func firstPack(_ change: Change) throws {
    // The new folder gets nothing, even from a change that is the first one of the store.
    let engine = try engine()
    try apply(change)
    let before = try image(of: path)
    expectClosed("a relaxed put that begins a pack") { _ = try engine.put("lost", [3], .relaxed) }
    expectClosed("closing") { try engine.close() }
    #expect(try image(of: path)["census"] == before["census"])
    #expect(
      try image(of: path).keys.filter { $0.hasPrefix("packs/") }.sorted()
        == before.keys.filter { $0.hasPrefix("packs/") }.sorted())
  }

  @Test(
    "is exchanged ends as closed when it looks next, without any change",
    arguments: Change.allCases.filter { $0 != .isRestored })
  func reads(_ change: Change) throws {
    let engine = try engine()
    #expect(try engine.data("old", nil) == Data([1]))
    try apply(change)
    var error: BlobStorageError?
    // The look is due within a tenth of a second.
    let end = ContinuousClock.now.advanced(by: .seconds(60))
    while error == nil, ContinuousClock.now < end {
      error = failure {
        let data = try engine.data("old", nil)
        // Files of another store in the same folder may lack the key until then.
        if change != .hasOtherContents { #expect(data == Data([1])) }
      }
    }
    #expect(error?.code == .closed)
    #expect(error?.folderHasChanged == true)
    expectClosed("closing") { try engine.close() }
  }

  @Test("names a new store can be opened again")
  func reopened() async throws {
    let store = try await BlobStore.open(at: path)
    try await store.put(.data(Data([2])), forKey: "kept")
    try apply(.becomesACopy)
    await #expect { try await store.put(.data(Data([3])), forKey: "lost") } throws: {
      ($0 as? BlobStorageError)?.code == .closed
    }
    try await store.reopen()
    #expect(try await store.data(forKey: "lost") == nil)
    #expect(try await store.data(forKey: "kept") == Data([2]))
    try await store.put(.data(Data([4])), forKey: "new")
    try await store.close()
    let next = try await BlobStore.open(at: folder)
    #expect(try await next.data(forKey: "new") == Data([4]))
    #expect(try await next.verify().damaged.isEmpty)
    try await next.close()
  }

  @Test("names a deleted folder can be opened again once there is a store")
  func recreated() async throws {
    let store = try await BlobStore.open(at: path)
    try apply(.isDeleted)
    await #expect { try await store.put(.data(Data([3])), forKey: "k") } throws: {
      ($0 as? BlobStorageError)?.code == .closed
    }
    await #expect { try await store.reopen() } throws: { ($0 as? BlobStorageError)?.code == .noStore }
    await #expect { try await store.data(forKey: "k") } throws: { ($0 as? BlobStorageError)?.code == .closed }
    try Engine.create(at: folder.path, options: StoreOptions())
    try await store.reopen()
    try await store.put(.data(Data([3])), forKey: "k")
    #expect(try await store.data(forKey: "k") == Data([3]))
    try await store.close()
  }

  @Test("is moved keeps a catalog that changes nothing elsewhere, and loses nothing that was durable")
  func movedStore() throws {
    let engine = try engine()
    _ = try engine.put("kept", [2], PutOptions())
    try apply(.isMoved)
    expectClosed("closing") { try engine.close() }
    let next = try Engine(path: moved.path, configuration: StoreConfiguration())
    #expect(try next.data("kept", nil) == Data([2]))
    #expect(try next.losses().isEmpty)
    try next.close()
  }

  @Test("leads elsewhere for a moment, and back before the next look, goes on")
  func moment() throws {
    let engine = try engine()
    let away = parent.appending(path: "away")
    try Self.files.moveItem(at: folder, to: away)
    try Self.files.moveItem(at: away, to: folder)
    _ = try engine.put("k", [2], PutOptions())
    #expect(try engine.data("k", nil) == Data([2]))
    try engine.close()
  }

  @Test("loses its file “store” and gets it back, with the same ID, goes on")
  func restoredHeader() throws {
    let engine = try engine()
    let header = folder.appending(path: "store")
    let bytes = try Data(contentsOf: header)
    try Self.files.removeItem(at: header)
    _ = try engine.put("a", [2], PutOptions())
    try bytes.write(to: header, options: .atomic)
    _ = try engine.put("b", [2], PutOptions())
    try engine.close()
  }

  @Test("is the state folder of a store in a bucket ends in the same way", arguments: [false, true])
  func stateFolder(isReplaced: Bool) throws {
    let place = try RemotePlace()
    let engine = try place.engine("a")
    _ = try engine.put("kept", [2], PutOptions())
    let state = URL(filePath: place.statePath("a"))
    try Self.files.moveItem(at: state, to: moved)
    if isReplaced { try Self.files.copyItem(at: moved, to: state) }
    let before = try image(of: state)
    expectClosed("a put") { _ = try engine.put("k", [3], PutOptions()) }
    expectClosed("a get") { _ = try engine.data("kept", nil) }
    expectClosed("closing") { try engine.close() }
    #expect(try image(of: state) == before)
    let next = try place.engine("a")
    #expect(try next.data("kept", nil) == Data([2]))
    try next.close()
  }

  @Test(
    "is covered by a mount ends as closed",
    .enabled(if: Mounts.areAllowed, "This process may not mount file systems."))
  func mounted() throws {
    let engine = try engine()
    #expect(try Mounts.bind(other.path, at: folder.path))
    defer { Mounts.end(at: folder.path) }
    let before = try image(of: other)
    expectClosed("a put") { _ = try engine.put("k", [3], PutOptions()) }
    expectClosed("closing") { try engine.close() }
    #expect(try image(of: other) == before)
  }
}

extension FilePath {
  fileprivate var url: URL { URL(filePath: string) }
}
