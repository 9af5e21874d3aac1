import Foundation

/// Makes pieces of a page. Text from a store is never markup: ``text(_:)`` escapes it.
enum HTML {
  /// Escapes text for use between tags and in quoted attributes.
  static func text(_ plain: String) -> String {
    var text = ""
    for scalar in plain.unicodeScalars {
      switch scalar {
      case "&": text += "&amp;"
      case "<": text += "&lt;"
      case ">": text += "&gt;"
      case "\"": text += "&quot;"
      case "'": text += "&#39;"
      default: text.unicodeScalars.append(scalar)
      }
    }
    return text
  }

  /// A size for a reader, with the exact number in its title.
  static func size(_ byteCount: Int64) -> String {
    "<data value=\"\(byteCount)\" title=\"\(HumanText.grouped(Int(byteCount))) bytes\">"
      + "\(HumanText.size(byteCount))</data>"
  }

  /// A key: isolated, so that letters of another direction change nothing around it, and cut in the middle if it is
  /// long.
  static func key(_ key: String) -> String {
    let shown = key.printable
    let short = shown.count <= 96 ? shown : "\(shown.prefix(60))…\(shown.suffix(32))"
    return "<bdi class=\"key\" title=\"\(text(shown))\">\(text(short))</bdi>"
  }

  /// A share in percent, without meaningless digits.
  static func percent(_ part: Int64, of whole: Int64) -> String {
    guard whole > 0 else { return "–" }
    let percent = Double(part) / Double(whole) * 100
    if part > 0, percent < 0.1 { return "&lt; 0.1 %" }
    return String(format: percent < 10 ? "%.1f %%" : "%.0f %%", percent)
  }

  /// A moment in UTC, to the minute, or to the second where that matters.
  static func time(_ date: Date, hasSeconds: Bool = false) -> String {
    "<time datetime=\"\(date.text)\">\(moment(date, hasSeconds: hasSeconds))</time>"
  }

  /// The same moment without markup.
  static func moment(_ date: Date, hasSeconds: Bool = false) -> String {
    let text = date.text
    return "\(text.prefix(10)) \(text.dropFirst(11).prefix(hasSeconds ? 8 : 5))"
  }

  /// A section with a heading and a sentence that explains it.
  static func section(_ title: String, _ lead: String, _ body: String) -> String {
    "<section>\n<h2>\(text(title))</h2>\n<p class=\"lead\">\(lead)</p>\n\(body)</section>\n"
  }
}

/// The meaning of a color, the same in every chart of the page. The style has a color of that name, in light and dark.
enum Tone: String {
  case plain, deduplication, codecs, similarity, bases, live, garbage, versions, records, rest
}

/// Horizontal bars, one below the other, each with its name and its numbers beside it.
struct BarChart {
  private var rows = ""
  /// The value of a whole bar.
  private let whole: Int64

  init(whole: Int64) { self.whole = max(1, whole) }

  /// - Parameters:
  ///   - name: markup.
  ///   - range: the beginning and end of the bar, in the chart's unit.
  ///   - faint: the end of a faint bar behind it, which shows an earlier value.
  mutating func add(
    _ name: String, _ range: Range<Int64>, _ tone: Tone, value: String, note: String = "", faint: Int64 = 0
  ) {
    let shadow =
      faint > 0 ? "<g class=\"faint\">\(Self.bar(0..<min(faint, whole), whole, tone))</g>" : ""
    rows += """
      <div class="row"><div class="name">\(name)</div>\
      <svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">\
      <rect class="track" width="1000" height="10"/>\(shadow)\(Self.bar(range, whole, tone))</svg>\
      <div class="value">\(value)</div><div class="note">\(note)</div></div>

      """
  }

  private static func bar(_ range: Range<Int64>, _ whole: Int64, _ tone: Tone) -> String {
    guard !range.isEmpty else { return "" }
    let begin = Double(range.lowerBound) / Double(whole) * 1_000
    // Show even a small amount.
    let width = max(2, Double(range.upperBound - range.lowerBound) / Double(whole) * 1_000)
    let start = min(begin, 1_000 - width)
    return String(
      format: "<rect class=\"\(tone.rawValue)\" x=\"%.2f\" width=\"%.2f\" height=\"10\"/>", start, width)
  }

  var html: String { "<div class=\"bars\">\n\(rows)</div>\n" }
}

/// Columns side by side over an axis with two ends.
struct ColumnChart {
  struct Column {
    var parts: [(value: Int64, tone: Tone)]
    /// The tooltip.
    var title: String
  }

  var columns: [Column]
  /// Markup: the value of the highest column, and the labels of the axis's ends.
  var top: String
  var left: String
  var right: String
  /// A description for readers who cannot see the chart.
  var label: String

  var html: String {
    let highest = columns.map { $0.parts.reduce(0) { $0 + Double($1.value) } }.max() ?? 1
    let width = 1_000.0 / Double(max(columns.count, 1))
    let gap = columns.count > 1 ? min(width * 0.2, 6) : 0
    var shapes = ""
    for (index, column) in columns.enumerated() {
      var base = 200.0
      shapes += "<g><title>\(HTML.text(column.title))</title>"
      for part in column.parts where part.value > 0 {
        let height = max(1.5, Double(part.value) / highest * 200)
        base -= height
        shapes += String(
          format:
            "<rect class=\"\(part.tone.rawValue)\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>",
          Double(index) * width + gap / 2, max(0, base), width - gap, min(height, 200))
      }
      // The whole column shows the tooltip, not only its filled part.
      shapes += String(
        format: "<rect class=\"touch\" x=\"%.2f\" width=\"%.2f\" height=\"200\"/></g>", Double(index) * width,
        width)
    }
    return """
      <figure class="columns"><div class="top">\(top)</div>
      <svg viewBox="0 0 1000 200" preserveAspectRatio="none" role="img" aria-label="\(HTML.text(label))">\
      <line class="axis" x1="0" x2="1000" y1="200" y2="200"/>\(shapes)</svg>
      <figcaption><span>\(left)</span><span>\(right)</span></figcaption></figure>

      """
  }
}
