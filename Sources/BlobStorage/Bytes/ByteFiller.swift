/// Puts integers and bytes one behind the other, little-endian, into memory that was made for them.
package struct ByteFiller {
  private var rest: UnsafeMutableRawBufferPointer

  /// Fills `memory` from its start.
  init(_ memory: UnsafeMutableRawBufferPointer) { rest = memory }

  /// Bytes that are still to be filled.
  var remainingByteCount: Int { rest.count }

  /// Puts an integer.
  package mutating func integer<T: FixedWidthInteger & BitwiseCopyable>(_ value: T) {
    next(MemoryLayout<T>.size).storeBytes(of: value.littleEndian, as: T.self)
  }

  /// Puts bytes as they are.
  package mutating func raw(_ bytes: UnsafeRawBufferPointer) { next(bytes.count).copyMemory(from: bytes) }

  /// Puts bytes as they are.
  package mutating func raw(_ bytes: [UInt8]) { bytes.withUnsafeBytes { raw($0) } }

  /// Puts `count` zero bytes.
  package mutating func zeros(_ count: Int) {
    let place = next(count)
    for index in place.indices { place[index] = 0 }
  }

  private mutating func next(_ byteCount: Int) -> UnsafeMutableRawBufferPointer {
    let place = UnsafeMutableRawBufferPointer(rebasing: rest[..<byteCount])
    rest = UnsafeMutableRawBufferPointer(rebasing: rest[byteCount...])
    return place
  }
}

extension [UInt8] {
  /// The bytes that `fill` puts: exactly so many.
  package init(byteCount: Int, by fill: (inout ByteFiller) -> Void) {
    self.init(unsafeUninitializedCapacity: byteCount) { buffer, count in
      var filler = ByteFiller(
        UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: byteCount))
      fill(&filler)
      precondition(filler.remainingByteCount == 0, "the announced number of bytes is put")
      count = byteCount
    }
  }
}
