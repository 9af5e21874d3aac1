import BlobStorage
import BlobStorageDropIn
import Foundation
import Testing

@Suite struct PersistibleTests {
  let home: Folder
  private let maxim = Person("Maxim", 38)
  private let ama = Person("Ama", 7)
  private let kofi = Person("Kofi", 8)

  init() throws { home = try Folder() }

  private func atHome<T>(_ body: () throws -> T) rethrows -> T {
    try UserFolders.$environment.withValue(home.environment, operation: body)
  }

  @Test("PE-1: one value, then a list in the order of insertion, and nothing twice")
  func saving() throws {
    try atHome {
      try maxim.saveToFile()
      #expect(try Person.loadFromFile() == maxim)
      try maxim.saveToFile()
      #expect(try Person.loadFromFile() == maxim)
      try ama.saveToFile()
      #expect(try Person.loadListFromFile() == [maxim, ama])
      try Person("Ama", 7).saveToFile()
      try maxim.saveToFile()
      #expect(try Person.loadListFromFile() == [maxim, ama])
      #expect(throws: DecodingError.self) { try Person.loadFromFile() }
    }
  }

  @Test("PE-2: a document that cannot be read is not overwritten")
  func damaged() async throws {
    try home.write("{\"name\":", to: "Documents/Person.json")
    atHome {
      #expect(throws: DecodingError.self) { try maxim.saveToFile() }
      #expect(throws: DecodingError.self) { try [maxim].saveToFile() }
      #expect(throws: DecodingError.self) { try Person.load { _ in } }
    }
    #expect(try home.text("Documents/Person.json") == "{\"name\":")
    let store = try await BlobStore.open(at: home.url.appendingPathComponent("Documents/.blobstore").path)
    #expect(try await store.data(forKey: "p/Person") == Data("{\"name\":".utf8))
    // Damage to the store itself.
    let bytes = randomBytes(2_000, seed: 2)
    try await store.set("p/Person", to: bytes)
    try #require(try home.damage(bytes) == 1)
    let other = ["HOME": try home.detour().path]
    UserFolders.$environment.withValue(other) {
      let error = #expect(throws: BlobStorageError.self) { try maxim.saveToFile() }
      #expect(error?.code == .corrupted)
    }
  }

  @Test("PE-3: a list is merged with what is there")
  func mergingLists() throws {
    try atHome {
      try maxim.saveToFile()
      try [ama, maxim, kofi, ama].saveToFile()
      #expect(try Person.loadListFromFile() == [maxim, ama, kofi])
      try [Person]().saveToFile()
      try [kofi].saveToFile()
      #expect(try Person.loadListFromFile() == [maxim, ama, kofi])
    }
  }

  @Test("saving a list makes the document one, and saving none changes nothing")
  func listOfOne() throws {
    try atHome {
      try [Person]().saveToFile()
      #expect(throws: CocoaError.self) { try Person.loadFromFile() }
      try maxim.saveToFile()
      try [Person]().saveToFile()
      #expect(try Person.loadFromFile() == maxim)
      try [maxim].saveToFile()
      #expect(try Person.loadListFromFile() == [maxim])
    }
  }

  /// A value whose encoder saves another one.
  private struct Team: Persistible, Codable, Hashable {
    enum CodingKeys: String, CodingKey { case name, leader }

    var name: String
    var leader: Person

    init(name: String, leader: Person) {
      self.name = name
      self.leader = leader
    }

    init(from decoder: any Decoder) throws {
      let container = try decoder.container(keyedBy: CodingKeys.self)
      name = try container.decode(String.self, forKey: .name)
      leader = try container.decode(Person.self, forKey: .leader)
    }

    func encode(to encoder: any Encoder) throws {
      try leader.saveToFile()
      var container = encoder.container(keyedBy: CodingKeys.self)
      try container.encode(name, forKey: .name)
      try container.encode(leader, forKey: .leader)
    }
  }

  @Test("an encoder can save values of other types", .timeLimit(.minutes(1)))
  func nested() throws {
    try atHome {
      let teams = [Team(name: "red", leader: ama), Team(name: "blue", leader: kofi)]
      for team in teams { try team.saveToFile() }
      #expect(try Team.loadListFromFile() == teams)
      #expect(try Person.loadListFromFile() == [ama, kofi])
      try maxim.saveToFile()
      #expect(try Person.loadListFromFile() == [ama, kofi, maxim])
    }
  }

