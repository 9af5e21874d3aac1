/// The available bytes of a blob from one offset on. Reads nothing outside of them.
struct PartWindow {
  private let bytes: UnsafeRawBufferPointer

  init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

  var byteCount: Int { bytes.count }

  /// One byte; nil if it is not available.
  func byte(at offset: Int) -> UInt8? { offset >= 0 && offset < bytes.count ? bytes[offset] : nil }

  /// A big-endian integer; nil if it is not completely available.
  func big<T: FixedWidthInteger>(_ type: T.Type, at offset: Int) -> T? {
    load(type, offset).map(T.init(bigEndian:))
  }

  /// A little-endian integer; nil if it is not completely available.
  func little<T: FixedWidthInteger>(_ type: T.Type, at offset: Int) -> T? {
    load(type, offset).map(T.init(littleEndian:))
  }

  func starts(with magic: [UInt8], at offset: Int = 0) -> Bool {
    magic.indices.allSatisfy { byte(at: offset + $0) == magic[$0] }
  }

  private func load<T: FixedWidthInteger>(_ type: T.Type, _ offset: Int) -> T? {
    guard offset >= 0, bytes.count - offset >= MemoryLayout<T>.size else { return nil }
    return bytes.loadUnaligned(fromByteOffset: offset, as: type)
  }
}
