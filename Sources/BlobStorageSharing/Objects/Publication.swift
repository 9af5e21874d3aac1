import BlobStorage

/// Makes a sealed pack part of a shared store.
package enum Publication {
  package enum Outcome: Hashable, Sendable {
    /// It is, or was: one that was published earlier may have been collected since.
    case published
    /// A collector has fenced the writer: nothing of it is published from here on.
    case fenced
    /// There is another pack of that name: two of this writer exist, as after a machine was copied while it ran.
    case foreign
  }

  private static let partByteCount: Int64 = 4 << 20

  /// Puts a pack if there is none of its name. Everything before it of its writer has been published.
  package static func publish(
    _ name: PackName, _ content: ObjectContent, _ objects: any ObjectStore, storeID: [UInt8],
    weaknesses: Weaknesses = []
  ) throws(BlobStorageError) -> Outcome {
    let path = SharedNames.pack(name)
    if try objects.put(path, content, ifAbsent: true) == .stored { return .published }
    if weaknesses.contains(.takesExistsForStored) { return .published }
    // An own try before, whose answer was lost; or a fence. What is not there any more was no fence: they stay.
    guard let (tail, byteCount) = try objects.tail(path, byteCount: Fence.byteCount) else {
      return .published
    }
    if byteCount == Int64(Fence.byteCount) {
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
  /// How long it is.
  package var byteCount: Int64 {
    switch self {
    case .bytes(let bytes): Int64(bytes.count)
    case .file(_, let byteCount): byteCount
    }
  }

  /// A part of it; fewer bytes where a file is shorter than it says.
  package func bytes(_ range: Range<Int64>) throws(BlobStorageError) -> [UInt8] {
    switch self {
    case .bytes(let bytes): return Array(bytes[Int(range.lowerBound)..<Int(range.upperBound)])
    case .file(let file, _): return try file.bytesThere(at: range.lowerBound, range.count)
    }
  }
}
