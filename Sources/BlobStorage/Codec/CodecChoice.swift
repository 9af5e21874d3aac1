/// A codec and its level.
package struct CodecChoice: Hashable, Sendable {
  /// The codec.
  package let kind: CodecKind
  /// The codec's own level; 0 for `none`.
  package let level: Int

  /// A codec at a level.
  ///
  /// - Throws: `invalidArgument` if the codec has no such level.
  package init(_ kind: CodecKind, level: CodecLevel = .default) throws(BlobStorageError) {
    let levels = kind.levels
    let number =
      switch level {
      case .fast: levels.lowerBound
      case .default: kind.levelDefault
      case .max: levels.upperBound
      case .number(let number): number
      }
    guard levels.contains(number) else {
      let range =
        levels.count == 1
        ? "\(levels.lowerBound)" : "a number from \(levels.lowerBound) to \(levels.upperBound)"
      throw BlobStorageError(
        .invalidArgument, "level \(number): codec \(kind.name) takes fast, default, max or \(range)")
    }
    self.init(kind: kind, validLevel: number)
  }

  private init(kind: CodecKind, validLevel: Int) {
    self.kind = kind
    self.level = validLevel
  }

  /// Keeps every chunk plain.
  package static let none = Self(kind: .none, validLevel: CodecKind.none.levelDefault)
  /// Zstandard at its default level.
  package static let zstd = Self(kind: .zstd, validLevel: CodecKind.zstd.levelDefault)
  /// zlib at its default level.
  package static let zlib = Self(kind: .zlib, validLevel: CodecKind.zlib.levelDefault)
}

extension CodecKind {
  /// The valid levels. Above 19, zstd needs memory that no chunk benefits from.
  package var levels: ClosedRange<Int> {
    switch self {
    case .none: 0...0
    case .zstd: 1...19
    case .zlib: 1...9
    }
  }

  /// The default level.
  package var levelDefault: Int {
    switch self {
    case .none: 0
    case .zstd: 4
    case .zlib: 6
    }
  }
}
