import Foundation
import SystemPackage
import Testing

@Suite("Code on pages")
struct CodeBlockTests {
  private let folder: TemporaryFolder
  private var place: URL { URL(fileURLWithPath: folder.path.string) }

  init() throws { folder = try TemporaryFolder() }

  @Test("compiles as it stands", arguments: CodeBlock.all.filter { !$0.isManifest })
  func compiles(_ block: CodeBlock) throws {
    let complaints = try ProgramCheck().complaints(about: block.source, in: place)
    #expect(complaints == "", "\(complaints)")
  }

  @Test("is a manifest that names a product of this package", arguments: CodeBlock.all.filter(\.isManifest))
  func manifest(_ block: CodeBlock) throws {
    let (status, output) = try ProgramCheck.package(block.text, in: place)
    #expect(status == 0)
    struct Package: Decodable {
      struct Target: Decodable {
        struct Dependency: Decodable { let product: [String?] }
        let dependencies: [Dependency]
      }
      let targets: [Target]
    }
    let read = try JSONDecoder().decode(Package.self, from: Data(output.utf8))
    let named = read.targets.flatMap(\.dependencies).map { [$0.product[0], $0.product[1]] }
    #expect(named == [["BlobStorage", "blob-storage"]])
    let own = try String(contentsOf: CodeBlock.root.appending(path: "Package.swift"), encoding: .utf8)
    #expect(own.contains("name: \"blob-storage\"") && own.contains(".library(name: \"BlobStorage\""))
  }

  @Test("is found on pages of all modules")
  func found() {
    let modules = Set(CodeBlock.all.filter { $0.place.contains(".docc") }.map(\.module))
    #expect(modules.isSuperset(of: ["BlobStorage", "BlobStorageDropIn", "BlobStorageS3"]))
    #expect(CodeBlock.all.filter { $0.place.hasPrefix("README.md") }.map(\.isManifest) == [true, false])
  }

  @Test("does not compile when it is wrong")
  func wrong() throws {
    let page = """
      <!-- given:
      let next = Data()
      -->

      ```swift
      let store = try await BlobStore.open(at: "x")
      try await store.set("a", to: next)
      ```

      ```swift
      let store = try await BlobStore.open(at: "x")
      try await store.set("a", to: next)
      ```
      """
    let blocks = CodeBlock.blocks(in: page, "page.md")
    #expect(blocks.map(\.place) == ["page.md:6", "page.md:11"])
    let complaints = try blocks.map { try ProgramCheck().complaints(about: $0.source, in: place) }
    #expect(complaints[0] == "")
    #expect(complaints[1].contains("page.md:12:30: error: cannot find 'next' in scope"))
  }
}
