import BlobStorage

/// The object `writers/WRITER`, which makes collectors wait for a writer. Format.md, "Objects of a shared store".
package struct WriterRegistration: Hashable, Sendable {
  package var writer: UInt64
  /// The number of log entries that it has seen; informational.
  package var seenNumber: UInt32
  /// Grows with each renewal, so that collectors see that the writer lives.
  package var lifeCount: UInt64
  /// The machine's name; informational.
  package var machine: String

  package init(writer: UInt64, seenNumber: UInt32, lifeCount: UInt64, machine: String) {
    self.writer = writer
    self.seenNumber = seenNumber
    self.lifeCount = lifeCount
    self.machine = machine
  }

  /// The machine's name, cut to the room for it.
  static func nameBytes(_ machine: String) -> [UInt8] {
    // Cut between characters: a cut inside one would not be valid UTF-8.
    var name: [UInt8] = []
    for character in machine {
      guard name.count + character.utf8.count <= Limits.machineNameByteCountMax else { break }
      name += Array(character.utf8)
    }
    return name
  }

  func encoded(storeID: [UInt8]) -> [UInt8] {
    let name = Self.nameBytes(machine)
    var body = ByteWriter(capacity: 10 + name.count)
    body.integer(lifeCount)
    body.integer(UInt16(name.count))
    body.raw(name)
    return SharedObject(
      .registration, number: seenNumber, storeID: storeID, writer: writer, body: body.bytes
    ).encoded()
  }

  /// Decodes a registration.
  ///
  /// - Throws: `corrupted` for bytes that are not a registration of that writer.
  init(_ bytes: [UInt8], writer: UInt64, storeID: [UInt8]) throws(BlobStorageError) {
    let name = SharedNames.writer(writer)
    let object = try SharedObject(bytes, .registration, storeID: storeID, name: name)
    let (lifeCount, machine) = try bridge(object.body) {
      (raw) throws(BlobStorageError) -> (UInt64, [UInt8]) in
      var reader = ByteReader(raw)
      let lifeCount: UInt64 = try reader.integer()
      let machine = Array(try reader.bytes(Int(try reader.integer(UInt16.self))))
      try reader.finish()
      return (lifeCount, machine)
    }
    guard object.writer == writer, let text = String(validating: machine, as: UTF8.self) else {
      throw BlobStorageError(
        .corrupted, "The object \(name) is not the registration of that writer.", path: name)
    }
    self.writer = writer
    seenNumber = object.number
    self.lifeCount = lifeCount
    self.machine = text
  }
}
