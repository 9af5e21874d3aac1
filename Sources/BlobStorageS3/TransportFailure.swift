import AsyncHTTPClient
import BlobStorage
import NIOCore
import NIOPosix
import NIOSSL
import SystemPackage

/// Why there is no answer.
package enum TransportFailure: Error, Sendable {
  /// No server listens there, or the host cannot be reached.
  case refused(String)
  /// The host's name is not known.
  case unknownHost
  /// The certificate is not one to trust, or another host's.
  case certificate(isOtherHost: Bool)
  /// The proxy did not let the request through.
  case proxy(String)
  /// It took too long.
  case timeout
  /// The connection ended before the answer did.
  case cut(String)
  /// The answer is longer than anything that was asked for.
  case tooLong
  /// What was to be sent could not be read.
  case source(BlobStorageError)

  /// Whether the same request may be answered the next time.
  package var isTransient: Bool {
    switch self {
    case .refused, .unknownHost, .timeout, .cut: true
    case .certificate, .proxy, .tooLong, .source: false
    }
  }

  /// Whether the server cannot have seen anything of the request.
  package var isBeforeContact: Bool {
    switch self {
    case .refused, .unknownHost, .certificate, .proxy: true
    case .timeout, .cut, .tooLong, .source: false
    }
  }

  /// What the client's error means.
  package init(_ error: any Error) {
    switch error {
    case let error as TransportFailure: self = error
    case let error as HTTPClientError: self.init(client: error)
    case let error as NIOConnectionError: self.init(connection: error)
    case let error as NIOSSLExtraError:
      self = .certificate(isOtherHost: error == .failedToValidateHostname)
    case let error as NIOSSLError:
      if case .handshakeFailed = error, "\(error)".contains("CERTIFICATE") {
        self = .certificate(isOtherHost: "\(error)".contains("HOSTNAME"))
      } else {
        self = .cut("TLS: \(error)")
      }
    case let error as IOError:
      let reason = IOErrorText.text(error.errnoCode)
      self = IOErrorText.isOfConnecting(error.errnoCode) ? .refused(reason) : .cut(reason)
    case is ChannelError: self = .timeout
    default: self = .cut("\(error)")
    }
  }

  private init(client error: HTTPClientError) {
    switch error {
    case .connectTimeout, .readTimeout, .writeTimeout, .deadlineExceeded, .tlsHandshakeTimeout,
      .getConnectionFromPoolTimeout, .httpProxyHandshakeTimeout, .socksHandshakeTimeout:
      self = .timeout
    case .proxyAuthenticationRequired: self = .proxy("it wants a user and a password")
    case .invalidProxyResponse: self = .proxy("it did not let the connection through")
    default: self = .cut(error.shortDescription)
    }
  }

  private init(connection error: NIOConnectionError) {
    if error.connectionErrors.isEmpty, error.dnsAError != nil || error.dnsAAAAError != nil {
      self = .unknownHost
    } else if let first = error.connectionErrors.first?.error {
      let reason = (first as? IOError).map { IOErrorText.text($0.errnoCode) } ?? "\(first)"
      self = if case .connectTimeout? = first as? ChannelError { .timeout } else { .refused(reason) }
    } else {
      self = .refused("\(error)")
    }
  }
}

/// What the system says about an error.
private enum IOErrorText {
  static func text(_ number: CInt) -> String { "\(Errno(rawValue: number))" }

  /// Whether there was no connection yet: otherwise it is unknown what has arrived.
  static func isOfConnecting(_ number: CInt) -> Bool {
    [.connectionRefused, .networkUnreachable, .noRouteToHost, .addressNotAvailable]
      .contains(Errno(rawValue: number))
  }
}
