// SHA-256 comes from the system: CryptoKit on Apple platforms, libcrypto elsewhere. Only this file knows which.
#if canImport(CryptoKit)
  import CryptoKit
#else
  import CCrypto
#endif

/// Owns the state of a SHA-256 (FIPS 180-4). Only ``DigestStream`` holds one, and copies a shared one before a change.
final class SHA256State {
  #if canImport(CryptoKit)
    private var function = SHA256()

    static func digest(of bytes: RawSpan) -> BlobDigest {
      bytes.withUnsafeBytes { SHA256.hash(data: $0) }.withUnsafeBytes {
        BlobDigest(algorithm: .sha256, bytes: $0)
      }
    }

    func copy() -> SHA256State {
      let copy = SHA256State()
      copy.function = function
      return copy
    }

    func update(_ bytes: RawSpan) { bytes.withUnsafeBytes { function.update(bufferPointer: $0) } }

    func finalize() -> BlobDigest {
      function.finalize().withUnsafeBytes { BlobDigest(algorithm: .sha256, bytes: $0) }
    }
  #else
    private let context: OpaquePointer

    /// Fetched once, because a fetch takes longer than the digest of a small chunk.
    nonisolated(unsafe) private static let function: OpaquePointer = {
      // Threads may still compute digests while the process exits.
      OPENSSL_init_crypto(UInt64(OPENSSL_INIT_NO_ATEXIT), nil)
      guard let function = EVP_MD_fetch(nil, "SHA256", nil) else {
        preconditionFailure("libcrypto has no SHA-256: check openssl.cnf")
      }
      return function
    }()

    static func digest(of bytes: RawSpan) -> BlobDigest {
      BlobDigest(.sha256) { target in
        bytes.withUnsafeBytes { require(EVP_Digest($0.baseAddress, $0.count, target, nil, function, nil)) }
      }
    }

    init() {
      context = Self.newContext()
      Self.require(EVP_DigestInit_ex(context, Self.function, nil))
    }

    private init(copyOf other: SHA256State) {
      context = Self.newContext()
      Self.require(EVP_MD_CTX_copy_ex(context, other.context))
    }

    deinit { EVP_MD_CTX_free(context) }

    func copy() -> SHA256State { SHA256State(copyOf: self) }

    func update(_ bytes: RawSpan) {
      bytes.withUnsafeBytes { Self.require(EVP_DigestUpdate(context, $0.baseAddress, $0.count)) }
    }

    func finalize() -> BlobDigest {
      // A finalized context cannot continue, so finalize a copy.
      let end = copy()
      return BlobDigest(.sha256) { Self.require(EVP_DigestFinal_ex(end.context, $0, nil)) }
    }

    private static func newContext() -> OpaquePointer {
      guard let context = EVP_MD_CTX_new() else { preconditionFailure("there is no memory for a SHA-256") }
      return context
    }

    /// SHA-256 fails only if memory runs out.
    fileprivate static func require(_ outcome: CInt) {
      precondition(outcome == 1, "there is no memory for a SHA-256")
    }
  #endif
}

extension BlobDigest {
  /// The authentication code of a message, which only a holder of `key` can compute: HMAC (RFC 2104) with SHA-256.
  package static func authenticationCode(of message: [UInt8], key: [UInt8]) -> [UInt8] {
    #if canImport(CryptoKit)
      Array(HMAC<SHA256>.authenticationCode(for: message, using: SymmetricKey(data: key)))
    #else
      let code = BlobDigest(.sha256) {
        let code = HMAC(EVP_sha256(), key, CInt(key.count), message, message.count, $0, nil)
        SHA256State.require(code == nil ? 0 : 1)
      }
      return code.withUnsafeBytes { Array($0) }
    #endif
  }
}
