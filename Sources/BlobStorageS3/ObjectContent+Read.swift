import BlobStorage
import BlobStorageSharing
import SystemPackage

extension ObjectContent {
  /// Fills a buffer with the bytes from `offset` on, and returns their number: fewer only at the end.
  ///
  /// - Throws: `corrupted` if the file is shorter than `byteCount`.
  func read(
    into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> Int {
    let target = UnsafeMutableRawBufferPointer(
      rebasing: buffer[..<Int(min(Int64(buffer.count), byteCount - offset))])
    switch self {
    case .bytes(let bytes):
      let start = Int(offset)
      bytes.withUnsafeBytes { target.copyMemory(from: .init(rebasing: $0[start..<start + target.count])) }
    case .file(let file, let byteCount):
      guard try file.read(into: target, at: offset) == target.count else {
        throw BlobStorageError(
          .corrupted, "'\(file.path)' is shorter than the \(byteCount) bytes to send.",
          path: file.path.string)
      }
    }
    return target.count
  }

  /// The SHA-256 of all bytes, in hexadecimal.
  func sha256() throws(BlobStorageError) -> String {
    let buffer = UnsafeMutableRawBufferPointer.allocate(
      byteCount: Int(min(max(1, byteCount), 512 << 10)), alignment: 16)
    defer { buffer.deallocate() }
    var stream = DigestStream(.sha256)
    var offset: Int64 = 0
    while offset < byteCount {
      let count = try read(into: buffer, at: offset)
      stream.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]).bytes)
      offset += Int64(count)
    }
    return stream.finalize().withUnsafeBytes { Hex.text($0) }
  }
}
