import BlobStorage

/// The object `changes/N`, which names published packs of one writer. Format.md, "Objects of a shared store".
package struct Change: Hashable, Sendable {
  /// The most packs that a change names.
  static let packCountMax: UInt32 = 4_096

  package var writer: UInt64
  /// The sequences of the packs: `first` up to before `end`.
  package var first: UInt32
  package var end: UInt32
  /// Whether a fence or an end mark has the sequence `end`.
  package var isLast: Bool

  package init(_ writer: UInt64, _ sequences: Range<UInt32>, isLast: Bool = false) {
    self.writer = writer
    (first, end) = (sequences.lowerBound, sequences.upperBound)
    self.isLast = isLast
  }

  var names: some Sequence<PackName> {
    (first..<end).lazy.map { [writer] in PackName(writer: writer, sequence: $0) }
  }

  package func encoded(number: UInt32, storeID: [UInt8]) -> [UInt8] {
    var body = ByteWriter(capacity: 9)
    body.integer(first)
    body.integer(end)
    body.integer(UInt8(isLast ? 1 : 0))
    return SharedObject(.change, number: number, storeID: storeID, writer: writer, body: body.bytes)
      .encoded()
  }

  /// Decodes a change.
  ///
  /// - Throws: `corrupted` for bytes that are not the change of that number; `unsupportedFormat` for another format
  ///   version.
  package init(_ bytes: [UInt8], number: UInt32, storeID: [UInt8]) throws(BlobStorageError) {
    let name = SharedNames.change(number)
    let object = try SharedObject(bytes, .change, storeID: storeID, name: name)
    writer = object.writer
    (first, end, isLast) = try bridge(object.body) { (raw) throws(BlobStorageError) in
      var reader = ByteReader(raw)
      let (first, end, flag): (UInt32, UInt32, UInt8) = (
        try reader.integer(), try reader.integer(), try reader.integer()
      )
      guard object.number == number, first > 0, first <= end, end - first <= Self.packCountMax, flag <= 1,
        first < end || flag == 1
      else {
        throw BlobStorageError(.corrupted, "The object \(name) is not the change of that number.", path: name)
      }
      return (first, end, flag == 1)
    }
  }
}

/// Appends and reads the changes of one store, numbered from 1.
///
/// A writer puts a change only after all lower numbers are taken. So a machine that has applied some changes lists only
/// later ones.
package struct ChangeList: Sendable {
  let objects: any ObjectStore
  let storeID: [UInt8]

  private static let attemptCountMax = 1_000

  package init(_ objects: any ObjectStore, storeID: [UInt8]) {
    self.objects = objects
    self.storeID = storeID
  }

  /// Puts a change under the next free number, and returns the number.
  ///
  /// - Parameter known: the last number that is known to be taken, or to have been taken.
  /// - Throws: `busy` after 1,000 attempts; `limitExceeded` after the last number.
  package func append(
    _ change: Change, after known: () -> UInt32
  ) throws(BlobStorageError) -> UInt32 {
    var last: UInt32 = 0
    for _ in 0..<Self.attemptCountMax {
      last = max(last, known())
      guard last < .max else {
        throw BlobStorageError(
          .limitExceeded, "There are no more numbers for changes in \(objects.place): copy the store.")
      }
      let number = last + 1
      let bytes = change.encoded(number: number, storeID: storeID)
      let name = SharedNames.change(number)
      if try objects.put(name, .bytes(bytes), ifAbsent: true) == .stored { return number }
      // The stored change may be this one: an earlier attempt's response was lost.
      if try find(number) == change { return number }
      last = try self.last(after: number)
    }
    throw BlobStorageError(.busy, "Other machines keep publishing: try again.")
  }

  /// The last change after `known`; `known` if there is none.
  ///
  /// Ignores objects that are not changes, such as one with a number far ahead.
  package func last(after known: UInt32) throws(BlobStorageError) -> UInt32 {
    let listed = try objects.listAll(SharedNames.changes, after: SharedNames.change(known))
    for number in listed.lazy.compactMap({ SharedNames.changeNumber($0.name) }).reversed()
    where number > known {
      if try find(number) != nil { return number }
    }
    return known
  }

  /// Reads a change; nil if there is none, or if another object has its name.
  func find(_ number: UInt32) throws(BlobStorageError) -> Change? {
    do throws(BlobStorageError) {
      guard let bytes = try objects.whole(SharedNames.change(number), .change) else { return nil }
      return try Change(bytes, number: number, storeID: storeID)
    } catch {
      guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error }
      return nil
    }
  }

  /// Deletes the changes up to `horizon`, including late puts under their names.
  package func remove(upTo horizon: UInt32) throws(BlobStorageError) {
    var last: String?
    while true {
      let page = try objects.list(SharedNames.changes, after: last)
      for entry in page.entries {
        guard let number = SharedNames.changeNumber(entry.name) else { continue }
        guard number <= horizon else { return }
        try objects.delete(entry.name)
      }
      guard page.isTruncated, let end = page.entries.last else { return }
      last = end.name
    }
  }
}
