import Foundation
import Testing

@Suite("Pages")
struct ArticleTests {
  private static let articles = "Sources/BlobStorage/BlobStorage.docc"

  private func text(_ path: String) throws -> String {
    try String(contentsOf: CodeBlock.root.appending(path: path), encoding: .utf8)
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
