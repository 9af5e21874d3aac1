import BlobStorage
import CBlobKernels
import SystemPackage

/// Reads and writes the extended attributes of an open file or folder.
enum ExtendedAttributes {
  /// All that this user may read, by name; none where the file system has none.
  static func read(
    _ descriptor: Int32, _ path: @autoclosure () -> FilePath
  ) throws(BlobStorageError) -> [FileAttributes.Extended] {
    // Nearly all files have none, which one call says.
    let count = uninterrupted { bs_list_attributes(descriptor, nil, 0) }
    if count <= 0 { return [] }
    let list = try filled(count, path()) { bs_list_attributes(descriptor, $0, $1) }
    var extended: [FileAttributes.Extended] = []
    for name in list.split(separator: 0) {
      let text = [CChar](terminating: name.map { UInt8(bitPattern: $0) })
      let count = uninterrupted { bs_get_attribute(descriptor, text, nil, 0) }
      // Every user sees the names of some that only root can read.
      if count < 0 { continue }
      let value = try filled(count, path()) { bs_get_attribute(descriptor, text, $0, $1) }
      extended.append(
        FileAttributes.Extended(
          name: name.map { UInt8(bitPattern: $0) }, value: value.map { UInt8(bitPattern: $0) }))
    }
    return extended.sorted { $0.name.lexicographicallyPrecedes($1.name) }
  }

  /// Makes the extended attributes those given. What this user may not set stays as it is.
  ///
  /// - Returns: names that could not be set.
  static func write(
    _ extended: [FileAttributes.Extended], _ descriptor: Int32, _ path: @autoclosure () -> FilePath
  ) throws(BlobStorageError) -> [String] {
    var failed: [String] = []
    let known = try read(descriptor, path())
    if known == extended { return [] }
    for attribute in known where !extended.contains(where: { $0.name == attribute.name }) {
      _ = uninterrupted { bs_remove_attribute(descriptor, [CChar](terminating: attribute.name)) }
    }
    for attribute in extended where !known.contains(attribute) {
      let outcome = uninterrupted {
        attribute.value.withUnsafeBytes {
          bs_set_attribute(descriptor, [CChar](terminating: attribute.name), $0.baseAddress, $0.count)
        }
      }
      if outcome < 0 { failed.append(String(decoding: attribute.name, as: UTF8.self)) }
    }
    return failed
  }

  /// What a call writes into room for `count` bytes, or more if it takes more by now.
  private static func filled(
    _ count: Int, _ path: @autoclosure () -> FilePath, _ call: (UnsafeMutablePointer<CChar>?, Int) -> Int
  ) throws(BlobStorageError) -> [CChar] {
    var capacity = count
    while true {
      var bytes = [CChar](repeating: 0, count: max(capacity, 1))
      let outcome = bytes.withUnsafeMutableBufferPointer { buffer in
        uninterrupted { call(buffer.baseAddress, buffer.count) }
      }
      if outcome == -Int(Errno.outOfRange.rawValue), capacity < FileAttributes.extendedByteCountMax {
        capacity = max(capacity * 2, 64)
        continue
      }
      if outcome < 0 { throw .systemCall("read the attributes of", path: path(), errno: Int32(-outcome)) }
      return Array(bytes[..<outcome])
    }
  }
}
