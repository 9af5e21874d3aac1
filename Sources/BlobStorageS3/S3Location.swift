import BlobStorage

/// A place in a bucket: `s3://BUCKET/PREFIX`.
public struct S3Location: Hashable, Sendable, CustomStringConvertible {
  /// The bucket's name.
  public let bucket: String
  /// What the names of all objects of the store begin with, without a `/` at its end; empty for the whole bucket.
  public let prefix: String

  /// The place that `text` names, which begins with `s3://`.
  ///
  /// - Throws: `invalidArgument` for a name that is no bucket's, and for a prefix with an empty part, `.` or `..`,
  ///   which what lies between could take for another place.
  public init(_ text: String) throws(BlobStorageError) {
    // A secret before the bucket's name, as before a host's, must not appear in a log.
    let shown = text.contains("@") ? "What is named" : "'\(text)'"
    guard text.hasPrefix(Self.scheme) else {
      throw BlobStorageError(
        .invalidArgument, "\(shown) is no place in a bucket: it is written s3://BUCKET/PREFIX.")
    }
    let rest = text.dropFirst(Self.scheme.count)
    let bucket = rest.prefix { $0 != "/" }
    var prefix = rest.dropFirst(bucket.count + 1)
    if prefix.last == "/", prefix != "/" { prefix.removeLast() }
    guard Self.isBucket(bucket) else {
      throw BlobStorageError(
        .invalidArgument,
        "\(shown) has no bucket's name behind s3://: 3 to 63 letters, digits, '-', '.' and '_' are one.")
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

  public var description: String { Self.scheme + (prefix.isEmpty ? bucket : "\(bucket)/\(prefix)") }

  /// The name in the bucket of what is `name` below the prefix.
  package func key(_ name: String) -> String { prefix.isEmpty ? name : "\(prefix)/\(name)" }

  /// Of the 1,024 that an object's name may have.
  private static let prefixByteCountMax = 512
  private static let scheme = "s3://"

  // As wide as object stores are: AWS takes no '_' and no upper case in new buckets.
  private static func isBucket(_ text: Substring) -> Bool {
    (3...63).contains(text.utf8.count) && text.first != "." && text.first != "-"
      && text.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"):
          true
        default: false
        }
      }
  }
}
