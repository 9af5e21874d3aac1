import BlobStorageMount
import BlobStorageTestSupport
import Testing

@Suite("Names of components")
struct ComponentNameTests {
  private static func name(_ text: String, isBesideFile: Bool = false) -> String {
    String(decoding: ComponentName.name(of: Array(text.utf8), isBesideFile: isBesideFile), as: UTF8.self)
  }

  @Test(
    "are the components, but for those that no file can have",
    arguments: [
      ("a", "a"), ("%", "%"), ("100%", "100%"), ("%41", "%41"), ("...", "..."), ("", "%empty"), (".", "%dot"),
      ("..", "%dotdot"), ("%empty", "%%empty"), ("%%dot", "%%%dot"), ("%folder-a", "%%folder-a"),
      ("%long-", "%%long-"), ("%folder", "%folder"),
    ])
  func examples(_ component: String, _ name: String) {
    #expect(Self.name(component) == name)
    #expect(Self.name(component, isBesideFile: true) == "%folder-" + name)
  }

  @Test("have at most 255 bytes, and end with a whole character")
  func long() {
    let longest = String(repeating: "x", count: 255)
    #expect(Self.name(longest) == longest)
    #expect(Self.name(longest, isBesideFile: true).hasPrefix("%folder-%long-"))
    let names = Set(
      ["ä", "€", "😀", "x"].flatMap { character in
        (0..<4).map {
          Self.name(String(repeating: "y", count: $0) + String(repeating: character, count: 256))
        }
      })
    #expect(names.count == 16)
    #expect(names.allSatisfy { $0.hasPrefix("%long-") && $0.utf8.count <= 255 && !$0.contains("\u{FFFD}") })
  }

  @Test("are different for different components, and lead back to them")
  func different() {
    var random = SplitMix64.announced()
    let parts = ["%", "%", "empty", "dot", "folder-", "long-", ".", "a", String(repeating: "z", count: 130)]
    var components: Set<[UInt8]> = []
    while components.count < 3_000 {
      let count = Int.random(in: 0...6, using: &random)
      let text = (0..<count).map { _ in parts.randomElement(using: &random) ?? "" }.joined()
      components.insert(Array(text.utf8))
    }
    var seen: Set<[UInt8]> = []
    for component in components {
      for isBesideFile in [false, true] {
        let name = ComponentName.name(of: component, isBesideFile: isBesideFile)
        #expect(seen.insert(name).inserted, "\(String(decoding: component, as: UTF8.self))")
        switch ComponentName(name) {
        case .component(let found): #expect(found == component && !isBesideFile)
        case .folder(let found): #expect(found == component && isBesideFile)
        case .long(let start, let isFolder):
          #expect(component.starts(with: start) && start.count > 190 && isFolder == isBesideFile)
        }
      }
    }
  }
}
