import Foundation

/// The folders in which the originals keep data by default on this platform.
package enum UserFolders {
  /// The environment variables to use instead of the process's own: for tests.
  @TaskLocal package static var environment: [String: String]?

  /// The user's Library folder; on systems other than Apple's `$XDG_DATA_HOME`, or `~/.local/share`.
  package static var library: URL {
    #if canImport(Darwin)
      if environment == nil, let url = known(.libraryDirectory) { return url }
    #endif
    return absolute(variables["XDG_DATA_HOME"])
      ?? home.appendingPathComponent(".local/share", isDirectory: true)
  }

  /// The user's Documents folder; on systems other than Apple's the one in `user-dirs.dirs`, or `~/Documents`.
  package static var documents: URL {
    #if canImport(Darwin)
      if environment == nil, let url = known(.documentDirectory) { return url }
    #endif
    return absolute(variables["XDG_DOCUMENTS_DIR"]) ?? configuredDocuments
      ?? home.appendingPathComponent("Documents", isDirectory: true)
  }

  /// Where the original finds the Library folder, if that is not ``library``: Foundation on Linux has places of its own
  /// and ignores some variables.
  static var otherLibrary: URL? { other(.libraryDirectory, than: library) }

  /// Where the original finds Documents, if that is not ``documents``.
  static var otherDocuments: URL? { other(.documentDirectory, than: documents) }

  private static func other(_ folder: FileManager.SearchPathDirectory, than own: URL) -> URL? {
    // Where Foundation has no Library folder, the originals need one all the same: as on Apple's systems.
    let library = URL(fileURLWithPath: NSHomeDirectory(), isDirectory: true).appendingPathComponent("Library")
    let known =
      environment == nil ? known(folder) ?? (folder == .libraryDirectory ? library : nil) : originals?[folder]
    guard let url = known else { return nil }
    return url.standardized.path.utf8.elementsEqual(own.standardized.path.utf8) ? nil : url
  }

  /// Foundation's folders in a test that has an environment of its own.
  @TaskLocal package static var originals: [FileManager.SearchPathDirectory: URL]?

  private static var variables: [String: String] { environment ?? ProcessInfo.processInfo.environment }

  private static var home: URL {
    absolute(variables["HOME"]) ?? URL(fileURLWithPath: NSHomeDirectory(), isDirectory: true)
  }

  private static func known(_ folder: FileManager.SearchPathDirectory) -> URL? {
    FileManager.default.urls(for: folder, in: .userDomainMask).first
  }

  /// The XDG specifications require that relative paths are ignored.
  private static func absolute(_ path: String?) -> URL? {
    guard let path, path.hasPrefix("/") else { return nil }
    return URL(fileURLWithPath: path, isDirectory: true)
  }

  /// The line `XDG_DOCUMENTS_DIR="$HOME/…"` or `="/…"` of the file that xdg-user-dirs keeps.
  private static var configuredDocuments: URL? {
    let folder =
      absolute(variables["XDG_CONFIG_HOME"]) ?? home.appendingPathComponent(".config", isDirectory: true)
    // Nil means that the file is missing or unreadable, which is not an error: the default holds.
    guard let text = try? String(contentsOf: folder.appendingPathComponent("user-dirs.dirs"), encoding: .utf8)
    else { return nil }
    var found: URL?
    for line in text.split(whereSeparator: \.isNewline) {
      let line = line.drop { $0 == " " || $0 == "\t" }
      guard line.hasPrefix("XDG_DOCUMENTS_DIR=\"") else { continue }
      found = quotedPath(line.dropFirst("XDG_DOCUMENTS_DIR=\"".count)) ?? found
    }
    return found
  }

  private static func quotedPath(_ text: Substring) -> URL? {
    var rest = text
    var path = ""
    if rest.hasPrefix("$HOME") {
      path = home.path
      rest = rest.dropFirst("$HOME".count)
    }
    var isEscaped = false
    for character in rest {
      if !isEscaped, character == "\"" { return absolute(path) }
      isEscaped = !isEscaped && character == "\\"
      if !isEscaped { path.append(character) }
    }
    return nil
  }
}
