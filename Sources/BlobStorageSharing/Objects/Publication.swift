import BlobStorage

/// Makes a sealed pack part of a shared store.
package enum Publication {
  package enum Outcome: Hashable, Sendable {
    /// The pack is published. If an earlier attempt stored it, a collector may have removed it since.
    case published
    /// A collector has fenced the writer, which can publish nothing more.
    case fenced
    /// Another pack has this name: two copies of this writer exist, as after a virtual machine was cloned.
    case foreign
  }

  private static let partByteCount: Int64 = 4 << 20

  /// Publishes a pack by conditional put. All earlier packs of its writer must be published.
  package static func publish(
    _ name: PackName, _ content: ObjectContent, _ objects: any ObjectStore, storeID: [UInt8],
    weaknesses: Weaknesses = []
  ) throws(BlobStorageError) -> Outcome {
    let path = SharedNames.pack(name)
    if try objects.put(path, content, ifAbsent: true) == .stored { return .published }
    if weaknesses.contains(.takesExistsForStored) { return .published }
    // The object is an earlier attempt's or a fence. If it is gone it was no fence, because fences stay.
    guard let (tail, byteCount) = try objects.tail(path, byteCount: Fence.byteCount) else {
      return .published
    }
    if Fence.hasLength(byteCount) {
      _ = try Fence(tail, name, storeID: storeID)
      return .fenced
    }
    return try isSame(content, path, byteCount, objects) ? .published : .foreign
  }

  private static func isSame(
    _ content: ObjectContent, _ path: String, _ byteCount: Int64, _ objects: any ObjectStore
  ) throws(BlobStorageError) -> Bool {
    guard content.byteCount == byteCount else { return false }
    var offset: Int64 = 0
    while offset < byteCount {
      let range = offset..<min(byteCount, offset + partByteCount)
      guard let theirs = try objects.get(path, range) else { return true }
      guard try content.bytes(range) == theirs else { return false }
      offset = range.upperBound
    }
    return true
  }
}

extension ObjectContent {
  /// The length of the content.
  package var byteCount: Int64 {
    switch self {
    case .bytes(let bytes): Int64(bytes.count)
    case .file(_, let byteCount): byteCount
    }
  }

  /// Reads a range of the content, fewer bytes if the file is too short.
  package func bytes(_ range: Range<Int64>) throws(BlobStorageError) -> [UInt8] {
    switch self {
    case .bytes(let bytes): return Array(bytes[Int(range.lowerBound)..<Int(range.upperBound)])
    case .file(let file, _): return try file.bytesThere(at: range.lowerBound, range.count)
    }
  }
}