  @Test("load tells one value from a list, and what is missing is an error as it was")
  func loading() throws {
    try atHome {
      let error = #expect(throws: CocoaError.self) { try Person.loadFromFile() }
      #expect(error?.code == .fileReadNoSuchFile)
      var seen: [[Person]] = []
      let note = { (data: PersistenceData<Person>) in
        switch data {
        case .single(let value): seen.append([value])
        case .array(let values): seen.append(values)
        }
      }
      try maxim.saveToFile()
      try Person.load(completion: note)
      try ama.saveToFile()
      try Person.load(completion: note)
      #expect(seen == [[maxim], [maxim, ama]])
      Person.deleteFile()
      #expect(throws: CocoaError.self) { try Person.loadListFromFile() }
      Person.deleteFile()
      try [maxim].saveToFile()
      #expect(try Person.loadListFromFile() == [maxim])
    }
  }

  @Test("names are as they were")
  func names() {
    atHome {
      #expect(Person.fileName == "Person")
      #expect(Person.archiveUrl.path == home.url.path + "/Documents/Person.json")
      #expect(Person.getEncoder().outputFormatting == .prettyPrinted)
    }
  }

  @Test("values saved from many threads are all there")
  func threads() async throws {
    await withTaskGroup(of: Void.self) { group in
      for age in 0..<40 {
        group.addTask { #expect(throws: Never.self) { try atHome { try Person("Maxim", age).saveToFile() } } }
      }
    }
    #expect(try atHome { Set(try Person.loadListFromFile().map(\.age)) } == Set(0..<40))
  }

  /// A type with a document of another name.
  private struct Named: Persistible, Codable, Hashable {
    static var fileName: String { "Other name" }
    var value: Int
  }

  @Test("a document has the name that its type says, also the original's file")
  func otherName() async throws {
    try home.write(#"{"value":1}"#, to: "Documents/Other name.json")
    try atHome {
      #expect(Named.archiveUrl.path == home.url.path + "/Documents/Other name.json")
      #expect(try Named.loadFromFile() == Named(value: 1))
      try Named(value: 2).saveToFile()
      #expect(try Named.loadListFromFile() == [Named(value: 1), Named(value: 2)])
      #expect(throws: CocoaError.self) { try Person.loadFromFile() }
      Named.deleteFile()
      #expect(throws: CocoaError.self) { try Named.loadFromFile() }
    }
    let store = try await BlobStore.open(at: home.url.appendingPathComponent("Documents/.blobstore").path)
    #expect(try await store.keys(prefix: "p/", limit: 10).isEmpty)
    #expect(try await store.currentVersion(of: "m/p/Other name") != nil)
    try await store.close()
  }

  @Test("the original's file in the folder goes before that where Foundation keeps it")
  func twoFiles() throws {
    try home.write(#"{"name":"Ama","age":7}"#, to: "Documents/Person.json")
    try home.write(#"{"name":"Kofi","age":8}"#, to: "other/Person.json")
    let originals = [
      FileManager.SearchPathDirectory.documentDirectory: home.url.appendingPathComponent("other")
    ]
    try UserFolders.$originals.withValue(originals) {
      try atHome { () throws -> Void in
        #expect(try Person.loadFromFile() == ama)
        Person.deleteFile()
        #expect(throws: CocoaError.self) { try Person.loadFromFile() }
      }
    }
  }

  @Test(
    "a document that may be there and cannot be looked at or read is not written over",
    arguments: ["a link to itself", "a folder"])
  func unknown(_ kind: String) throws {
    let manager = FileManager.default
    let other = home.url.appendingPathComponent("other")
    let folder = home.url.appendingPathComponent("Documents/Person.json")
    if kind == "a folder" {
      try manager.createDirectory(at: folder, withIntermediateDirectories: true)
    } else {
      try manager.createSymbolicLink(at: other, withDestinationURL: other)
    }
    try UserFolders.$originals.withValue([.documentDirectory: other]) {
      try atHome {
        for _ in 0..<2 {
          #expect(throws: (any Error).self) { try maxim.saveToFile() }
          #expect(throws: (any Error).self) { try [maxim].saveToFile() }
          #expect(throws: (any Error).self) { try Person.loadFromFile() }
        }
        try manager.removeItem(at: kind == "a folder" ? folder : other)
        try home.write(#"{"name":"Ama","age":7}"#, to: "other/Person.json")
        try maxim.saveToFile()
        #expect(try Person.loadListFromFile() == [ama, maxim])
      }
    }
  }
}
