import BlobStorage
import BlobStorageDropIn
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite struct OldDataTests {
  let root: Folder

  init() throws { root = try Folder() }

  @Test("an archive's files are taken in by age, once, and stay")
  func archive() async throws {
    // The number tells the age, not the time: a copy of the folder may have lost the times.
    for number in 1...11 {
      try root.write("version \(number)", to: "data_archive/k/\(number).dat", minute: 20 - number)
    }
    try root.write("current", to: "data_archive/k/0.dat", minute: 9)
    try root.write("nested", to: "data_archive/a/b/0.dat")
    try root.write("", to: "data_archive/empty/0.dat")
    try root.write("hidden", to: "data_archive/.blobstore/0.dat")
    try root.write("other", to: "data_archive/k/notes.txt")
    try root.write("other", to: "data_archive/k/01.dat")
    let files = try root.files("data_archive")
    let archive = DataArchive(rootUrl: root.url)
    #expect(archive.keys == [".blobstore", "a/b", "empty", "k"])
    #expect(await archive.texts("k") == ["current"] + (1...11).reversed().map { "version \($0)" })
    #expect(await archive.texts("a/b") == ["nested"])
    #expect(await archive.texts(".blobstore") == ["hidden"])
    #expect(await archive.get("empty").0 == Data())
    #expect(await archive.delete("a/b").isSuccess)
    #expect(await archive.archive("k", Data("new".utf8)).isSuccess)
    let again = DataArchive(rootUrl: try root.detour())
    #expect(again.keys == [".blobstore", "empty", "k"])
    #expect(again.numberOfArchives(key: "k") == 12)
    #expect(try root.files("data_archive").filter { !$0.contains(".blobstore-2") } == files)
    #expect(try root.text("data_archive/k/0.dat") == "current")
  }

  @Test("what an interrupted write or keep has left is taken in at its place")
  func interrupted() async throws {
    try root.write("old", to: "data_archive/replaced/0.tmp")
    try root.write("new", to: "data_archive/both/0.dat")
    try root.write("old", to: "data_archive/both/0.tmp")
    // keep(upTo: 3) of 5 archives, dead while renumbering.
    for (name, text) in [
      ("1.tmp", "1"), ("2.tmp", "2"), ("1.dat", "3"), ("4.dat", "4"), ("5.dat", "5"), ("0.dat", "6"),
    ] {
      try root.write(text, to: "data_archive/kept/\(name)")
    }
    try root.write("1", to: "data_archive/archived/1.dat")
    try root.write("2", to: "data_archive/archived/2.dat")
    let archive = DataArchive(rootUrl: root.url)
    #expect(await archive.texts("replaced") == ["old"])
    #expect(await archive.texts("both") == ["new", "old"])
    #expect(await archive.texts("kept") == ["6", "5", "4", "3", "2", "1"])
    #expect(await archive.texts("archived") == ["2", "1"])
  }

  @Test("two processes that come at once take everything in once, and so does one that goes on after another")
  func twice() async throws {
    for key in 0..<20 {
      for number in 0..<4 { try root.write("\(key) \(number)", to: "data_archive/key\(key)/\(number).dat") }
    }
    // What a process that died has left: two versions of one key, and no marker.
    let path = root.url.appendingPathComponent("data_archive/.blobstore").path
    let store = try await BlobStore.create(at: path)
    for number in 1...2 {
      let options = PutOptions(replacement: .archiveCurrent, metadata: Array("\(number).dat".utf8))
      try await store.put(.data(Data("3 \(number)".utf8)), forKey: "a/key3", options: options)
    }
    try await store.close()
    let archives = try (0..<3).map { _ in DataArchive(rootUrl: try root.detour()) }
    await withTaskGroup(of: Void.self) { group in
      for archive in archives {
        group.addTask {
          for key in 0..<20 {
            #expect(await archive.texts("key\(key)") == [0, 3, 2, 1].map { "\(key) \($0)" })
          }
        }
      }
    }
  }

  @Test("a data store's files are taken in once and stay")
  func dataStore() async throws {
    try root.write("new", to: "Documents/images/b", minute: 2)
    try root.write("old", to: "Documents/images/.hidden", minute: 1)
    try root.write("store", to: "Documents/images/.blobstore", minute: 3)
    try root.write("no identifier", to: "Documents/images/folder/file")
    // What Foundation leaves of a write that was interrupted, and a link.
    try root.write("half", to: "Documents/images/.dat.nosync12ab.cdef")
    try FileManager.default.createSymbolicLink(
      at: root.url.appendingPathComponent("Documents/images/link"),
      withDestinationURL: root.url.appendingPathComponent("Documents/images/b"))
    let environments = [root.environment, ["HOME": try root.detour().path]]
    for (round, environment) in environments.enumerated() {
      let store = try UserFolders.$environment.withValue(environment) {
        try PersistentDataStore(name: "images")
      }
      func text(_ identifier: String) async -> String? {
        await withCheckedContinuation { done in
          store.loadData(forIdentifier: identifier, dataTransformer: { String(decoding: $0, as: UTF8.self) })
          {
            done.resume(returning: $0)
          }
        }
      }
      #expect(await text(".blobstore") == "store")
      #expect(await text(".hidden") == "old")
      for other in ["folder/file", ".dat.nosync12ab.cdef", "link"] { #expect(await text(other) == nil) }
      #expect(await text("b") == (round == 0 ? "new" : nil))
      store.removeData(forIdentifier: "b")
      #expect(await text("b") == nil)
    }
    #expect(try root.text("Documents/images/b") == "new")
    #expect(try root.text("Documents/images/.blobstore") == "store")
    let opened = try await BlobStore.open(
      at: root.url.appendingPathComponent("Documents/images/.blobstore-2").path)
    let hidden = try #require(try await opened.currentVersion(of: "d/.hidden"))
    let own = try #require(try await opened.currentVersion(of: "d/.blobstore"))
    #expect(hidden.id.description < own.id.description)
  }

  @Test("what cannot be read is reported, not forgotten, and taken in once it can be read")
  func unreadable() async throws {
    try root.write("readable", to: "data_archive/a/0.dat")
    for (number, text) in ["current", "older"].enumerated() {
      try root.write(text, to: "data_archive/b/\(number).dat")
    }
    for key in ["c/d", "e", "f"] { try root.write("value of \(key)", to: "data_archive/\(key)/0.dat") }
    let hidden = ["b/1.dat", "c", "e/0.dat", "f/0.dat"]
    let url = root.url.appendingPathComponent("data_archive")
    func setMode(_ mode: Int, _ names: [String]) throws {
      for name in names {
        try FileManager.default.setAttributes(
          [.posixPermissions: mode], ofItemAtPath: url.appendingPathComponent(name).path)
      }
    }
    func run(_ arguments: String...) throws -> [String] {
      let (status, output) = try Program(["old", root.url.path] + arguments, isOrdinaryUser: true).result()
      #expect(status == 0)
      return output.split(separator: "\n").map(String.init)
    }
    try setMode(0o777, ["", "a", "b", "c", "e", "f"])
    try setMode(0o644, ["a/0.dat", "b/0.dat"])
    try setMode(0, hidden)
    for _ in 0..<2 {
      #expect(
        try run("a", "b", "c/d", "e", "nothing") == [
          "a: readable", "b: failed", "c/d: failed", "e: failed", "nothing: missing",
          "left out: b c e f",
        ])
    }
    // What is set anew is not covered by old versions, and what is deleted does not come back.
    #expect(try run("+e", "-f", "e") == ["e: new", "left out: b c e"])
    try setMode(0o777, hidden)
    #expect(
      try run("a", "b", "c/d", "e", "f") == [
        "a: readable", "b: current,older", "c/d: value of c/d", "e: new", "f: missing", "left out: e",
      ])
    #expect(try run("-a", "a") == ["a: missing", "left out: e"])
    #expect(try run("a") == ["a: missing", "left out: e"])
  }

  @Test("what another process sets while a file that was left out is taken in stays current")
  func setMeanwhile() async throws {
    // As long as content that is streamed.
    try root.write(String(repeating: "old ", count: 500_000), to: "data_archive/k/0.dat")
    let path = root.url.appendingPathComponent("data_archive/.blobstore").path
    let other = try BlockingBlobStore.create(at: path)
    try other.put(.data(Data(#"["k"]"#.utf8)), forKey: "m/a/")
    var environment = Engine.Environment()
    environment.files = LeaseFiles {
      do { try other.put(.data(Data("new".utf8)), forKey: "a/k") } catch { Issue.record(error) }
    }
    let archive = StoreEnvironment.$current.withValue(environment) { DataArchive(rootUrl: root.url) }
    #expect(await archive.texts("k") == ["new"])
    #expect(archive.oldFilesLeftOut.map(\.lastPathComponent) == ["k"])
    try other.close()
  }

  @Test("a name that is not UTF-8 is reported, and the others are taken in")
  func strangeName() async throws {
    try root.write("value", to: "data_archive/k/0.dat")
    let folder = root.url.appendingPathComponent("data_archive").path
    #expect(mkdir(Array((folder + "/x").utf8CString.dropLast()) + [-1, 0], 0o700) == 0)
    let archive = DataArchive(rootUrl: root.url)
    #expect(await archive.text("k") == "value")
    #expect(archive.oldFilesLeftOut.count == 1)
    #expect(DataArchive(rootUrl: try root.detour()).oldFilesLeftOut.count == 1)
  }

  @Test("data where Foundation keeps it on this platform is taken in, too, below what is in the folder")
  func otherFolder() async throws {
    try root.write("here", to: "home/Documents/images/both", minute: 1)
    try root.write("there", to: "other/images/both", minute: 2)
    try root.write("there", to: "other/images/single")
    try root.write(#"{"name":"Ama","age":7}"#, to: "other/Person.json")
    try root.write("archived", to: "library/data_archive/k/0.dat")
    let originals: [FileManager.SearchPathDirectory: URL] = [
      .documentDirectory: root.url.appendingPathComponent("other"),
      .libraryDirectory: root.url.appendingPathComponent("library"),
    ]
    let home = root.url.appendingPathComponent("home").path
    let (store, archive) = try UserFolders.$environment.withValue(["HOME": home]) {
      try UserFolders.$originals.withValue(originals) {
        #expect(try Person.loadFromFile() == Person("Ama", 7))
        return (try PersistentDataStore(name: "images"), DataArchive())
      }
    }
    func text(_ identifier: String) async -> String? {
      await withCheckedContinuation { done in
        store.loadData(forIdentifier: identifier, dataTransformer: { String(decoding: $0, as: UTF8.self) }) {
          done.resume(returning: $0)
        }
      }
    }
    #expect(await text("single") == "there")
    #expect(await text("both") == "here")
    #expect(store.oldFilesLeftOut.map(\.path) == [root.url.path + "/other/images/both"])
    #expect(await archive.text("k") == "archived")
    #expect(try root.text("other/images/single") == "there")
  }

  @Test(
    "what was left out does not come back after its identifier, or all, was removed",
    arguments: [true, false])
  func removedLeftOut(removesAll: Bool) async throws {
    try root.write("here", to: "home/Documents/images/both")
    try root.write("there", to: "other/images/both")
    try root.write("here", to: "home/Documents/images/kept")
    try root.write("there", to: "other/images/kept")
    let originals = [
      FileManager.SearchPathDirectory.documentDirectory: root.url.appendingPathComponent("other")
    ]
    func open(_ home: URL) throws -> PersistentDataStore {
      try UserFolders.$environment.withValue(["HOME": home.path]) {
        try UserFolders.$originals.withValue(originals) { try PersistentDataStore(name: "images") }
      }
    }
    func text(_ identifier: String, _ store: PersistentDataStore) async -> String? {
      await withCheckedContinuation { done in
        store.loadData(forIdentifier: identifier, dataTransformer: { String(decoding: $0, as: UTF8.self) }) {
          done.resume(returning: $0)
        }
      }
    }
    let store = try open(root.url.appendingPathComponent("home"))
    #expect(await text("both", store) == "here")
    #expect(store.oldFilesLeftOut.map(\.lastPathComponent) == ["both", "kept"])
    if removesAll { store.removeAll() } else { store.removeData(forIdentifier: " both ") }
    #expect(await text("both", store) == nil)
    #expect(await text("kept", store) == (removesAll ? nil : "here"))
    #expect(store.oldFilesLeftOut.map(\.lastPathComponent) == (removesAll ? [] : ["kept"]))
    // Nothing is in the way of the other folder's file now, and it has to stay out.
    let again = try open(root.detour("home"))
    #expect(await text("both", again) == nil)
    #expect(await text("kept", again) == (removesAll ? nil : "here"))
    #expect(again.oldFilesLeftOut.map(\.lastPathComponent) == (removesAll ? [] : ["kept"]))
    #expect(try root.text("other/images/both") == "there")
  }

  @Test("a document is taken in once, stays, and does not come back after its deletion")
  func document() throws {
    let text = #"[{"name":"Ama","age":7}]"#
    try root.write(text, to: "Documents/Person.json")
    try UserFolders.$environment.withValue(root.environment) {
      try Person("Kofi", 8).saveToFile()
      #expect(try Person.loadListFromFile() == [Person("Ama", 7), Person("Kofi", 8)])
      Person.deleteFile()
      #expect(throws: CocoaError.self) { try Person.loadListFromFile() }
      try Person("Kofi", 8).saveToFile()
      #expect(try Person.loadFromFile() == Person("Kofi", 8))
      Person.deleteFile()
    }
    try UserFolders.$environment.withValue(["HOME": root.detour().path]) {
      #expect(throws: CocoaError.self) { try Person.loadListFromFile() }
    }
    #expect(try root.text("Documents/Person.json") == text)
  }

  @Test("a document that was deleted before it was ever read does not come back")
  func unreadDocument() throws {
    try root.write(#"{"name":"Ama","age":7}"#, to: "Documents/Person.json")
    UserFolders.$environment.withValue(root.environment) {
      Person.deleteFile()
      #expect(throws: CocoaError.self) { try Person.loadFromFile() }
    }
  }

  @Test("where the folder itself cannot be listed every operation fails, and what it has is taken in later")
  func unlistable() async throws {
    try root.write("value", to: "data_archive/k/0.dat")
    let folder = root.url.appendingPathComponent("data_archive")
    // The store is there: only the list of the original's files is not to be had.
    try await BlobStore.create(at: folder.appendingPathComponent(".blobstore").path).close()
    let manager = FileManager.default
    func setMode(_ mode: Int, _ path: String) throws {
      try manager.setAttributes([.posixPermissions: mode], ofItemAtPath: path)
    }
    for name in try manager.subpathsOfDirectory(atPath: root.url.path) {
      try setMode(0o777, root.url.appendingPathComponent(name).path)
    }
    try setMode(0o777, root.url.path)
    func run(_ arguments: String...) throws -> [String] {
      let (status, output) = try Program(["old", root.url.path] + arguments, isOrdinaryUser: true).result()
      #expect(status == 0)
      return output.split(separator: "\n").map(String.init)
    }
    try setMode(0o333, folder.path)
    let hidden = try run("+k", "-k", "k", "+new", "new", "nothing")
    try setMode(0o777, folder.path)
    #expect(hidden == ["k: failed", "new: failed", "nothing: failed", "left out: "])
    #expect(try run("k", "new") == ["k: value", "new: missing", "left out: "])
  }

  @Test("what is a store stays the store, and a name that the original has used is passed over")
  func places() async throws {
    // Used twice by the original, once for a key and once for a file.
    try root.write("key", to: "data_archive/.blobstore/0.dat", minute: 1)
    try root.write("file", to: "data_archive/.blobstore-2", minute: 2)
    let archive = DataArchive(rootUrl: root.url)
    #expect(archive.keys == [".blobstore"])
    #expect(await archive.set("k", "value").isSuccess)
    func exists(_ number: Int) -> Bool {
      BlobStore.exists(at: root.url.appendingPathComponent("data_archive/.blobstore-\(number)").path)
    }
    #expect(!exists(2) && exists(3) && !exists(4))
    // Something that comes to lie there later changes nothing, neither there nor in the places before it.
    try root.write("later", to: "data_archive/.blobstore-3/0.dat")
    let again = DataArchive(rootUrl: try root.detour())
    #expect(again.keys == [".blobstore", "k"])
    #expect(await again.text("k") == "value")
    #expect(!exists(4))
  }

  @Test(
    "a store that was never finished is no key of the original's",
    arguments: [[], [".init.lock"], [".init.lock", "packs/x", "leases/y", "catalog/z", "store.new"]])
  func unfinished(_ names: [String]) async throws {
    let folder = root.url.appendingPathComponent("data_archive/.blobstore")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    for name in names where !name.contains("/") { try root.write("", to: "data_archive/.blobstore/\(name)") }
    for name in names where name.contains("/") {
      try FileManager.default.createDirectory(
        at: folder.appendingPathComponent(name).deletingLastPathComponent(), withIntermediateDirectories: true
      )
    }
    let archive = DataArchive(rootUrl: root.url)
    #expect(await archive.set("k", "value").isSuccess)
    #expect(BlobStore.exists(at: folder.path))
    #expect(archive.keys == ["k"])
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path + "/..") == [".blobstore"])
  }

  @Test("keys are taken in by the age of their youngest file")
  func ages() async throws {
    try root.write("young", to: "data_archive/a/0.dat", minute: 9)
    try root.write("oldest", to: "data_archive/a/1.dat", minute: 1)
    try root.write("old", to: "data_archive/b/0.dat", minute: 3)
    try root.write("older", to: "data_archive/c/d/0.dat", minute: 2)
    #expect(DataArchive(rootUrl: root.url).keys == ["a", "b", "c/d"])
    let store = try await BlobStore.open(at: root.url.appendingPathComponent("data_archive/.blobstore").path)
    var identities: [String] = []
    for key in ["a/c/d", "a/b", "a/a"] {
      identities.append(try #require(try await store.currentVersion(of: key)).id.description)
    }
    #expect(identities == identities.sorted())
    try await store.close()
  }
}

/// The system's files. They tell once when a lease file is made: a streamed put has begun, and its commit has not.
private final class LeaseFiles: ForwardingFiles {
  let system = SystemFiles()
  private let body: Mutex<(@Sendable () -> Void)?>

  init(_ body: @escaping @Sendable () -> Void) { self.body = Mutex(body) }

  func begin(_ call: String, _ path: FilePath) throws(BlobStorageError) {
    guard call == "rename", path.string.contains("/leases/") else { return }
    body.withLock { $0.take() }?()
  }

  func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    try system.open(path, intent)
  }

  func mountIdentity(of path: FilePath) -> String { system.mountIdentity(of: path) }
}
