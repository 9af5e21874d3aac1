import BlobStorage
import BlobStorageReports
import Foundation

/// Makes a page about where a store's space went and what saved space: one file, without scripts or network requests.
struct ReportPage {
  private let report: StoreReport
  private let store: StoreInformation
  private let made: Date
  private var statistics: StoreStatistics { report.statistics }

  init(_ report: StoreReport, store: StoreInformation, made: Date) {
    self.report = report
    self.store = store
    self.made = made
  }

  var html: String {
    let name = store.path.split(separator: "/").last.map(String.init) ?? store.path
    let body =
      [warning, tiles, savings, disk, codecs, largestKeys, history, busiestKeys, packs].joined()
    return """
      <!doctype html>
      <html lang="en">
      <head>
      <meta charset="utf-8">
      <meta name="viewport" content="width=device-width, initial-scale=1">
      <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
      <meta name="referrer" content="no-referrer">
      <title>\(HTML.text(name.printable)) – store report</title>
      <style>
      \(ReportStyle.text)
      </style>
      </head>
      <body>
      <main>
      <h1><bdi>\(HTML.text(name.printable))</bdi></h1>
      <p class="path"><bdi>\(HTML.text(store.path.printable))</bdi> · \(HTML.time(made)) UTC</p>
      \(body)<footer>Made by blobtool report in \(HumanText.duration(report.duration)). Sizes are in units of 1,024; \
      rest the pointer on one for the number of bytes.</footer>
      </main>
      </body>
      </html>

      """
  }

  private var warning: String {
    if report.unreadable.isEmpty { return "" }
    let lines = report.unreadable.map { HTML.text($0.printable) }.joined(separator: "<br>")
    return "<p class=\"warning\">The numbers lack what could not be read: \(lines) "
      + "<code>blobtool verify</code> says more.</p>\n"
  }

  private var tiles: String {
    let ratio =
      statistics.diskByteCount > 0
      ? String(format: "%.1f : 1", Double(statistics.plainByteCount) / Double(statistics.diskByteCount)) : "–"
    let facts = [
      ("Keys", HumanText.grouped(statistics.keyCount)),
      ("Versions", HumanText.grouped(statistics.versionCount)),
      ("Plain size", HTML.size(statistics.plainByteCount)),
      ("On disk", HTML.size(statistics.diskByteCount)), ("Plain to disk", ratio),
      ("Garbage", HTML.size(statistics.garbageByteCount)),
    ]
    return "<dl class=\"tiles\">\n"
      + facts.map { "<div><dt>\($0.0)</dt><dd>\($0.1)</dd></div>\n" }.joined() + "</dl>\n"
  }

  // MARK: Space

  private var savings: String {
    let whole = statistics.plainByteCount
    guard whole > 0 else { return "" }
    var chart = BarChart(whole: whole)
    chart.add("All versions, plain", 0..<whole, .plain, value: HTML.size(whole), note: "100 %")
    var level = whole
    func step(_ name: String, _ saved: Int64, _ tone: Tone) {
      let after = max(0, level - max(0, saved))
      chart.add(
        name, after..<level, tone, value: (level > after ? "−" : "") + HTML.size(level - after),
        note: HTML.percent(level - after, of: whole))
      level = after
    }
    step("saved by deduplication", statistics.deduplicationSavedByteCount, .deduplication)
    // Bases that no version needs itself, and the lists of long blobs.
    let encoded = statistics.codecSavedByteCount + statistics.similaritySavedByteCount
    let extra = max(0, statistics.storedByteCount + encoded - level)
    if extra * 200 > whole {
      let after = min(whole, level + extra)
      chart.add(
        "bases and lists", level..<after, .bases, value: "+\(HTML.size(extra))",
        note: HTML.percent(extra, of: whole))
      level = after
    } else {
      level = min(whole, level + extra)
    }
    step("saved by codecs", statistics.codecSavedByteCount, .codecs)
    step("saved by similarity", statistics.similaritySavedByteCount, .similarity)
    chart.add(
      "Live chunks, as stored", 0..<min(whole, statistics.storedByteCount), .live,
      value: HTML.size(statistics.storedByteCount), note: HTML.percent(statistics.storedByteCount, of: whole))
    return HTML.section(
      "What saved space",
      "From the bytes of all versions to what is stored of them. Each saving is counted after those above it; what "
        + "similarity saved is estimated.", chart.html)
  }

  private var disk: String {
    let inPacks = report.packs.reduce(0) { $0 + $1.byteCount }
    let live = report.packs.reduce(0) { $0 + $1.liveByteCount }
    let whole = max(statistics.diskByteCount, inPacks)
    guard whole > 0 else { return "" }
    var chart = BarChart(whole: whole)
    var level: Int64 = 0
    func add(_ name: String, _ byteCount: Int64, _ tone: Tone) {
      let byteCount = max(0, byteCount)
      chart.add(
        name, level..<level + byteCount, tone, value: HTML.size(byteCount),
        note: HTML.percent(byteCount, of: whole))
      level += byteCount
    }
    add("live chunks", statistics.storedByteCount, .live)
    add("names, versions, headers", live - statistics.storedByteCount, .records)
    add("garbage", inPacks - live, .garbage)
    add("catalog, footers, reserve", whole - inPacks, .rest)
    chart.add("On disk", 0..<whole, .plain, value: HTML.size(whole), note: "100 %")
    let garbage = inPacks - live
    let advice =
      garbage * 10 > whole
      ? "Garbage takes \(HTML.percent(garbage, of: whole)): <code>blobtool gc</code> frees most of it."
      : "There is little garbage to free."
    return HTML.section("What is on disk", advice, chart.html)
  }

