import Foundation
import Testing

@Suite struct CasesTests {
  private struct Cases: Decodable {
    struct Case: Decodable { let id: String }
    let cases: [Case]
  }

  @Test("every case has a test that names it")
  func everyCase() throws {
    let folder = URL(filePath: #filePath).deletingLastPathComponent()
    let file = folder.appending(path: "../../Fixtures/drop-in/cases.json").standardizedFileURL
    let ids = try JSONDecoder().decode(Cases.self, from: Data(contentsOf: file)).cases.map(\.id)
    #expect(ids.count == 35)
    var named: Set<String> = []
    for name in try FileManager.default.contentsOfDirectory(atPath: folder.path)
    where name.hasSuffix(".swift") {
      let text = try String(contentsOf: folder.appending(path: name), encoding: .utf8)
      for match in text.matches(of: /@Test\(\s*"((?:[A-Z]{2}-E?\d+(?:, )?)+):/) {
        named.formUnion(match.1.split(separator: ", ").map(String.init))
      }
    }
    #expect(named == Set(ids))
  }
}
