import CBlobKernels

/// Computes a digest incrementally.
///
/// A value, but not `Sendable`: one thread at a time uses it, and a copy continues independently. Updates may have any
/// length. From 16 KiB they run at full speed.
package struct DigestStream {
  /// Exactly one of the two is set, so that each can be changed in place.
  private var blake3: Blake3State?
  private var sha256: SHA256State?

  package init(_ algorithm: BlobDigest.Algorithm) {
    switch algorithm {
    case .blake3: blake3 = Blake3State()
    case .sha256: sha256 = SHA256State()
    }
  }

  package mutating func update(_ bytes: RawSpan) {
    if blake3 != nil {
      if !isKnownUniquelyReferenced(&blake3) { blake3 = blake3?.copy() }
      blake3?.update(bytes)
    } else {
      if !isKnownUniquelyReferenced(&sha256) { sha256 = sha256?.copy() }
      sha256?.update(bytes)
    }
  }

  /// The digest of all bytes so far. The stream can continue.
  package func finalize() -> BlobDigest {
    blake3?.finalize() ?? (sha256 ?? SHA256State()).finalize()
  }
}

/// Owns the memory of the kernel's state. Only ``DigestStream`` holds one, and copies a shared one before a change.
private final class Blake3State {
  private let memory: UnsafeMutableRawPointer

  init() {
    memory = .allocate(byteCount: bs_blake3_state_size(), alignment: 16)
    bs_blake3_init(OpaquePointer(memory), bs_blake3_level_best())
  }

  private init(copyOf other: Blake3State) {
    memory = .allocate(byteCount: bs_blake3_state_size(), alignment: 16)
    memory.copyMemory(from: other.memory, byteCount: bs_blake3_state_size())
  }

  deinit { memory.deallocate() }

  func copy() -> Blake3State { Blake3State(copyOf: self) }

  func update(_ bytes: RawSpan) {
    bytes.withUnsafeBytes { bs_blake3_update(OpaquePointer(memory), $0.baseAddress, $0.count) }
  }

  func finalize() -> BlobDigest {
    BlobDigest(.blake3) { bs_blake3_finalize(OpaquePointer(memory), $0) }
  }
}
