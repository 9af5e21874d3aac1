/// A server's response.
package struct HTTPAnswer: Sendable {
  package var status: Int
  /// The first value of each header, by its name in lower case.
  package var headers: [String: String]
  package var body: [UInt8]

  /// The first header named `name`.
  package func header(_ name: String) -> String? { headers[name.lowercased()] }

  /// The length that the response announces for its body.
  var byteCount: Int? { header("Content-Length").flatMap { Int($0) } }
}
