/// Containers built by hand, with parts of any bytes.
package enum SampleContainer {
  /// A JPEG: EXIF with these bytes, if any, tables, and a picture.
  package static func jpeg(exif: [UInt8]?, picture: [UInt8]) -> [UInt8] {
    func marked(_ marker: UInt8, _ bytes: [UInt8]) -> [UInt8] {
      [0xFF, marker] + big(bytes.count + 2, 2) + bytes
    }
    var bytes: [UInt8] = [0xFF, 0xD8] + marked(0xE0, Array("JFIF\0".utf8) + [1, 1, 0, 0, 1, 0, 1, 0, 0])
    if let exif { bytes += marked(0xE1, Array("Exif\0\0".utf8) + exif) }
    bytes += marked(0xDB, Array(repeating: 16, count: 65)) + marked(0xC0, [8, 1, 0, 1, 0, 1, 1, 0x11, 0])
    return bytes + jpegScan + picture + [0xFF, 0xD9]
  }

  /// The marker before the picture, with its segment.
  package static let jpegScan: [UInt8] = [0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0]

  /// A PNG: optional text before and after a picture, which is in parts of at most `pictureByteCountMax` bytes.
  package static func png(
    text: [UInt8]? = nil, picture: [UInt8], pictureByteCountMax: Int = 8_192, trailer: [UInt8]? = nil
  ) -> [UInt8] {
    func chunk(_ type: String, _ bytes: [UInt8]) -> [UInt8] {
      // No reader checks the checksum.
      big(bytes.count, 4) + Array(type.utf8) + bytes + [1, 2, 3, 4]
    }
    var bytes: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]
    bytes += chunk("IHDR", big(256, 4) + big(256, 4) + [8, 2, 0, 0, 0])
    if let text { bytes += chunk("tEXt", Array("Comment\0".utf8) + text) }
    for start in stride(from: 0, to: picture.count, by: pictureByteCountMax) {
      bytes += chunk("IDAT", Array(picture[start..<min(start + pictureByteCountMax, picture.count)]))
    }
    if let trailer { bytes += chunk("tEXt", Array("date\0".utf8) + trailer) }
    return bytes + chunk("IEND", [])
  }

  /// A ZIP of these members, stored without compression, and its directory.
  ///
  /// - Parameter hasLongLengths: whether lengths are in the fields for 4 GiB and more.
  package static func zip(
    _ members: [(name: String, bytes: [UInt8])], hasLongLengths: Bool = false
  ) -> [UInt8] {
    var bytes: [UInt8] = []
    var directory: [UInt8] = []
    for (name, content) in members {
      let lengths =
        hasLongLengths
        ? [UInt8](repeating: 0xFF, count: 8) : little(content.count, 4) + little(content.count, 4)
      // An unknown field precedes the one with the lengths.
      let extra =
        hasLongLengths
        ? [0x55, 0x54, 1, 0, 7] + [1, 0, 16, 0] + little(content.count, 8) + little(content.count, 8) : []
      let common = [0, 0, 0, 0] + [0, 0, 0, 0, 1, 2, 3, 4] + lengths
      let offset = bytes.count
      bytes += [0x50, 0x4B, 3, 4, 45, 0] + common + little(name.utf8.count, 2) + little(extra.count, 2)
      bytes += Array(name.utf8) + extra + content
      directory += [0x50, 0x4B, 1, 2, 45, 0, 45, 0] + common + little(name.utf8.count, 2)
      directory += [UInt8](repeating: 0, count: 12) + little(offset, 4) + Array(name.utf8)
    }
    let end: [UInt8] = [0x50, 0x4B, 5, 6, 0, 0, 0, 0] + little(members.count, 2) + little(members.count, 2)
    return bytes + directory + end + little(directory.count, 4) + little(bytes.count, 4) + [0, 0]
  }

  /// MP4 boxes, after the one that every MP4 begins with.
  ///
  /// - Parameter hasLongLengths: whether their lengths take 8 bytes.
  package static func boxes(_ boxes: [(type: String, bytes: [UInt8])], hasLongLengths: Bool = false)
    -> [UInt8]
  {
    var bytes = big(16, 4) + Array("ftypisom".utf8) + [0, 0, 2, 0]
    for (type, content) in boxes {
      if hasLongLengths {
        bytes += big(1, 4) + Array(type.utf8) + big(16 + content.count, 8) + content
      } else {
        bytes += big(8 + content.count, 4) + Array(type.utf8) + content
      }
    }
    return bytes
  }

  private static func little(_ value: Int, _ byteCount: Int) -> [UInt8] {
    (0..<byteCount).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
  }

  private static func big(_ value: Int, _ byteCount: Int) -> [UInt8] { little(value, byteCount).reversed() }
}
