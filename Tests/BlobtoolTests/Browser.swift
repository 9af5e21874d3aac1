import BlobStorage
import Foundation
import Testing

/// A browser without a window, where this machine has one: `tools/prepare browser` installs it.
struct Browser {
  /// What the page is shown on.
  struct Screen: Sendable, CustomTestStringConvertible {
    var width: Int
    var isDark: Bool
    var testDescription: String { "\(width) wide, \(isDark ? "dark" : "light")" }
  }

  static let path: String? = {
    let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
    let names = ["chromium", "chromium-browser", "google-chrome"]
    return names.lazy.flatMap { name in folders.map { "\($0)/\(name)" } }
      .first { FileManager.default.isExecutableFile(atPath: $0) }
  }()

  let workshop: Workshop
  let screen: Screen

  /// What the page looks like once a script has measured it.
  func measure(_ file: String) async throws -> Measures {
    let page = String(decoding: try #require(workshop.contents(file)), as: UTF8.self)
    // The page forbids scripts: the one that measures is let in by a copy.
    let open = page.replacing(/<meta http-equiv="Content-Security-Policy"[^>]*>/, with: "")
    #expect(open != page)
    try workshop.write(
      Data(open.replacing("</body>", with: Self.script + "</body>").utf8), to: "measured.html")
    let outcome = try await run(["--dump-dom"], "measured.html")
    let text = try #require(outcome.text.firstMatch(of: /<pre id="measures">(.*?)<\/pre>/)?.1)
    return try JSONDecoder().decode(Measures.self, from: Data(text.utf8))
  }

  /// What the page as it is looks like, and what the browser complained of.
  func screenshot(_ file: String) async throws -> (picture: Picture, complaints: [String]) {
    let outcome = try await run(["--screenshot=\(workshop.path("shot.png"))"], file)
    return (
      try Picture(png: Array(try #require(workshop.contents("shot.png")))),
      outcome.errors.split(separator: "\n").map(String.init).filter { $0.contains("CONSOLE") }
    )
  }

  private func run(_ arguments: [String], _ file: String) async throws -> Outcome {
    let options = [
      // Root may not have the sandbox, and a machine for tests has neither a screen nor much shared memory.
      "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
      "--force-device-scale-factor=1", "--enable-logging=stderr", "--v=0", "--no-first-run",
      "--user-data-dir=\(workshop.path("browser"))", "--window-size=\(screen.width),1100",
      "--blink-settings=preferredColorScheme=\(screen.isDark ? 0 : 1)",
    ]
    let running = try await workshop.start(
      options + arguments + [workshop.folder.appending(path: file).absoluteString], program: Self.path ?? "")
    let outcome = try await running.outcome()
    #expect(outcome.status == 0, "\(outcome.errors)")
    return outcome
  }

  struct Measures: Decodable {
    /// How much wider the page is than the window.
    var overflow: Double
    /// Charts' shapes that can be seen.
    var shapes: Int
    var headings: [String]
    /// Texts that stick out of their boxes, or of the window.
    var clipped: [String]
    var keys: [String]
    var scripts: Int
    var background: String
    var ink: String
  }

  private static let script = """
    <script>
    const seen = e => { const b = e.getBoundingClientRect(); return b.width > 0.5 && b.height > 0.5; };
    const texts = [...document.querySelectorAll("h1,h2,p,dt,dd,.name,.value,.note,figcaption span,.top")];
    const measures = {
      overflow: document.documentElement.scrollWidth - innerWidth,
      shapes: [...document.querySelectorAll("svg rect:not(.track):not(.touch)")].filter(seen).length,
      headings: texts.filter(e => e.tagName == "H2").map(e => e.textContent),
      clipped: texts.filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display != "inline"
        || e.getBoundingClientRect().right > innerWidth + 1).map(e => e.className + ": " + e.textContent),
      keys: [...document.querySelectorAll(".key")].map(e => e.textContent),
      scripts: document.scripts.length,
      background: getComputedStyle(document.body).backgroundColor,
      ink: getComputedStyle(document.body).color,
    };
    const pre = document.createElement("pre");
    pre.id = "measures";
    pre.textContent = JSON.stringify(measures).replace(/[<>&]/g, "?");
    document.body.append(pre);
    </script>
    """
}

/// The pixels of a PNG of 8 bits a channel.
struct Picture {
  let width: Int
  let height: Int
  private let channelCount: Int
  private var bytes: [UInt8] = []

  init(png: [UInt8]) throws {
    func number(_ offset: Int) -> Int {
      png[offset..<offset + 4].reduce(0) { $0 << 8 | Int($1) }
    }
    try #require(png.starts(with: [0x89, 0x50, 0x4e, 0x47]))
    (width, height) = (number(16), number(20))
    try #require(png[24] == 8 && [2, 6].contains(png[25]) && png[28] == 0, "not a picture as it is expected")
    channelCount = png[25] == 6 ? 4 : 3
    var stored: [UInt8] = []
    var offset = 8
    while offset + 12 <= png.count {
      let count = number(offset)
      if png[offset + 4..<offset + 8].elementsEqual("IDAT".utf8) {
        stored += png[offset + 8..<offset + 8 + count]
      }
      offset += 12 + count
    }
    let rowByteCount = width * channelCount
    var filtered = [UInt8](repeating: 0, count: height * (rowByteCount + 1))
    try filtered.withUnsafeMutableBytes {
      try ChunkDecoder().decode(stored.span.bytes, by: .zlib, into: $0)
    }
    bytes = [UInt8](repeating: 0, count: height * rowByteCount)
    for row in 0..<height {
      let kind = filtered[row * (rowByteCount + 1)]
      for column in 0..<rowByteCount {
        let here = row * rowByteCount + column
        let left = column >= channelCount ? bytes[here - channelCount] : 0
        let up = row > 0 ? bytes[here - rowByteCount] : 0
        let corner = row > 0 && column >= channelCount ? bytes[here - rowByteCount - channelCount] : 0
        let guess: UInt8 =
          switch kind {
          case 1: left
          case 2: up
          case 3: UInt8((Int(left) + Int(up)) / 2)
          case 4: Self.closest(left, up, corner)
          default: 0
          }
        bytes[here] = filtered[row * (rowByteCount + 1) + 1 + column] &+ guess
      }
    }
  }

  private static func closest(_ left: UInt8, _ up: UInt8, _ corner: UInt8) -> UInt8 {
    let target = Int(left) + Int(up) - Int(corner)
    let distances = [abs(target - Int(left)), abs(target - Int(up)), abs(target - Int(corner))]
    if distances[0] <= distances[1], distances[0] <= distances[2] { return left }
    return distances[1] <= distances[2] ? up : corner
  }

  /// How many pixels have each color.
  func colors() -> [UInt32: Int] {
    var counts: [UInt32: Int] = [:]
    for start in stride(from: 0, to: bytes.count, by: channelCount) {
      counts[bytes[start..<start + 3].reduce(0) { $0 << 8 | UInt32($1) }, default: 0] += 1
    }
    return counts
  }
}
