import BlobStorage

/// The only machine that may collect garbage of a store whose object store lacks conditional put, and so fencing.
///
/// The object `store` holds it behind the header. Format.md, "Objects of a shared store".
package struct Maintainer: Hashable, Sendable {
  private static let beginning = "BLOBMAIN"
  static let identityByteCount = 16

  /// A random number that the maintainer's state folder also holds.
  package var identity: [UInt8]
  /// The machine's name; for people.
  package var machine: String

  package init(identity: [UInt8], machine: String) {
    precondition(identity.count == Self.identityByteCount)
    self.identity = identity
    self.machine = machine
  }

  package func encoded() -> [UInt8] {
    let name = WriterRegistration.nameBytes(machine)
    var writer = ByteWriter(capacity: 30 + name.count)
    writer.raw(Array(Self.beginning.utf8))
    writer.raw(identity)
    writer.integer(UInt16(name.count))
    writer.raw(name)
    writer.checksum()
    return writer.bytes
  }

  /// Decodes the bytes behind the header.
  ///
  /// - Throws: `unsupportedFormat` for anything else, because a later build may have written it.
  package init(_ bytes: [UInt8]) throws(BlobStorageError) {
    let unknown = BlobStorageError(
      .unsupportedFormat, "A later build wrote the bytes behind the store's header: use that build."
    )
    guard bytes.count >= 30, bytes.starts(with: Self.beginning.utf8) else { throw unknown }
    do throws(BlobStorageError) {
      self = try bridge(bytes) { (raw) throws(BlobStorageError) in
        var reader = ByteReader(UnsafeRawBufferPointer(rebasing: raw[8..<(raw.count - 4)]))
        let identity = Array(try reader.bytes(Self.identityByteCount))
        let name = Array(try reader.bytes(Int(try reader.integer(UInt16.self))))
        try reader.finish()
        guard raw.endsWithChecksum, let machine = String(validating: name, as: UTF8.self) else {
          throw unknown
        }
        return Maintainer(identity: identity, machine: machine)
      }
    } catch {
      // This includes a length of the name that does not match the bytes.
      throw unknown
    }
  }
}
