import BlobStorage
import Testing

/// The lines of the census.
@Suite struct CensusTests {
  private static let name = PackName(writer: 0x0102_0304_0506_0708, sequence: 3)
  private static let header = [UInt8](repeating: 0xab, count: 64)
  private static let events: [Census.Event] = [
    .store(header), .begun(name), .sealed(name, recordsEnd: 248), .removed(1...2, writer: name.writer),
    .setAside(PackName(writer: 9, sequence: 1)), .unreadable(PackName(writer: 9, sequence: 1)),
    .accepted(PackName(writer: 9, sequence: 2)),
  ]

  private static func census(_ bytes: [UInt8]) -> Census { bytes.withUnsafeBytes { Census($0) } }

  @Test("A person can read the lines")
  func lines() {
    let text = String(
      decoding: Census.text([.begun(Self.name), .sealed(Self.name, recordsEnd: 248)]), as: UTF8.self)
    #expect(
      text == """

        begun 0102030405060708-00000003 f7434075

        begun 0102030405060708-00000003 f7434075
        sealed 0102030405060708-00000003 248 2a5ca1ae

        sealed 0102030405060708-00000003 248 2a5ca1ae
        """)
  }

  @Test("What is written is read, in any order")
  func order() {
    let census = Self.census(Census.text(Self.events))
    #expect(census.damagedLineCount == 0)
    #expect(census.store == Self.header)
    #expect(census.pack(Self.name)?.recordsEnd == 248)
    #expect(census.packs.count == 1)
    #expect(census.isRemoved(PackName(writer: Self.name.writer, sequence: 2)))
    let aside = PackName(writer: 9, sequence: 1)
    #expect(census.hasLeft(aside) && !census.isRemoved(aside))
    #expect(census.unreadablePacks == [PackName(writer: 9, sequence: 1)])
    let backwards = Self.census(Census.text(Self.events.reversed()))
    #expect(backwards.events == census.events)
    #expect(Self.census(Census.text(census.events)).events == census.events)
  }

  @Test("A pack that left the store stays outside, whatever else is said of it")
  func left() {
    for leaving in [Census.Event.removed(3...3, writer: Self.name.writer), .setAside(Self.name)] {
      let census = Self.census(
        Census.text([leaving, .begun(Self.name), .sealed(Self.name, recordsEnd: 248)]))
      #expect(census.pack(Self.name) == nil)
      #expect(census.packs.isEmpty)
      #expect(census.hasLeft(Self.name))
    }
  }

  @Test("Ranges of removed packs are joined only where they touch")
  func ranges() {
    let events: [Census.Event] = [
      .removed(1...2, writer: Self.name.writer), .removed(4...5, writer: Self.name.writer),
      .removed(6...8, writer: Self.name.writer), .begun(Self.name),
    ]
    let census = Self.census(Census.text(Self.census(Census.text(events)).events))
    #expect(
      (1...9).filter { census.isRemoved(PackName(writer: Self.name.writer, sequence: $0)) } == [
        1, 2, 4, 5, 6, 7, 8,
      ])
    #expect(census.pack(Self.name) != nil)
    #expect(census.events.count == 3)
  }

  @Test("A repeated event counts once, with its greatest value, in either order")
  func twice() {
    let writer = Self.name.writer
    let events: [Census.Event] = [
      .sealed(Self.name, recordsEnd: 248), .begun(Self.name), .sealed(Self.name, recordsEnd: 99),
      .removed(10...20, writer: writer), .removed(12...13, writer: writer), .removed(18...21, writer: writer),
    ]
    for lines in [events, Array(events.reversed())] {
      let census = Self.census(Census.text(lines))
      #expect(census.pack(Self.name)?.recordsEnd == 248)
      #expect(census.events == [.removed(10...21, writer: writer), .sealed(Self.name, recordsEnd: 248)])
    }
  }

  @Test("The fewest lines say the same of every pack")
  func fewest() {
    let gone = PackName(writer: 9, sequence: 1)
    let census = Self.census(Census.text(Self.events + [.unreadable(Self.name), .accepted(gone)]))
    let short = Self.census(Census.text(census.events))
    #expect(short.store == Self.header && short.packs == census.packs && short.packs.count == 1)
    #expect(short.hasLeft(gone) && short.hasSetAside && !short.isRemoved(gone))
    #expect(short.unreadablePacks == [Self.name])
    let removed = (1...3).map { short.isRemoved(PackName(writer: Self.name.writer, sequence: $0)) }
    #expect(removed == [true, true, false])
    // Nothing is known of the packs of another writer.
    #expect(!short.isRemoved(PackName(writer: 1, sequence: 1)) && !short.hasLeft(Self.name))
  }

  @Test(
    "What a line tells survives any flipped bit",
    arguments: [
      .begun(name), .sealed(name, recordsEnd: 99), .store(header), .removed(3...3, writer: name.writer),
      .setAside(name), .unreadable(name),
      .accepted(name),
    ] as [Census.Event])
  func survives(_ event: Census.Event) {
    let before: [Census.Event] =
      switch event {
      case .accepted: [.unreadable(Self.name)]
      case .begun, .sealed: []
      default: [.sealed(Self.name, recordsEnd: 64)]
      }
    let (line, known) = (Census.text([event]), Census.text(before))
    let whole = Self.census(line + known).events
    #expect(whole != Self.census(known).events)
    for offset in line.indices {
      var flipped = line
      flipped[offset] ^= UInt8(1 << (offset % 8))
      #expect(Self.census(flipped + known).events == whole, "byte \(offset)")
    }
  }

  @Test("A flipped bit never makes another line, and takes nothing that only the census knows")
  func flips() {
    let bytes = Census.text(Self.events)
    let whole = Self.census(bytes)
    for offset in bytes.indices {
      var flipped = bytes
      flipped[offset] ^= UInt8(1 << (offset % 8))
      let census = Self.census(flipped)
      #expect(census.store == whole.store)
      #expect(census.unreadablePacks == whole.unreadablePacks)
      #expect(census.isRemoved(PackName(writer: Self.name.writer, sequence: 1)))
      #expect(census.packs.keys.allSatisfy { $0 == Self.name })
    }
  }

  @Test("A line behind a torn one is read")
  func torn() {
    let first = Census.text([.begun(Self.name)])
    for count in first.indices {
      let census = Self.census(Array(first.prefix(count)) + Census.text([.sealed(Self.name, recordsEnd: 99)]))
      #expect(census.pack(Self.name)?.recordsEnd == 99)
    }
  }

  @Test("Lines that are not of this build, too long or wrong are passed over")
  func hostile() {
    func line(_ text: String) -> [UInt8] {
      let bytes = Array(text.utf8)
      let checksum = CRC32C.checksum(bytes.span.bytes)
      return Array("\n\(text) \(Hex.text(checksum))".utf8)
    }
    for text in [
      "", "later 1", "begun", "begun x", "sealed 0102030405060708-00000003 -1",
      "sealed 0102030405060708-00000003 99999999999999999999", "removed 0102030405060708-00000003 00000001",
      "store 00", "begun 0102030405060708-00000000", "unreadable 0102030405060708-00000003 00000001",
    ] {
      let census = Self.census(line(text))
      #expect(census.damagedLineCount == 1, "\(text)")
      #expect(census.events.isEmpty)
    }
    #expect(Self.census([UInt8](repeating: 0, count: 5_000)).events.isEmpty)
  }
}
