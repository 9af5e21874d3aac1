import BlobStorageDropIn
import BlobStorageTestSupport
import Foundation
import Testing

@Suite struct ProgramTests {
  @Test("the examples of the four libraries' texts run unchanged")
  func examples() throws {
    let home = try Folder()
    let (status, output) = try Program(["examples"], environment: home.environment).result()
    #expect(status == 0, "\(output)")
    let names = try FileManager.default.subpathsOfDirectory(atPath: home.url.path)
    #if os(Linux)
      #expect(names.contains(".local/share/data_archive/.blobstore/store"))
      #expect(names.contains("Documents/images/.blobstore/store"))
      #expect(names.contains("Documents/.blobstore/store"))
    #endif
  }

  @Test("1,000 operations on 50 keys from 8 threads complete in call order for each key")
  func fire() throws {
    let root = try Folder()
    let (status, output) = try Program(["fire", root.url.path]).result()
    #expect(status == 0, "\(output)")
    withExtendedLifetime(root) {}
  }

  @Test("a program whose main thread waits gets its answers")
  func waitOnMainThread() throws {
    let root = try Folder()
    #expect(try Program(["wait", root.url.path]).result().status == 0)
    withExtendedLifetime(root) {}
  }

  @Test("a program that ends while writes are under way ends, and leaves a store that works")
  func leave() async throws {
    let root = try Folder()
    #expect(try Program(["leave", root.url.path]).result().status == 0)
    let archive = DataArchive(rootUrl: root.url)
    for key in archive.keys {
      let value = Int(try #require(await archive.text(key)))
      #expect(value.map { "key\($0 % 10)" } == key)
    }
    #expect(await archive.set("key", "value").isSuccess)
  }

  private struct Visitor: Persistible, Codable, Hashable {
    var age: Int
  }

  @Test("processes that save to one document at the same time lose nothing")
  func save() throws {
    let home = try Folder()
    let programs = try (0..<3).map { try Program(["save", "\($0 * 20)"], environment: home.environment) }
    for program in programs {
      let (status, output) = try program.result()
      #expect(status == 0, "\(output)")
    }
    let ages = try UserFolders.$environment.withValue(home.environment) {
      try Visitor.loadListFromFile().map(\.age)
    }
    #expect(ages.sorted() == Array(0..<60))
  }

  @Test("DA-E9: killed anywhere, each key has its old or its new value, and no promised version is missing")
  func kill() async throws {
    let seed = TestSeed.announce()
    let root = try Folder()
    let counts = randomBytes(10, seed: seed | 1).map { Int($0 % 12) }
    var promised = ["left": 0, "right": 0]
    for count in counts {
      // Two processes write to one root; both are killed.
      let programs = try ["left", "right"].map { ($0, try Program(["write", root.url.path, $0])) }
      for (key, program) in programs {
        let lines = program.kill(afterLines: count + 1)
        #expect(program.process.terminationReason == .uncaughtSignal)
        promised[key] = lines.last.flatMap { Int($0) } ?? promised[key]
      }
      let archive = DataArchive(rootUrl: try root.detour())
      for (key, last) in promised {
        let versions = await archive.texts(key).compactMap { Int($0) }
        let current = try #require(versions.first)
        #expect(last...last + 1 ~= current)
        #expect(versions == Array((current - versions.count + 1...current).reversed()))
        #expect(versions.count >= min(current, 4))
        let single = await archive.texts(key + "-single").compactMap { Int($0) }
        #expect(single.count == 1)
        #expect(last...last + 1 ~= single[0])
        #expect(await archive.archive(key, Data("\(current + 1)".utf8)).isSuccess)
        #expect(await archive.texts(key).compactMap { Int($0) } == [current + 1] + versions)
        #expect(await archive.set(key + "-single", "\(current + 1)").isSuccess)
        promised[key] = current + 1
      }
    }
  }
}
