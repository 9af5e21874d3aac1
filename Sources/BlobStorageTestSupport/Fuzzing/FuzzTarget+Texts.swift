import BlobStorage
import BlobStorageTransfer

extension FuzzTarget {
  /// Names that are read from text: digests, versions, packs, numbers, keys.
  static let texts = FuzzTarget(
    "texts",
    seeds: {
      let digest = Digest.of([1] as [UInt8])
      return [
        "\(digest)", "sha256:\(digest.hex)", Stamp(time: 1 << 40, writer: 7).text,
        FuzzedPack.name.fileName, "ff00", "blake3:", "é/\u{301}", "zstd",
      ].map { Array($0.utf8) }
    }
  ) { input in
    let text = String(decoding: input, as: UTF8.self)
    if let digest = Digest(text) { Fuzzing.require(Digest(digest.description) == digest, "digest \(text)") }
    for algorithm in [Digest.Algorithm.blake3, .sha256] {
      guard let digest = Digest(algorithm: algorithm, hex: text) else { continue }
      Fuzzing.require(digest.hex == text.lowercased(), "digits \(text)")
    }
    if let id = BlobVersion.ID(text) {
      Fuzzing.require(id.description == text.lowercased(), "version \(text)")
    }
    if let name = PackName(fileName: text) { Fuzzing.require(name.fileName == text, "pack \(text)") }
    _ = Hex.integer(UInt64.self, text)
    _ = Hex.integer(UInt32.self, text)
    _ = CodecKind(name: text)
    _ = Digest.Algorithm(name: text)
    if let mark = FileMark(metadata: input) {
      Fuzzing.require(FileMark(metadata: mark.metadata) == mark, "metadata of a file")
    }
    if let key = Fuzzing.attempt(
      also: [.invalidArgument], { () throws(BlobStorageError) in try Engine.keyBytes(text) })
    {
      Fuzzing.require(key == Array(text.utf8) && 1...Limits.keyByteCountMax ~= key.count, "key \(text)")
    }
  }

  /// Shell patterns: a pattern, a NUL and a text.
  static let patterns = FuzzTarget(
    "patterns",
    seeds: {
      ["*.log\0a.log", "[!]a-c]?\\*\0xy*", "a/b/\0a/b", "***a***b\0aaaaaaaaaaab", "[\0[", "\\\0\\"].map {
        Array($0.utf8)
      }
    }
  ) { input in
    let parts = input.prefix(2_000).split(separator: 0, maxSplits: 1, omittingEmptySubsequences: false)
    let pattern = String(decoding: parts.first ?? [], as: UTF8.self)
    let text = String(decoding: parts.dropFirst().first ?? [], as: UTF8.self)
    let matches = ShellPattern(pattern).matches(text)
    _ = ShellPattern(pattern).matches(path: text, isFolder: true)
    if !pattern.contains(where: { "*?[\\/".contains($0) }) {
      Fuzzing.require(matches == (pattern == text), "\(pattern) is a pattern of itself alone")
    }
    var quoted = ""
    for character in text { quoted += "\\\(character)" }
    // A combining mark joins the backslash before it into a character of its own.
    let isQuoted = quoted.count == 2 * text.count && !text.contains("/")
    Fuzzing.require(!isQuoted || ShellPattern(quoted).matches(text), "quoted \(text)")
  }
}
