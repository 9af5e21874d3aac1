/// The census of a store: which packs belong to it, and what was lost. Format.md, "The census".
///
/// It distinguishes a lost pack from one that never existed or that gc has removed. The order of its lines does not
/// matter: a pack that has left the store stays out, whatever other lines say.
package struct Census: Hashable, Sendable {
  /// One line.
  package enum Event: Hashable, Sendable {
    /// A copy of the file `store`.
    case store([UInt8])
    /// The pack's name is on the medium.
    case begun(PackName)
    /// The pack is sealed, and its records end at `recordsEnd`. Or its writer was killed, and its published records or
    /// durable changes ended there.
    case sealed(PackName, recordsEnd: Int64)
    /// gc removes these packs. Their live records are in other packs.
    case removed(ClosedRange<UInt32>, writer: UInt64)
    /// The pack has left the store: `repair` saved what it could, or its loss was accepted.
    case setAside(PackName)
    /// Records of the pack may be lost, and their keys are unknown.
    case unreadable(PackName)
    /// The loss of the pack's records was accepted.
    case accepted(PackName)
  }

  /// A pack that belongs to the store.
  package struct Pack: Hashable, Sendable {
    /// Where its records must end at the earliest; nil until a `sealed` line says so.
    package var recordsEnd: Int64?
  }

  /// The 64 bytes of the file `store`.
  package private(set) var store: [UInt8]?
  private var known: [PackName: Pack] = [:]
  private var removed: [UInt64: RangeSet<UInt64>] = [:]
  private var setAside: Set<PackName> = []
  private var unreadable: Set<PackName> = []
  private var accepted: Set<PackName> = []
  /// The lines that were read, and those with a checksum mismatch or of an unknown kind.
  package private(set) var lineCount = 0
  package private(set) var damagedLineCount = 0

  package init() {}

  package mutating func add(_ event: Event) {
    switch event {
    case .store(let bytes): store = bytes
    case .begun(let name): known[name, default: Pack()].recordsEnd = known[name]?.recordsEnd
    case .sealed(let name, let end):
      known[name, default: Pack()].recordsEnd = max(end, known[name]?.recordsEnd ?? 0)
    case .removed(let range, let writer):
      removed[writer, default: RangeSet()].insert(
        contentsOf: UInt64(range.lowerBound)..<UInt64(range.upperBound) + 1)
    case .setAside(let name): setAside.insert(name)
    case .unreadable(let name): unreadable.insert(name)
    case .accepted(let name): accepted.insert(name)
    }
  }

  /// Whether gc has removed the pack. Its file is then garbage.
  package func isRemoved(_ name: PackName) -> Bool {
    removed[name.writer]?.contains(UInt64(name.sequence)) ?? false
  }

  /// Whether any pack was set aside: `repair` took it out of the store, or its loss was accepted.
  package var hasSetAside: Bool { !setAside.isEmpty }

  /// Whether the pack has left the store. Its file then does not count.
  package func hasLeft(_ name: PackName) -> Bool {
    setAside.contains(name) || isRemoved(name)
  }

  /// The pack, if it belongs to the store.
  package func pack(_ name: PackName) -> Pack? { hasLeft(name) ? nil : known[name] }

  /// The packs that belong to the store.
  package var packs: [PackName: Pack] { known.filter { !hasLeft($0.key) } }

  /// The packs that lost records of unknown keys, except accepted losses.
  package var unreadablePacks: [PackName] { unreadable.subtracting(accepted).sorted() }

  /// The events by which losses were accepted, or packs set aside.
  package var acceptances: [Event] {
    setAside.sorted().map { .setAside($0) } + accepted.sorted().map { .accepted($0) }
  }

  /// The fewest events with the same meaning. Packs that gc removed are merged into ranges.
  package var events: [Event] {
    var events: [Event] = []
    if let store { events.append(.store(store)) }
    for (writer, sequences) in removed.sorted(by: { $0.key < $1.key }) {
      for range in sequences.ranges {
        events.append(.removed(UInt32(range.lowerBound)...UInt32(range.upperBound - 1), writer: writer))
      }
    }
    for (name, pack) in packs.sorted(by: { $0.key < $1.key }) {
      events.append(pack.recordsEnd.map { .sealed(name, recordsEnd: $0) } ?? .begun(name))
    }
    for name in setAside.sorted() where !isRemoved(name) { events.append(.setAside(name)) }
    for name in unreadablePacks { events.append(.unreadable(name)) }
    return events
  }
}

