import CSSL
import Foundation
import SystemPackage

/// A socket on loopback that takes connections, each on a thread of its own.
final class ServerSocket: Sendable {
  let port: Int
  private let descriptor: CInt

  /// - Parameter serve: Called with each connection, which ends with the call.
  init(certificate: ServerCertificate? = nil, serve: @escaping @Sendable (ServerConnection) -> Void) throws {
    let context = try certificate.map { try ServerContext($0) }
    let descriptor = socket(AF_INET, Self.stream, 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isBound = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(descriptor, $0, length) == 0 && listen(descriptor, 128) == 0
          && getsockname(descriptor, $0, &length) == 0
      }
    }
    guard isBound else { throw Errno(rawValue: errno) }
    self.descriptor = descriptor
    port = Int(UInt16(bigEndian: address.sin_port))
    Thread.detachNewThread {
      while true {
        let accepted = accept(descriptor, nil, nil)
        // The socket was shut down. Any other failure is temporary: the process may have no free descriptor for some
        // time, and its clients wait.
        if accepted < 0, errno == EINVAL { break }
        guard accepted >= 0 else {
          Thread.sleep(forTimeInterval: 0.001)
          continue
        }
        Thread.detachNewThread {
          let connection = ServerConnection(accepted, context)
          if connection.begin() { serve(connection) }
          connection.close()
        }
      }
      close(descriptor)
    }
  }

  // Ends the thread that takes connections. It closes the descriptor.
  deinit { shutdown(descriptor, CInt(SHUT_RDWR)) }

  #if canImport(Glibc)
    private static let stream = CInt(SOCK_STREAM.rawValue)
  #else
    private static let stream = SOCK_STREAM
  #endif
}

/// The server's end of a connection, with or without TLS. One thread uses it.
final class ServerConnection {
  private let descriptor: CInt
  private let session: OpaquePointer?
  private var received: [UInt8] = []

  fileprivate init(_ descriptor: CInt, _ context: ServerContext?) {
    self.descriptor = descriptor
    session = context.flatMap { SSL_new($0.context) }
  }

  /// Begins TLS, if the server has a certificate.
  fileprivate func begin() -> Bool {
    // The client may have gone. This thread has no use for the signal.
    var signals = sigset_t()
    sigemptyset(&signals)
    sigaddset(&signals, SIGPIPE)
    pthread_sigmask(SIG_BLOCK, &signals, nil)
    guard let session else { return true }
    return SSL_set_fd(session, descriptor) == 1 && SSL_accept(session) == 1
  }

  fileprivate func close() {
    SSL_free(session)
    Foundation.close(descriptor)
  }

  /// The bytes up to and with `end`; nil if the connection ends before.
  func read(through end: [UInt8]) -> [UInt8]? {
    while true {
      if let range = received.firstRange(of: end) {
        defer { received.removeFirst(range.upperBound) }
        return Array(received[..<range.upperBound])
      }
      guard readMore() else { return nil }
    }
  }

  /// So many bytes; nil if the connection ends before.
  func read(count: Int) -> [UInt8]? {
    while received.count < count { guard readMore() else { return nil } }
    defer { received.removeFirst(count) }
    return Array(received[..<count])
  }

  /// Writes the bytes; false if the connection has ended.
  @discardableResult
  func write(_ bytes: [UInt8]) -> Bool {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { rest in
        session.map { Int(SSL_write($0, rest.baseAddress, CInt(rest.count))) }
          ?? Foundation.write(descriptor, rest.baseAddress, rest.count)
      }
      guard count > 0 else { return false }
      rest.removeFirst(count)
    }
    return true
  }

  private func readMore() -> Bool {
    let bytes = [UInt8](unsafeUninitializedCapacity: 64 << 10) { buffer, count in
      let base = buffer.baseAddress
      count = max(
        0,
        session.map { Int(SSL_read($0, base, CInt(buffer.count))) }
          ?? Foundation.read(descriptor, base, buffer.count))
    }
    received += bytes
    return !bytes.isEmpty
  }
}

/// What all connections of a server with TLS share.
private final class ServerContext: @unchecked Sendable {
  // Unchecked: OpenSSL lets threads share a context.
  let context: OpaquePointer

  struct Unusable: Error {}

  init(_ certificate: ServerCertificate) throws {
    guard let context = SSL_CTX_new(TLS_server_method()) else { throw Unusable() }
    self.context = context
    // OpenSSL keeps the pointer of a buffer that it reads from.
    let parsed = Array(certificate.chain.utf8).withUnsafeBytes { text in
      let buffer = BIO_new_mem_buf(text.baseAddress, CInt(text.count))
      defer { BIO_free(buffer) }
      return PEM_read_bio_X509(buffer, nil, nil, nil)
    }
    let parsedKey = Array(certificate.key.utf8).withUnsafeBytes { text in
      let buffer = BIO_new_mem_buf(text.baseAddress, CInt(text.count))
      defer { BIO_free(buffer) }
      return PEM_read_bio_PrivateKey(buffer, nil, nil, nil)
    }
    defer {
      X509_free(parsed)
      EVP_PKEY_free(parsedKey)
    }
    guard SSL_CTX_use_certificate(context, parsed) == 1, SSL_CTX_use_PrivateKey(context, parsedKey) == 1
    else {
      throw Unusable()
    }
  }

  deinit { SSL_CTX_free(context) }
}
