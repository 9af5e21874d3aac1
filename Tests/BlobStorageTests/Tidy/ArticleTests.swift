import Foundation
import Testing

@Suite("Pages")
struct ArticleTests {
  private static let articles = "Sources/BlobStorage/BlobStorage.docc"

  private func text(_ path: String) throws -> String {
    try String(contentsOf: CodeBlock.root.appending(path: path), encoding: .utf8)
  }

  @Test("have at most 2,000 words each, but for the format, and the README half as many")
  func wordCounts() throws {
    let names = try FileManager.default.contentsOfDirectory(
      atPath: CodeBlock.root.appending(path: Self.articles).path
    )
    .filter { $0.hasSuffix(".md") && $0 != "Format.md" }
    #expect(names.count > 10)
    for path in names.map({ "\(Self.articles)/\($0)" }) + ["README.md"] {
      // The bars of a table are no words.
      let count = try text(path).split(whereSeparator: \.isWhitespace)
        .count { $0.contains { $0.isLetter || $0.isNumber } }
      #expect(count <= (path == "README.md" ? 1_000 : 2_000), "\(path)")
    }
  }

  @Test("show the same figures in the chart as in the tables of Performance")
  func chart() throws {
    let performance = try text("\(Self.articles)/Performance.md")
    let chart = try text("\(Self.articles)/Resources/comparison.svg")
    let figures = chart.matches(of: />([0-9.]+(?: [s×])?)<\/text>/).map { String($0.1) }
    #expect(figures.count == 24)
    #expect(figures.filter { !performance.contains("| \($0) ") } == [])
  }
}
