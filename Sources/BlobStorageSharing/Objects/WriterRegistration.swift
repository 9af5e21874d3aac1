import BlobStorage
import Foundation

/// The object `writers/WRITER`, which makes collectors wait for a writer. Format.md, "Objects of a shared store".
package struct WriterRegistration: Hashable, Sendable {
  package var writer: UInt64
  /// The number of log entries that the writer has read; informational.
  package var seenNumber: UInt32
  /// Grows with each renewal, so that collectors see that the writer lives.
  package var lifeCount: UInt64
  /// The writer's last published sequence at the time of the put.
  package var publishedSequence: UInt32
  /// The writer's process, for messages.
  package var process: WriterProcess
}

extension WriterRegistration {
  /// A text, truncated to its greatest length.
  static func nameBytes(_ machine: String) -> [UInt8] {
    // Truncate between characters, because a part of one would not be valid UTF-8.
    var name: [UInt8] = []
    for character in machine {
      guard name.count + character.utf8.count <= BlobLimits.machineNameByteCountMax else { break }
      name += Array(character.utf8)
    }
    return name
  }

  func encoded(storeID: [UInt8]) -> [UInt8] {
    let texts = [process.machine, process.command].map(Self.nameBytes)
    var body = ByteWriter(capacity: 28 + texts[0].count + texts[1].count)
    body.integer(lifeCount)
    body.integer(publishedSequence)
    body.integer(process.number)
    body.integer(process.began)
    for text in texts {
      body.integer(UInt16(text.count))
      body.raw(text)
    }
    return SharedObject(
      .registration, number: seenNumber, storeID: storeID, writer: writer, body: body.bytes
    ).encoded()
  }

  /// Decodes a registration.
  ///
  /// - Throws: `corrupted` for bytes that are not a registration of that writer; `unsupportedFormat` for another format
  ///   version.
  package init(_ bytes: [UInt8], writer: UInt64, storeID: [UInt8]) throws(BlobStorageError) {
    let name = SharedNames.writer(writer)
    let object = try SharedObject(bytes, .registration, storeID: storeID, name: name)
    var (lifeCount, publishedSequence, number, began): (UInt64, UInt32, UInt32, UInt64) = (0, 0, 0, 0)
    let texts = try bridge(object.body) { (raw) throws(BlobStorageError) -> [[UInt8]] in
      var reader = ByteReader(raw)
      lifeCount = try reader.integer()
      publishedSequence = try reader.integer()
      number = try reader.integer()
      began = try reader.integer()
      var texts: [[UInt8]] = []
      for _ in 0..<2 { texts.append(Array(try reader.bytes(Int(try reader.integer(UInt16.self))))) }
      try reader.finish()
      return texts
    }
    guard object.writer == writer, began < Stamp.timeMax,
      let machine = String(validating: texts[0], as: UTF8.self),
      let command = String(validating: texts[1], as: UTF8.self)
    else {
      throw BlobStorageError(
        .corrupted, "The object \(name) is not the registration of that writer.", path: name)
    }
    self.writer = writer
    seenNumber = object.number
    self.lifeCount = lifeCount
    self.publishedSequence = publishedSequence
    process = WriterProcess(machine: machine, number: number, command: command, began: began)
  }
}

/// The process of a writer, for messages.
package struct WriterProcess: Hashable, Sendable {
  package var machine: String
  /// The process ID; 0 if unknown.
  package var number: UInt32
  /// The program, with the tool's command.
  package var command: String
  /// When it registered, in milliseconds since 1970.
  package var began: UInt64

  package init(machine: String, number: UInt32 = 0, command: String = "", began: UInt64 = 0) {
    self.machine = machine
    self.number = number
    self.command = command
    self.began = began
  }

  /// This process, as of now.
  static func own(_ clock: WallClock) -> WriterProcess {
    let process = ProcessInfo.processInfo
    return WriterProcess(
      machine: process.hostName, number: UInt32(clamping: process.processIdentifier),
      command: command(process.arguments), began: clock.now())
  }

  /// The program's name, with the first argument if it is a word. Other arguments may be secret.
  package static func command(_ arguments: [String]) -> String {
    let program = arguments.first?.split(separator: "/").last.map { String($0) } ?? ""
    guard let word = arguments.dropFirst().first, !word.isEmpty,
      word.utf8.allSatisfy({ UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0 })
    else { return program }
    return "\(program) \(word)"
  }

  /// For messages, such as "atlas (process 4711, blobtool import, since 2026-11-25T16:31:25Z)".
  package var text: String {
    guard number > 0 else { return machine }
    let since = Date(timeIntervalSince1970: Double(began / 1_000)).ISO8601Format()
    return "\(machine) (process \(number), \(command.isEmpty ? "" : command + ", ")since \(since))"
  }
}
