import BlobStorage

/// The attributes of a file, symbolic link or folder that an import keeps, apart from bytes and times.
public struct FileAttributes: Sendable, Hashable {
  public enum Kind: Int, Sendable, Hashable {
    case file
    /// A symbolic link: the blob is its target.
    case link
    case folder
  }

  public struct Owner: Sendable, Hashable {
    public var user: UInt32
    public var group: UInt32
    /// Empty where the machine had no name for the number.
    public var userName: String
    public var groupName: String

    public init(user: UInt32, group: UInt32, userName: String = "", groupName: String = "") {
      self.user = user
      self.group = group
      self.userName = userName
      self.groupName = groupName
    }
  }

  /// An extended attribute, such as an ACL or a capability.
  public struct Extended: Sendable, Hashable {
    public var name: [UInt8]
    public var value: [UInt8]

    public init(name: [UInt8], value: [UInt8]) {
      self.name = name
      self.value = value
    }
  }

  public var kind: Kind
  /// The lower twelve mode bits.
  public var permissions: UInt16
  /// Nil if the import kept no owners.
  public var owner: Owner?
  /// Sorted by name.
  public var extended: [Extended] = []
  /// The device of a file or link with several names; nil for others. Equal device and inode mean the same file.
  public internal(set) var device: UInt64?
  /// Whether the key escapes bytes of the name. See ``EscapedName``.
  package var isNameEscaped = false
  /// The digest of the blob with the extended attributes, if they are too long for metadata.
  var extendedDigest: [UInt8]?

  public init(kind: Kind, permissions: UInt16) {
    self.kind = kind
    self.permissions = permissions
  }

  /// Takes all attributes from a status, except extended attributes, which need the open file.
  init(_ status: FileStatus, isNameEscaped: Bool, owners: OwnerNames?) {
    kind =
      switch status.kind {
      case .symbolicLink: .link
      case .directory: .folder
      default: .file
      }
    // The mode of a link has no meaning, and systems report different ones.
    permissions = kind == .link ? 0o777 : status.permissions
    owner = owners?.owner(of: status)
    if kind != .folder, status.linkCount > 1 { device = status.device }
    self.isNameEscaped = isNameEscaped
  }
}

// MARK: Format.md, "Metadata of imported files"

extension FileAttributes {
  private enum Flag {
    static let kind: UInt64 = 3
    static let isNameEscaped: UInt64 = 4
    static let owner: UInt64 = 8
    static let device: UInt64 = 16
    static let extended: UInt64 = 32
    static let extendedDigest: UInt64 = 64
    static let all: UInt64 = 127
  }

  static let nameByteCountMax = 255
  static let extendedByteCountMax = 16 << 20

  func write(to writer: inout ByteWriter) {
    var flags = UInt64(kind.rawValue)
    if isNameEscaped { flags |= Flag.isNameEscaped }
    if owner != nil { flags |= Flag.owner }
    if device != nil { flags |= Flag.device }
    if extendedDigest != nil {
      flags |= Flag.extendedDigest
    } else if !extended.isEmpty {
      flags |= Flag.extended
    }
    writer.varint(flags)
    writer.varint(Int(permissions))
    if let owner {
      writer.varint(UInt64(owner.user))
      writer.varint(UInt64(owner.group))
      for name in [owner.userName, owner.groupName] { writer.text(Array(name.utf8)) }
    }
    if let device { writer.varint(device) }
    if let extendedDigest {
      writer.raw(extendedDigest)
    } else if !extended.isEmpty {
      Self.write(extended, to: &writer)
    }
  }

  init(_ reader: inout ByteReader) throws(BlobStorageError) {
    let flags = try reader.varint()
    guard flags & ~Flag.all == 0, let kind = Kind(rawValue: Int(flags & Flag.kind)),
      flags & (Flag.extended | Flag.extendedDigest) != Flag.extended | Flag.extendedDigest
    else { throw BlobStorageError(.unsupportedFormat, "A later build wrote attributes of a file.") }
    self.kind = kind
    isNameEscaped = flags & Flag.isNameEscaped != 0
    permissions = UInt16(try reader.varint(atMost: 0o7777))
    if flags & Flag.owner != 0 {
      owner = Owner(
        user: UInt32(try reader.varint(atMost: Int(UInt32.max))),
        group: UInt32(try reader.varint(atMost: Int(UInt32.max))),
        userName: String(decoding: try reader.text(atMost: Self.nameByteCountMax), as: UTF8.self),
        groupName: String(decoding: try reader.text(atMost: Self.nameByteCountMax), as: UTF8.self))
    }
    if flags & Flag.device != 0 { device = try reader.varint() }
    if flags & Flag.extendedDigest != 0 {
      extendedDigest = Array(try reader.bytes(BlobDigest.byteCount))
    } else if flags & Flag.extended != 0 {
      extended = try Self.extended(&reader)
    }
  }

  private static func write(_ extended: [Extended], to writer: inout ByteWriter) {
    writer.varint(extended.count)
    for attribute in extended {
      writer.text(attribute.name)
      writer.text(attribute.value)
    }
  }

  private static func extended(_ reader: inout ByteReader) throws(BlobStorageError) -> [Extended] {
    // Each attribute takes at least two bytes.
    let count = try reader.varint(atMost: reader.remainingByteCount / 2)
    var extended: [Extended] = []
    for _ in 0..<count {
      let name = Array(try reader.text(atMost: nameByteCountMax))
      guard !name.isEmpty, !name.contains(0) else {
        throw BlobStorageError(.corrupted, "The name of an extended attribute is empty, or has a NUL.")
      }
      extended.append(Extended(name: name, value: Array(try reader.text(atMost: extendedByteCountMax))))
    }
    return extended
  }

  /// The bytes of a blob with extended attributes.
  static func bytes(of extended: [Extended]) -> [UInt8] {
    var writer = ByteWriter()
    write(extended, to: &writer)
    return writer.bytes
  }

  static func extended(_ bytes: [UInt8]) throws(BlobStorageError) -> [Extended] {
    try bridge(bytes) { (raw) throws(BlobStorageError) in
      var reader = ByteReader(raw)
      let extended = try extended(&reader)
      try reader.finish()
      return extended
    }
  }
}

extension ByteWriter {
  /// Writes a length and the bytes.
  mutating func text(_ bytes: [UInt8]) {
    varint(bytes.count)
    raw(bytes)
  }
}

extension ByteReader {
  /// Reads a length and that many bytes.
  mutating func text(atMost max: Int) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    try bytes(try varint(atMost: max))
  }
}