  private var codecs: String {
    guard let whole = report.codecs.map(\.plainByteCount).max(), whole > 0 else { return "" }
    var chart = BarChart(whole: whole)
    for codec in report.codecs {
      let name = codec.name == "none" ? "kept plain" : HTML.text(codec.name.printable)
      chart.add(
        name, 0..<codec.storedByteCount, .live,
        value: HTML.size(codec.storedByteCount), note: "of \(HTML.size(codec.plainByteCount))",
        faint: codec.plainByteCount)
    }
    return HTML.section(
      "Codecs",
      "What live chunks take by the codec that encoded them, and faintly what they would take "
        + "plain.", chart.html)
  }

  // MARK: Keys

  private var largestKeys: String {
    guard let whole = report.largestKeys.first?.exclusiveByteCount, whole > 0 else { return "" }
    var chart = BarChart(whole: whole)
    for key in report.largestKeys where key.exclusiveByteCount > 0 {
      chart.add(
        HTML.key(key.key), 0..<key.exclusiveByteCount, .live, value: HTML.size(key.exclusiveByteCount),
        note: "of \(HTML.size(key.byteCount))")
    }
    return HTML.section(
      "Keys that take most",
      "Stored bytes that no other key needs: what deleting the key would free. Beside it the plain size of all its "
        + "versions.", chart.html)
  }

  private var busiestKeys: String {
    guard let whole = report.busiestKeys.first?.versionCount else { return "" }
    var chart = BarChart(whole: Int64(whole))
    for key in report.busiestKeys {
      chart.add(
        HTML.key(key.key), 0..<Int64(key.versionCount), .versions,
        value: HumanText.grouped(key.versionCount),
        note: key.exclusiveByteCount > 0 ? HTML.size(key.exclusiveByteCount) : "")
    }
    return HTML.section(
      "Keys with most versions",
      "How many versions each has, the current one included, and what deleting it would free. "
        + "<code>blobtool keep</code> thins them out.", chart.html)
  }

  // MARK: Time and packs

  private var history: String {
    guard let first = report.history.first, let last = report.history.last else { return "" }
    let highest = report.history.map(\.byteCount).max() ?? 0
    let isShort = last.end.timeIntervalSince(first.start) < 3_600
    let columns = report.history.map { span in
      ColumnChart.Column(
        parts: [(span.byteCount, .versions)],
        title:
          "\(HTML.moment(span.start, hasSeconds: isShort)) to \(HTML.moment(span.end, hasSeconds: isShort)): "
          + "\(HumanText.count(span.versionCount, "version")), \(HumanText.size(span.byteCount))")
    }
    let chart = ColumnChart(
      columns: columns, top: "\(HTML.size(highest)) at most in one column",
      left: HTML.time(first.start, hasSeconds: isShort),
      right: HTML.time(last.end, hasSeconds: isShort),
      label: "Plain bytes of the versions that are there, by when they were put")
    return HTML.section(
      "When versions were put",
      "Plain bytes of the versions that are in the store, by the time they were put (UTC). Dropped ones leave no trace.",
      chart.html)
  }

  private var packs: String {
    guard let first = report.packs.first, let last = report.packs.last else { return "" }
    let isShort = last.created.timeIntervalSince(first.created) < 3_600
    let groups = Self.grouped(report.packs, countMax: 96)
    let columns = groups.map { group in
      let live = group.reduce(0) { $0 + $1.liveByteCount }
      let all = group.reduce(0) { $0 + $1.byteCount }
      let name = group.count == 1 ? "pack \(group[0].name)" : "\(group.count) packs"
      return ColumnChart.Column(
        parts: [(live, .live), (max(0, all - live), .garbage)],
        title: "\(name), begun \(HTML.moment(group[0].created, hasSeconds: isShort)): "
          + "\(HumanText.size(live)) live of \(HumanText.size(all))")
    }
    let highest = groups.map { $0.reduce(0) { $0 + $1.byteCount } }.max() ?? 0
    let each = groups.count == report.packs.count ? "one pack" : "some packs of about the same age"
    let chart = ColumnChart(
      columns: columns, top: "\(HTML.size(highest)) at most in one column",
      left: HTML.time(first.created, hasSeconds: isShort),
      right: HTML.time(last.created, hasSeconds: isShort),
      label: "Live and garbage bytes of packs, from old to new")
    let live = report.packs.reduce(0) { $0 + $1.liveByteCount }
    let all = report.packs.reduce(0) { $0 + $1.byteCount }
    let legend =
      "<ul class=\"legend\"><li><i class=\"live\"></i>live \(HTML.size(live))</li>"
      + "<li><i class=\"garbage\"></i>garbage \(HTML.size(max(0, all - live)))</li></ul>\n"
    return HTML.section(
      "Packs",
      "\(HumanText.count(report.packs.count, "pack")), from old to new; a column is \(each). gc rewrites a pack once a "
        + "quarter of it is garbage.", legend + chart.html)
  }

  /// Joins neighbors into as many groups as fit.
  private static func grouped(_ packs: [StoreReport.Pack], countMax: Int) -> [[StoreReport.Pack]] {
    let size = (packs.count + countMax - 1) / countMax
    return stride(from: 0, to: packs.count, by: max(1, size)).map {
      Array(packs[$0..<min($0 + size, packs.count)])
    }
  }
}
