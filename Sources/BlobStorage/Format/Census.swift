/// What the census of a store says: which packs belong to it, and what was lost. Format.md, "The census".
///
/// The census is read from the lines of the file `census`. It tells a lost pack from one that was never there, or that
/// gc has removed. The order of lines means nothing: a pack that left the store stays outside, whatever other lines say.
package struct Census: Hashable, Sendable {
  /// One line.
  package enum Event: Hashable, Sendable {
    /// A copy of the file `store`.
    case store([UInt8])
    /// The pack's name is on the medium.
    case begun(PackName)
    /// The pack is on the medium whole; its records end at `recordsEnd`.
    case sealed(PackName, recordsEnd: Int64)
    /// What is live of these packs lies in others: gc removes them.
    case removed(ClosedRange<UInt32>, writer: UInt64)
    /// The pack belongs to the store no more: `repair` has saved what it could, or its loss was accepted.
    case setAside(PackName)
    /// Records of the pack may be lost, and it is not known of which keys.
    case unreadable(PackName)
    /// It is accepted that records of the pack are lost.
    case accepted(PackName)
  }

  /// A pack that belongs to the store.
  package struct Pack: Hashable, Sendable {
    /// Where its records end; nil until it is sealed.
    package var recordsEnd: Int64?
  }

  /// The 64 bytes of the file `store`.
  package private(set) var store: [UInt8]?
  private var known: [PackName: Pack] = [:]
  private var removed: [UInt64: [ClosedRange<UInt32>]] = [:]
  private var setAside: Set<PackName> = []
  private var unreadable: Set<PackName> = []
  private var accepted: Set<PackName> = []
  /// Lines that were read, and those that do not match their checksum.
  package private(set) var lineCount = 0
  package private(set) var damagedLineCount = 0

  package init() {}

  package mutating func add(_ event: Event) {
    switch event {
    case .store(let bytes): store = bytes
    case .begun(let name): known[name, default: Pack()].recordsEnd = known[name]?.recordsEnd
    case .sealed(let name, let end):
      known[name, default: Pack()].recordsEnd = max(end, known[name]?.recordsEnd ?? 0)
    case .removed(let range, let writer): removed[writer, default: []].append(range)
    case .setAside(let name): setAside.insert(name)
    case .unreadable(let name): unreadable.insert(name)
    case .accepted(let name): accepted.insert(name)
    }
  }

  /// Whether gc has removed the pack: its file is nothing but garbage.
  package func isRemoved(_ name: PackName) -> Bool {
    removed[name.writer]?.contains { $0.contains(name.sequence) } ?? false
  }

  /// Whether `repair` has taken any pack out of the store, or its loss was accepted.
  package var hasSetAside: Bool { !setAside.isEmpty }

  /// Whether the pack has left the store: what its file holds counts no more.
  package func hasLeft(_ name: PackName) -> Bool {
    setAside.contains(name) || isRemoved(name)
  }

  /// The pack, if it belongs to the store.
  package func pack(_ name: PackName) -> Pack? { hasLeft(name) ? nil : known[name] }

  /// The packs that belong to the store.
  package var packs: [PackName: Pack] { known.filter { !hasLeft($0.key) } }

  /// Packs that lost records of unknown keys, as long as that is not accepted.
  package var unreadablePacks: [PackName] { unreadable.subtracting(accepted).sorted() }

  /// The fewest events that say the same. Of packs that left the store only ranges of numbers stay.
  package var events: [Event] {
    var events: [Event] = []
    if let store { events.append(.store(store)) }
    for (writer, ranges) in removed.sorted(by: { $0.key < $1.key }) {
      for range in Self.merged(ranges) { events.append(.removed(range, writer: writer)) }
    }
    for (name, pack) in packs.sorted(by: { $0.key < $1.key }) {
      events.append(pack.recordsEnd.map { .sealed(name, recordsEnd: $0) } ?? .begun(name))
    }
    for name in setAside.sorted() where !isRemoved(name) { events.append(.setAside(name)) }
    for name in unreadablePacks { events.append(.unreadable(name)) }
    return events
  }

  private static func merged(_ ranges: [ClosedRange<UInt32>]) -> [ClosedRange<UInt32>] {
    var merged: [ClosedRange<UInt32>] = []
    for range in ranges.sorted(by: { $0.lowerBound < $1.lowerBound }) {
      if let last = merged.last, UInt64(range.lowerBound) <= UInt64(last.upperBound) + 1 {
        merged[merged.count - 1] = last.lowerBound...max(last.upperBound, range.upperBound)
      } else {
        merged.append(range)
      }
    }
    return merged
  }
}

