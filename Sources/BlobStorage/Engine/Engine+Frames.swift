import Foundation

/// Joining small blobs that arrive together.
extension Engine {
  /// Joins new small blobs whose keys end alike, so that they are stored together. Each blob is among them once.
  ///
  /// - Parameter kind: the codec; nil for the store's.
  func joined(_ items: [CommitItem], by kind: CodecKind?) throws(BlobStorageError) -> [JoinedChunks] {
    let codec = try codec(kind)
    guard codec.kind == .zstd else { return [] }
    var seen: Set<Digest> = []
    var small: [(suffix: ArraySlice<UInt8>, index: Int)] = []
    for (index, item) in items.enumerated() where item.plan.chunks.count == 1 {
      let chunk = item.plan.chunks.head
      guard chunk.isToBeJoined || chunk.encoded.map({ FrameBuilder.takes($0.record) }) ?? false,
        seen.insert(item.plan.digest).inserted
      else { continue }
      small.append((Self.suffix(of: item.key), index))
    }
    small.sort { one, other in
      one.suffix.elementsEqual(other.suffix)
        ? one.index < other.index : one.suffix.lexicographicallyPrecedes(other.suffix)
    }
    var builder = FrameBuilder(codec, codecs)
    var groups: [JoinedChunks] = []
    for (_, index) in small {
      let item = items[index]
      let chunk = item.plan.chunks.head
      let full = try builder.add(
        item.plan.digest, item.data.bytes, features: chunk.encoded?.record.features ?? chunk.features,
        alone: chunk.encoded)
      if let full { groups.append(full) }
    }
    if let last = try builder.end() { groups.append(last) }
    return groups
  }

  /// What stands behind the last dot of a key's last part.
  private static func suffix(of key: [UInt8]) -> ArraySlice<UInt8> {
    guard let end = key.lastIndex(where: { $0 == UInt8(ascii: ".") || $0 == UInt8(ascii: "/") }),
      key[end] == UInt8(ascii: ".")
    else { return [] }
    return key[(end + 1)...]
  }
}
