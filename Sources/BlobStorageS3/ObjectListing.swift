import BlobStorage
import BlobStorageSharing

/// Parses a page of a bucket's listing (ListObjectsV2).
package struct ObjectListing {
  package let page: ObjectPage

  /// Parses a response, and removes `keyPrefix` from all names.
  ///
  /// Nil for anything but a listing in byte order: a caller that continues after the last name would miss names that
  /// are out of order.
  package init?(_ body: [UInt8], keyPrefix: String, prefix: String, after: String?) {
    guard let root = Markup(body), root.name == "ListBucketResult", let truncated = root["IsTruncated"],
      truncated == "true" || truncated == "false"
    else { return nil }
    let isEncoded = root["EncodingType"] == "url"
    var entries: [ObjectPage.Entry] = []
    var previous = after
    for child in root.children where child.name == "Contents" {
      guard let text = child["Key"], let key = isEncoded ? PercentEncoding.decode(text) : text,
        let size = child["Size"], let byteCount = Int64(size), byteCount >= 0,
        key.utf8.starts(with: (keyPrefix + prefix).utf8)
      else { return nil }
      // By bytes: a mark at the beginning of a name would join the slash before it into one character.
      let name = String(decoding: key.utf8.dropFirst(keyPrefix.utf8.count), as: UTF8.self)
      if let previous, !previous.utf8.lexicographicallyPrecedes(name.utf8) { return nil }
      previous = name
      entries.append(ObjectPage.Entry(name: name, byteCount: byteCount))
    }
    guard truncated == "false" || !entries.isEmpty else { return nil }
    page = ObjectPage(entries: entries, isTruncated: truncated == "true")
  }
}
