import Foundation

/// Joining chunks that arrive together.
extension Engine {
  /// Joins new chunks of blobs whose keys end alike, so that they are stored together. Each chunk is among them once.
  ///
  /// - Parameter kind: the codec; nil for the store's.
  package func joined(_ items: [CommitItem], by kind: CodecKind?) throws(BlobStorageError) -> [JoinedChunks] {
    let codec = try codec(kind)
    guard codec.kind == .zstd else { return [] }
    var seen: Set<Digest> = []
    var order = items.indices.map { (suffix: Self.suffix(of: items[$0].key), index: $0) }
    order.sort { one, other in
      one.suffix.elementsEqual(other.suffix)
        ? one.index < other.index : one.suffix.lexicographicallyPrecedes(other.suffix)
    }
    var builder = FrameBuilder(codec, codecs)
    var groups: [JoinedChunks] = []
    for (_, index) in order {
      let item = items[index]
      for chunk in item.plan.chunks where FrameBuilder.takes(chunk) && seen.insert(chunk.digest).inserted {
        let full = try builder.add(
          chunk.digest, item.data.bytes.extracting(chunk.range),
          features: chunk.encoded?.record.features ?? chunk.features, alone: chunk.encoded)
        if let full { groups.append(full) }
      }
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
