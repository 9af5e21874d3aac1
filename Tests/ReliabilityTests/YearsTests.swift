import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Testing

/// Plays writers and collections of five years with objects alone: no engine, and packs of 64 bytes. A daily run plays
/// 90 days.
@Suite("A shared store over years")
struct YearsTests {
  /// What one year took.
  private struct Year {
    var requestCount = 0
    var logByteCount = 0
    var logObjectCount = 0
    var warmByteCount = 0
    var freshByteCount = 0
    var freshRequestCount = 0
  }

  private static let storeID = (0..<16).map { UInt8($0) }
  private static let writersOfDay: UInt64 = 100
  /// Days that a pack is needed.
  private static let packDays = 30
  private static let keptChangeCount: UInt32 = 1_000

  @Test("has a log that grows with what changes")
  func days() throws {
    let days = Soak.isOn ? 5 * 365 : 90
    let store = SimulatedObjectStore()
    let log = CollectionLog(store, storeID: Self.storeID)
    let changes = ChangeList(store, storeID: Self.storeID)
    var last: UInt32 = 0
    var known = Collections()
    var year = Year()
    var years: [Year] = []
    var packs: [[PackName]] = []
    var before = store.requestCount
    for day in 1...days {
      // Each is a process of its own on a machine that read the log yesterday.
      var written: [PackName] = []
      for index in 0..<Self.writersOfDay {
        let name = PackName(
          writer: (UInt64(day) * Self.writersOfDay + index) &* 0x9E37_79B9_7F4A_7C15, sequence: 1)
        let read = store.readByteCount
        let (member, found) = try Membership.join(
          store, storeID: Self.storeID, writer: name.writer, process: WriterProcess(machine: "a"),
          known: known)
        #expect(found == known)
        year.warmByteCount += store.readByteCount - read
        let pack = ObjectContent.bytes([UInt8](repeating: 1, count: 64))
        #expect(try Publication.publish(name, pack, store, storeID: Self.storeID) == .published)
        let known = last
        last = try changes.append(Change(name.writer, 1..<2)) { known }
        try member.leave(publishedSequence: 1)
        written.append(name)
      }
      packs.append(written)
      // The daily collection removes what is old enough, and end marks with it.
      let old = packs.count > Self.packDays ? packs.removeFirst() : []
      let horizon = last > Self.keptChangeCount ? last - Self.keptChangeCount : 0
      let mine = try #require(try log.condemn(old, horizon: horizon, after: known, by: 1))
      let ends = old.map { PackName(writer: $0.writer, sequence: 2) }
      known = try #require(try log.remove(old, ends: ends, after: mine, by: 1))
      for name in old + ends { try store.delete(SharedNames.pack(name)) }
      try changes.remove(upTo: horizon)
      guard day % 365 == 0 || day == days else { continue }
      let objects = store.objects.filter {
        $0.key.hasPrefix(SharedNames.collections) || $0.key.hasPrefix(SharedNames.checkpoints)
      }
      year.requestCount = store.requestCount - before
      year.logByteCount = objects.values.reduce(0) { $0 + $1.count }
      year.logObjectCount = objects.count
      let (readBefore, requestsBefore) = (store.readByteCount, store.requestCount)
      #expect(try log.read(after: Collections()) == known)
      year.freshByteCount = store.readByteCount - readBefore
      year.freshRequestCount = store.requestCount - requestsBefore
      years.append(year)
      year = Year()
      before = store.requestCount
    }
    #expect(store.objects.keys.count { $0.hasPrefix(SharedNames.changes) } == Int(Self.keptChangeCount))
    let end = try #require(years.last)
    let removedCount = max(0, days - Self.packDays) * Int(Self.writersOfDay)
    #expect(known.removed.ranges.count == removedCount)
    // One checkpoint, and the entries since: no more than 20 bytes for each writer that ever was, and 32 for its packs.
    #expect(end.logObjectCount <= 34)
    #expect(end.logByteCount <= removedCount * 20 + 34 * (60 + 100 * 20))
    #expect(end.freshRequestCount <= 38)
    #expect(end.warmByteCount == 0)
    for (number, year) in years.enumerated() {
      print(
        "year \(number + 1): \(year.requestCount) requests, log \(year.logByteCount) bytes in"
          + " \(year.logObjectCount) objects; a command reads \(year.warmByteCount) bytes of it where machines keep it,"
          + " \(year.freshByteCount) in \(year.freshRequestCount) requests on a new machine")
    }
  }
}
