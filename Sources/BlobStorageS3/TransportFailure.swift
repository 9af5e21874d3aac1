import BlobStorage
import CCurl
import SystemPackage

/// Why a request got no response.
package enum TransportFailure: Error, Sendable {
  /// No server listens, the host cannot be reached, or the proxy's host is unknown.
  case refused(String)
  /// The host's name is unknown.
  case unknownHost
  /// The server's certificate is not trusted, or is another host's.
  case certificate(isOtherHost: Bool)
  /// The proxy did not let the request through.
  case proxy(String)
  /// The request timed out.
  case timeout
  /// The connection ended before the response did, or curl failed in a way that has no case here.
  case cut(String)
  /// The response is longer than its limit.
  case tooLong
  /// This side ended the request: the body could not be read, or the task was cancelled.
  case local(BlobStorageError)

  /// Whether a retry may succeed.
  package var isTransient: Bool {
    switch self {
    case .refused, .unknownHost, .timeout, .cut: true
    case .certificate, .proxy, .tooLong, .local: false
    }
  }

  /// Whether the server cannot have seen any part of the request.
  package var isBeforeContact: Bool {
    switch self {
    case .refused, .unknownHost, .certificate, .proxy: true
    case .timeout, .cut, .tooLong, .local: false
    }
  }

  /// Translates curl's code.
  ///
  /// - Parameters:
  ///   - text: curl's description of the failure.
  ///   - errorNumber: The system's `errno`; 0 if there was none.
  ///   - proxyStatus: The proxy's response to `CONNECT`; 0 without a proxy.
  package init(_ code: CURLcode, text: String, errorNumber: Int = 0, proxyStatus: Int = 0) {
    let reason = errorNumber == 0 ? text : "\(Errno(rawValue: CInt(truncatingIfNeeded: errorNumber)))"
    switch code {
    case _ where proxyStatus == 407: self = .proxy("it requires a user and a password")
    case _ where proxyStatus >= 300: self = .proxy("it did not let the connection through")
    case CURLE_COULDNT_RESOLVE_HOST: self = .unknownHost
    case CURLE_COULDNT_RESOLVE_PROXY: self = .refused("the proxy's host is not known")
    case CURLE_COULDNT_CONNECT: self = .refused(reason)
    // With all TLS libraries, curl's text for a wrong host has "does not match target host name" or the like.
    case CURLE_PEER_FAILED_VERIFICATION: self = .certificate(isOtherHost: text.contains("target host"))
    case CURLE_SSL_CACERT_BADFILE: self = .certificate(isOtherHost: false)
    case CURLE_OPERATION_TIMEDOUT: self = .timeout
    default: self = .cut(reason)
    }
  }
}
