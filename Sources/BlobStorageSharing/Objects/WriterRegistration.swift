import BlobStorage

/// The object `writers/WRITER`, which makes collectors wait for a writer. Format.md, "Objects of a shared store".
package struct WriterRegistration: Hashable, Sendable {
  package var writer: UInt64
  /// The number of log entries that it has seen; informational.
  package var seenNumber: UInt32
  /// Grows with each renewal, so that collectors see that the writer lives.
  package var lifeCount: UInt64
  /// The last sequence that it had published by then.
  package var publishedSequence: UInt32
  /// Which process it is; for people.
  package var process: WriterProcess

  package init(
    writer: UInt64, seenNumber: UInt32, lifeCount: UInt64, publishedSequence: UInt32, process: WriterProcess
  ) {
    self.writer = writer
    self.seenNumber = seenNumber
    self.lifeCount = lifeCount
    self.publishedSequence = publishedSequence
    self.process = process
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
    let name = Self.nameBytes(process.machine)
    var body = ByteWriter(capacity: 26 + name.count)
    body.integer(lifeCount)
    body.integer(publishedSequence)
    body.integer(process.number)
    body.integer(process.began)
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
    var (lifeCount, publishedSequence, number, began): (UInt64, UInt32, UInt32, UInt64) = (0, 0, 0, 0)
    let machine = try bridge(object.body) { (raw) throws(BlobStorageError) -> [UInt8] in
      var reader = ByteReader(raw)
      lifeCount = try reader.integer()
      publishedSequence = try reader.integer()
      number = try reader.integer()
      began = try reader.integer()
      let machine = Array(try reader.bytes(Int(try reader.integer(UInt16.self))))
      try reader.finish()
      return machine
    }
    guard object.writer == writer, began < Stamp.timeMax,
      let text = String(validating: machine, as: UTF8.self)
    else {
      throw BlobStorageError(
        .corrupted, "The object \(name) is not the registration of that writer.", path: name)
    }
    self.writer = writer
    seenNumber = object.number
    self.lifeCount = lifeCount
    self.publishedSequence = publishedSequence
    process = WriterProcess(machine: text, number: number, began: began)
  }
}

/// The process of a writer, for people.
package struct WriterProcess: Hashable, Sendable {
  package var machine: String
  /// The process ID.
  package var number: UInt32
  /// When it registered, in milliseconds since 1970.
  package var began: UInt64

  package init(machine: String, number: UInt32 = 0, began: UInt64 = 0) {
    self.machine = machine
    self.number = number
    self.began = began
  }
}
