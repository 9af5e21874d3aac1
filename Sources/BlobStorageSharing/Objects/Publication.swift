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
  private static let attemptCountMax = 8

  /// Publishes a pack by conditional put. All earlier packs of its writer must be published.
  ///
  /// - Parameter known: a state of the log.
  /// - Throws: `corrupted` if an object as short as a fence has the name, but is not its fence.
  package static func publish(
    _ name: PackName, _ content: ObjectContent, _ objects: any ObjectStore, storeID: [UInt8],
    known: Collections = Collections(), weaknesses: Weaknesses = []
  ) throws(BlobStorageError) -> Outcome {
    let path = SharedNames.pack(name)
    for _ in 0..<attemptCountMax {
      if try objects.put(path, content, ifAbsent: true) == .stored { return .published }
      if weaknesses.contains(.takesExistsForStored) { return .published }
      if let outcome = try outcome(name, content, objects, storeID) { return outcome }
      // It has gone. A collector deletes an earlier attempt's object only after the log has removed the pack.
      let log = try CollectionLog(objects, storeID: storeID).read(after: known)
      if log.removed.contains(name) { return .published }
    }
    throw BlobStorageError(
      .io, "\(objects.place) says that \(path) exists and that it does not: check the object store.",
      path: path)
  }

  /// The outcome of a put that found the name taken, by an earlier attempt or a fence. Nil if the object has gone.
  private static func outcome(
    _ name: PackName, _ content: ObjectContent, _ objects: any ObjectStore, _ storeID: [UInt8]
  ) throws(BlobStorageError) -> Outcome? {
    let path = SharedNames.pack(name)
    guard let (tail, byteCount) = try objects.tail(path, byteCount: Fence.byteCount) else { return nil }
    if Fence.hasLength(byteCount) {
      _ = try Fence(tail, name, storeID: storeID)
      return .fenced
    }
    guard content.byteCount == byteCount else { return .foreign }
    var offset: Int64 = 0
    while offset < byteCount {
      let range = offset..<min(byteCount, offset + partByteCount)
      guard let theirs = try objects.get(path, range) else { return nil }
      guard try content.bytes(range) == theirs else { return .foreign }
      offset = range.upperBound
    }
    return .published
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
