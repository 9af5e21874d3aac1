import Foundation

/// The folder `Fixtures` at the top of the package.
enum Fixtures {
  static func url(_ path: String) -> URL {
    URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../../Fixtures/" + path)
      .standardizedFileURL
  }

  static func data(_ path: String) throws -> Data { try Data(contentsOf: url(path)) }
}
