import BlobStorage

/// A place in a bucket: `s3://BUCKET/PREFIX`.
public struct S3Location: Hashable, Sendable, CustomStringConvertible {
  /// The bucket's name.
  public let bucket: String
  /// The prefix of the store's objects, without a `/` at its end; empty for the whole bucket.
  public let prefix: String

  /// Parses a place, which begins with `s3://`.
  ///
  /// - Throws: `invalidArgument` for another beginning or an invalid bucket name. Also for a prefix of more than 512
  ///   bytes, with control characters, or with a part that is empty, `.` or `..`: a proxy might rewrite it.
  public init(_ text: String) throws(BlobStorageError) {
    // A password before the bucket's name must not reach a log.
    let shown = text.contains("@") ? "What is named" : "'\(text)'"
    guard text.hasPrefix(Self.scheme) else {
      throw BlobStorageError(
        .invalidArgument, "\(shown) is not a place in a bucket: write s3://BUCKET/PREFIX.")
    }
    let rest = text.dropFirst(Self.scheme.count)
    let bucket = rest.prefix { $0 != "/" }
    var prefix = rest.dropFirst(bucket.count + 1)
    if prefix.last == "/", prefix != "/" { prefix.removeLast() }
    guard Self.isBucket(bucket) else {
      throw BlobStorageError(
        .invalidArgument,
        "\(shown) has no bucket name after s3://: a name has 3 to 63 letters, digits, '-', '.' and '_'.")
    }
    let parts = prefix.isEmpty ? [] : prefix.split(separator: "/", omittingEmptySubsequences: false)
    guard !parts.contains(where: { $0.isEmpty || $0 == "." || $0 == ".." }),
      prefix.unicodeScalars.allSatisfy({ $0.value >= 0x20 && $0.value != 0x7F }),
      prefix.utf8.count <= Self.prefixByteCountMax
    else {
      throw BlobStorageError(
        .invalidArgument,
        "The prefix '\(prefix)' cannot be used: it has at most \(Self.prefixByteCountMax) bytes, no control "
          + "characters and no part that is empty, '.' or '..'.")
    }
    self.bucket = String(bucket)
    self.prefix = String(prefix)
  }

  private init(bucket: String, prefix: String) {
    self.bucket = bucket
    self.prefix = prefix
  }

  /// The place that contains this one; nil for a whole bucket.
  var parent: S3Location? {
    guard !prefix.isEmpty else { return nil }
    let end = prefix.lastIndex(of: "/") ?? prefix.startIndex
    return S3Location(bucket: bucket, prefix: String(prefix[..<end]))
  }

  public var description: String { Self.scheme + (prefix.isEmpty ? bucket : "\(bucket)/\(prefix)") }

  /// Adds the prefix to a name.
  package func key(_ name: String) -> String { prefix.isEmpty ? name : "\(prefix)/\(name)" }

  /// The longest prefix. An object's name may have 1,024 bytes.
  private static let prefixByteCountMax = 512
  private static let scheme = "s3://"

  // Accepts '_' and upper case, which AWS refuses in new buckets, because other object stores accept them.
  private static func isBucket(_ text: Substring) -> Bool {
    (3...63).contains(text.utf8.count) && text.first != "." && text.first != "-"
      && text.utf8.allSatisfy { $0.isLetterOrDigit(or: "-._") }
  }
}
