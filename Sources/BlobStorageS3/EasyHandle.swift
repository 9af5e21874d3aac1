import BlobStorage
import CCurl

/// Owns a libcurl handle, with its connection to the server.
///
/// One thread at a time uses it. If an option cannot be set, the next request fails.
final class EasyHandle: @unchecked Sendable {
  // Unchecked: the pool lends it to one request at a time.
  private let handle: UnsafeMutableRawPointer
  private let errorText: UnsafeMutablePointer<CChar>
  private let connection: UnsafeMutablePointer<curl_socket_t>
  private var headers: UnsafeMutablePointer<curl_slist>?
  private var failure = CURLE_OK
  /// When the last request ended.
  private(set) var lastUse = ContinuousClock.now

  /// Why libcurl is unusable; nil if it is usable.
  private static let refusal = bs_curl_start().map { String(cString: $0) }

  /// Loads libcurl on first use.
  ///
  /// - Throws: `io` if there is no libcurl, or no memory.
  init() throws(BlobStorageError) {
    if let refusal = Self.refusal {
      throw BlobStorageError(.io, "Cannot load libcurl (\(refusal)): install the package libcurl4.")
    }
    guard let handle = keepingStandardDescriptors(bs_curl_open) else {
      throw BlobStorageError(.io, "libcurl has no memory: close other programs and try again.")
    }
    self.handle = handle
    errorText = .allocate(capacity: Int(CURL_ERROR_SIZE))
    connection = .allocate(capacity: 1)
    connection.initialize(to: CURL_SOCKET_BAD)
  }

  deinit {
    bs_curl_close(handle)
    bs_curl_free(headers)
    errorText.deallocate()
    connection.deallocate()
  }

  /// Resets all options, and keeps the connection.
  func reset() {
    bs_curl_reset(handle)
    bs_curl_free(headers)
    headers = nil
    failure = CURLE_OK
    errorText.pointee = 0
    require(bs_curl_set_error_buffer(handle, errorText))
    require(bs_curl_set_connection(handle, connection))
  }

  func set(_ option: CURLoption, _ value: Int) { require(bs_curl_set_long(handle, option, value)) }

  func set(_ option: CURLoption, _ text: String) { require(bs_curl_set_text(handle, option, text)) }

  /// Removes curl's default. Does nothing if this curl lacks the option.
  func clear(_ option: CURLoption) { _ = bs_curl_set_text(handle, option, nil) }

  /// Sets the length of the request's body.
  func setBodyByteCount(_ byteCount: Int64) {
    require(bs_curl_set_offset(handle, CURLOPT_INFILESIZE_LARGE, curl_off_t(byteCount)))
  }

  /// Adds a header line. A name with a colon and no value removes a header that curl would send.
  func addHeader(_ line: String) {
    guard let longer = bs_curl_append(headers, line) else { return require(CURLE_OUT_OF_MEMORY) }
    headers = longer
  }

  /// Performs the request that the options describe, and returns curl's code.
  func perform(_ transfer: Transfer) -> CURLcode {
    require(bs_curl_set_headers(handle, headers))
    transfer.handle = self
    defer { transfer.handle = nil }
    return withExtendedLifetime(transfer) {
      require(
        bs_curl_set_callbacks(handle, Transfer.callbacks, Unmanaged.passUnretained(transfer).toOpaque()))
      let code = failure == CURLE_OK ? bs_curl_perform(handle) : failure
      lastUse = .now
      return code
    }
  }

  /// Sends a TCP acknowledgement of a response's headers at once.
  ///
  /// Some servers, such as Ceph's, send a short body only after it (Nagle's algorithm), and Linux delays it by 40 ms on
  /// a reused connection.
  func acknowledge() { bs_curl_acknowledge(connection.pointee) }

  /// A number that curl reports about the last request; 0 if unknown.
  func information(_ number: CURLINFO) -> Int { bs_curl_long(handle, number) }

  /// Describes the failure of the last request.
  func text(_ code: CURLcode) -> String {
    errorText.pointee == 0 ? String(cString: bs_curl_text(code)) : String(cString: errorText)
  }

  private func require(_ code: CURLcode) { if failure == CURLE_OK { failure = code } }
}
