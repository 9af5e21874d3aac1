/// The progress of long work on a store: one slot of 512 bytes that its process overwrites repeatedly.
///
/// It is not part of a store's content. Readers ignore a slot that they do not understand. Format.md, "Activities".
package struct ActivityRecord: Hashable, Sendable {
  package static let byteCount = 512
  private static let tag: [UInt8] = [0x41, 0x43, 0x54, 0x31]  // ACT1
  private static let operationByteCountMax = 32
  private static let phaseByteCountMax = 48
  private static let subjectByteCountMax = 320

  /// "import", "gc".
  package var operation: String
  package var processID: Int32
  /// Milliseconds since 1970.
  package var started: UInt64
  package var updated: UInt64
  package var phase: String
  package var doneByteCount: Int64
  package var totalByteCount: Int64
  package var doneCount: Int64
  package var totalCount: Int64
  /// Negative if unknown.
  package var bytesPerSecond: Int64
  package var millisecondsLeft: Int64
  /// What the work is about, truncated if long.
  package var subject: String

  package init(
    operation: String, processID: Int32, started: UInt64, updated: UInt64, phase: String,
    doneByteCount: Int64, totalByteCount: Int64, doneCount: Int64, totalCount: Int64, bytesPerSecond: Int64,
    millisecondsLeft: Int64, subject: String
  ) {
    self.operation = operation
    self.processID = processID
    self.started = started
    self.updated = updated
    self.phase = phase
    self.doneByteCount = doneByteCount
    self.totalByteCount = totalByteCount
    self.doneCount = doneCount
    self.totalCount = totalCount
    self.bytesPerSecond = bytesPerSecond
    self.millisecondsLeft = millisecondsLeft
    self.subject = subject
  }

  package func encoded() -> [UInt8] {
    var content = ByteWriter(capacity: Self.byteCount)
    content.integer(processID)
    content.integer(started)
    content.integer(updated)
    for number in [
      doneByteCount, totalByteCount, doneCount, totalCount, bytesPerSecond, millisecondsLeft,
    ] { content.integer(number) }
    for (text, byteCountMax) in [
      (operation, Self.operationByteCountMax), (phase, Self.phaseByteCountMax),
      (subject, Self.subjectByteCountMax),
    ] {
      let bytes = Self.prefix(text, byteCountMax)
      content.integer(UInt16(bytes.count))
      content.raw(bytes)
    }
    content.zeros(Self.byteCount - 8 - content.bytes.count)
    var slot = ByteWriter(capacity: Self.byteCount)
    slot.raw(Self.tag)
    slot.integer(CRC32C.checksum(content.bytes.span.bytes))
    slot.raw(content.bytes)
    return slot.bytes
  }

  /// Nil unless the bytes are a valid slot: its process may be writing it, or another build wrote it.
  package init?(_ bytes: UnsafeRawBufferPointer) {
    guard bytes.count == Self.byteCount, bytes.starts(with: Self.tag) else { return nil }
    let content = UnsafeRawBufferPointer(rebasing: bytes[8...])
    guard
      bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self).littleEndian == CRC32C.checksum(content.bytes)
    else { return nil }
    var reader = ByteReader(content)
    do throws(BlobStorageError) {
      processID = try reader.integer()
      started = try reader.integer()
      updated = try reader.integer()
      doneByteCount = try reader.integer()
      totalByteCount = try reader.integer()
      doneCount = try reader.integer()
      totalCount = try reader.integer()
      bytesPerSecond = try reader.integer()
      millisecondsLeft = try reader.integer()
      operation = String(decoding: try reader.bytes(Int(reader.integer(UInt16.self))), as: UTF8.self)
      phase = String(decoding: try reader.bytes(Int(reader.integer(UInt16.self))), as: UTF8.self)
      subject = String(decoding: try reader.bytes(Int(reader.integer(UInt16.self))), as: UTF8.self)
    } catch { return nil }
  }

  /// The text, truncated at a character to fit.
  private static func prefix(_ text: String, _ byteCountMax: Int) -> [UInt8] {
    guard text.utf8.count > byteCountMax else { return Array(text.utf8) }
    var bytes: [UInt8] = []
    for character in text {
      guard bytes.count + character.utf8.count + 3 <= byteCountMax else { break }
      bytes += character.utf8
    }
    return bytes + "…".utf8
  }
}
