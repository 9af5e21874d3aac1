import BlobStorage
import CBlobKernels
import SystemPackage

/// The extended attributes of an open file or folder, or of a symbolic link.
enum ExtendedAttributes {
  case file(Int32)
  case link([CChar], directory: Int32)

  /// All attributes that this user may read, sorted by name; empty if the file system supports none.
  func read(_ path: @autoclosure () -> FilePath) throws(BlobStorageError) -> [FileAttributes.Extended] {
    // Nearly all files have none, and one call shows it.
    let count = uninterrupted { list(nil, 0) }
    if count <= 0 { return [] }
    let names = try Self.filled(count, path()) { list($0, $1) }
    var extended: [FileAttributes.Extended] = []
    for name in names.split(separator: 0) {
      let text = [CChar](terminating: name.map { UInt8(bitPattern: $0) })
      let count = uninterrupted { get(text, nil, 0) }
      // Every user sees the names of some attributes that only root can read.
      if count < 0 { continue }
      let value = try Self.filled(count, path()) { get(text, $0, $1) }
      extended.append(
        FileAttributes.Extended(
          name: name.map { UInt8(bitPattern: $0) }, value: value.map { UInt8(bitPattern: $0) }))
    }
    return extended.sorted { $0.name.lexicographicallyPrecedes($1.name) }
  }

  /// Replaces the extended attributes with those given. Leaves alone what this user may not set.
  ///
  /// - Returns: whether all could be set.
  func write(
    _ extended: [FileAttributes.Extended], _ path: @autoclosure () -> FilePath
  ) throws(BlobStorageError) -> Bool {
    var areSet = true
    let known = try read(path())
    for attribute in known where !extended.contains(where: { $0.name == attribute.name }) {
      _ = uninterrupted { remove([CChar](terminating: attribute.name)) }
    }
    for attribute in extended where !known.contains(attribute) {
      let outcome = uninterrupted {
        attribute.value.withUnsafeBytes { set([CChar](terminating: attribute.name), $0) }
      }
      if outcome < 0 { areSet = false }
    }
    return areSet
  }

  private func list(_ names: UnsafeMutablePointer<CChar>?, _ capacity: Int) -> Int {
    switch self {
    case .file(let descriptor): bs_list_attributes(descriptor, names, capacity)
    case .link(let link, let directory): bs_list_link_attributes_at(directory, link, names, capacity)
    }
  }

  private func get(_ name: [CChar], _ value: UnsafeMutableRawPointer?, _ capacity: Int) -> Int {
    switch self {
    case .file(let descriptor): bs_get_attribute(descriptor, name, value, capacity)
    case .link(let link, let directory): bs_get_link_attribute_at(directory, link, name, value, capacity)
    }
  }

  private func set(_ name: [CChar], _ value: UnsafeRawBufferPointer) -> Int {
    switch self {
    case .file(let descriptor): bs_set_attribute(descriptor, name, value.baseAddress, value.count)
    case .link(let link, let directory):
      bs_set_link_attribute_at(directory, link, name, value.baseAddress, value.count)
    }
  }

  private func remove(_ name: [CChar]) -> Int {
    switch self {
    case .file(let descriptor): bs_remove_attribute(descriptor, name)
    case .link(let link, let directory): bs_remove_link_attribute_at(directory, link, name)
    }
  }

  /// The bytes that a call writes, in room for `count` bytes, or more if the call needs more by now.
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

extension InputFile {
  func extendedAttributes() throws(BlobStorageError) -> [FileAttributes.Extended] {
    try withDescriptor { (descriptor) throws(BlobStorageError) in
      try ExtendedAttributes.file(descriptor).read(path)
    }
  }
}
