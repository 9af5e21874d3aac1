import AsyncHTTPClient
import BlobStorage
import NIOCore
import NIOPosix
import NIOSSL
import SystemPackage

/// Why a request got no response.
package enum TransportFailure: Error, Sendable {
  /// No server listens, or the host cannot be reached.
  case refused(String)
  /// The host's name is unknown.
  case unknownHost
  /// The certificate is not trusted, or another host's.
  case certificate(isOtherHost: Bool)
  /// The proxy did not let the request through.
  case proxy(String)
  /// The request timed out.
  case timeout
  /// The connection ended before the response did.
  case cut(String)
  /// The response is longer than its limit.
  case tooLong
  /// The body could not be read.
  case source(BlobStorageError)

  /// Whether a retry may succeed.
  package var isTransient: Bool {
    switch self {
    case .refused, .unknownHost, .timeout, .cut: true
    case .certificate, .proxy, .tooLong, .source: false
    }
  }

  /// Whether the server cannot have seen any part of the request.
  package var isBeforeContact: Bool {
    switch self {
    case .refused, .unknownHost, .certificate, .proxy: true
    case .timeout, .cut, .tooLong, .source: false
    }
  }

  /// Translates the client's error.
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
    case .proxyAuthenticationRequired: self = .proxy("it requires a user and a password")
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

/// Describes system errors.
private enum IOErrorText {
  static func text(_ number: CInt) -> String { "\(Errno(rawValue: number))" }

  /// Whether the connection failed. Otherwise the server may have received data.
  static func isOfConnecting(_ number: CInt) -> Bool {
    [.connectionRefused, .networkUnreachable, .noRouteToHost, .addressNotAvailable]
      .contains(Errno(rawValue: number))
  }
}