// MARK: Lines

extension Census {
  /// Reads a whole file. Counts lines that are damaged or of an unknown kind, and otherwise ignores them.
  package init(_ bytes: UnsafeRawBufferPointer) {
    var start = 0
    while start < bytes.count {
      var end = start
      while end < bytes.count, bytes[end] != UInt8(ascii: "\n") { end += 1 }
      if end > start {
        lineCount += 1
        if let event = Event(line: UnsafeRawBufferPointer(rebasing: bytes[start..<end])) {
          add(event)
        } else {
          damagedLineCount += 1
        }
      }
      start = end + 1
    }
  }

  /// Encodes events for appending to the file.
  ///
  /// Each line begins with a newline, so that it is readable after a torn line. It is written twice, with an empty line
  /// between: no single damaged byte destroys both copies.
  package static func text(_ events: [Event]) -> [UInt8] {
    var text: [UInt8] = []
    for event in events {
      let line = event.line
      text += Array("\n".utf8) + line + Array("\n\n".utf8) + line
    }
    return text
  }
}

extension Census.Event {
  /// The line without its newline: words, then the checksum of everything before the last space.
  var line: [UInt8] {
    let words: [String] =
      switch self {
      case .store(let bytes): ["store", Hex.text(bytes)]
      case .begun(let name): ["begun", "\(name)"]
      case .sealed(let name, let end): ["sealed", "\(name)", "\(end)"]
      case .removed(let range, let writer):
        ["removed", "\(PackName(writer: writer, sequence: range.lowerBound))", Hex.text(range.upperBound)]
      case .setAside(let name): ["set-aside", "\(name)"]
      case .unreadable(let name): ["unreadable", "\(name)"]
      case .accepted(let name): ["accepted", "\(name)"]
      }
    let text = Array(words.joined(separator: " ").utf8)
    let checksum = CRC32C.checksum(text.span.bytes)
    return text + Array(" \(Hex.text(checksum))".utf8)
  }

  /// Parses a line; nil for a checksum mismatch or a kind that this build does not know.
  init?(line: UnsafeRawBufferPointer) {
    let checksumByteCount = 9
    guard line.count > checksumByteCount, line.count <= BlobLimits.censusLineByteCountMax else { return nil }
    let text = UnsafeRawBufferPointer(rebasing: line.dropLast(checksumByteCount))
    guard line[text.count] == UInt8(ascii: " "),
      Hex.integer(UInt32.self, line.suffix(checksumByteCount - 1)) == CRC32C.checksum(text.bytes)
    else { return nil }
    let words = text.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
    guard words.count >= 2 else { return nil }
    func word(_ index: Int) -> String { String(decoding: words[index], as: UTF8.self) }
    switch (word(0), words.count, PackName(utf8: words[1])) {
    case ("store", 2, _):
      guard let bytes = Hex.bytes(word(1)), bytes.count == StoreHeader.byteCount else { return nil }
      self = .store(bytes)
    case ("begun", 2, let name?): self = .begun(name)
    case ("sealed", 3, let name?):
      guard let end = Int64(word(2)), 0...BlobLimits.packByteCountMax ~= end else { return nil }
      self = .sealed(name, recordsEnd: end)
    case ("removed", 3, let name?):
      guard let end = Hex.integer(UInt32.self, words[2]), end >= name.sequence else { return nil }
      self = .removed(name.sequence...end, writer: name.writer)
    case ("set-aside", 2, let name?): self = .setAside(name)
    case ("unreadable", 2, let name?): self = .unreadable(name)
    case ("accepted", 2, let name?): self = .accepted(name)
    default: return nil
    }
  }
}