// MARK: Lines

extension Census {
  /// Reads a whole file. Lines that do not match their checksum are counted and otherwise ignored.
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

  /// The events as they are appended to the file.
  ///
  /// Each line begins with a newline, so that it can be read behind one that was torn. Lines that a reader cannot work
  /// out again from the packs are written twice, apart: no single damaged byte takes both.
  package static func text(_ events: [Event]) -> [UInt8] {
    var text: [UInt8] = []
    for event in events {
      let line = event.line
      text.append(UInt8(ascii: "\n"))
      text += line
      if event.isWrittenTwice { text += Array("\n\n".utf8) + line }
    }
    return text
  }
}

extension Census.Event {
  /// Whether nothing else tells what the line says.
  var isWrittenTwice: Bool {
    switch self {
    case .begun, .sealed: false
    case .store, .removed, .setAside, .unreadable, .accepted: true
    }
  }

  /// The line without its newline: words, then the checksum of all before the last space.
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

  /// What a line says; nil when it does not match its checksum, or is of a kind that this build does not know.
  init?(line: UnsafeRawBufferPointer) {
    let checksumByteCount = 9
    guard line.count > checksumByteCount, line.count <= BlobLimits.censusLineByteCountMax else { return nil }
    let text = UnsafeRawBufferPointer(rebasing: line.dropLast(checksumByteCount))
    guard line[text.count] == UInt8(ascii: " "),
      Hex.integer(UInt32.self, line.suffix(checksumByteCount - 1)) == CRC32C.checksum(text.bytes)
    else { return nil }
    let words = text.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
    guard words.count >= 2 else { return nil }
    let name = Self.name(words[1])
    func word(_ index: Int) -> String { String(decoding: words[index], as: UTF8.self) }
    switch (word(0), words.count) {
    case ("store", 2):
      guard let bytes = Hex.bytes(word(1)), bytes.count == StoreHeader.byteCount else { return nil }
      self = .store(bytes)
    case ("begun", 2):
      guard let name else { return nil }
      self = .begun(name)
    case ("sealed", 3):
      guard let name, let end = Int64(word(2)), 0...BlobLimits.packByteCountMax ~= end else { return nil }
      self = .sealed(name, recordsEnd: end)
    case ("removed", 3):
      guard let name, let end = Hex.integer(UInt32.self, words[2]), end >= name.sequence else { return nil }
      self = .removed(name.sequence...end, writer: name.writer)
    case ("set-aside", 2):
      guard let name else { return nil }
      self = .setAside(name)
    case ("unreadable", 2):
      guard let name else { return nil }
      self = .unreadable(name)
    case ("accepted", 2):
      guard let name else { return nil }
      self = .accepted(name)
    default: return nil
    }
  }

  /// The pack that 25 bytes name: a census may have very many.
  private static func name(_ text: Slice<UnsafeRawBufferPointer>) -> PackName? {
    guard text.count == 25, text[text.startIndex + 16] == UInt8(ascii: "-"),
      let writer = Hex.integer(UInt64.self, text.prefix(16)),
      let sequence = Hex.integer(UInt32.self, text.suffix(8)), sequence > 0
    else { return nil }
    return PackName(writer: writer, sequence: sequence)
  }
}
