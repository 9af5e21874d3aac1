import BlobStorageDropIn
import Foundation
import Testing

@Suite struct UserFoldersTests {
  private func folders(_ environment: [String: String]) -> (library: String, documents: String) {
    UserFolders.$environment.withValue(environment) { (UserFolders.library.path, UserFolders.documents.path) }
  }

  @Test("without settings the folders are in the user's home")
  func defaults() {
    let (library, documents) = folders(["HOME": "/home/ama"])
    #expect(library == "/home/ama/.local/share")
    #expect(documents == "/home/ama/Documents")
  }

  @Test("XDG_DATA_HOME is taken when it is absolute")
  func dataHome() {
    #expect(folders(["HOME": "/home/ama", "XDG_DATA_HOME": "/data"]).library == "/data")
    #expect(folders(["HOME": "/home/ama", "XDG_DATA_HOME": "data"]).library == "/home/ama/.local/share")
    #expect(folders(["HOME": "/home/ama", "XDG_DATA_HOME": ""]).library == "/home/ama/.local/share")
  }

  @Test("XDG_DOCUMENTS_DIR and XDG_CONFIG_HOME are taken when they are absolute, and of two lines the last")
  func documentsFolder() throws {
    let home = try Folder()
    try home.write(
      "XDG_DOCUMENTS_DIR=\"/first\"\nXDG_DOCUMENTS_DIR=\"/last\"\n", to: "config/user-dirs.dirs")
    var environment = home.environment
    environment["XDG_CONFIG_HOME"] = home.url.appendingPathComponent("config").path
    #expect(folders(environment).documents == "/last")
    environment["XDG_DOCUMENTS_DIR"] = "/docs"
    #expect(folders(environment).documents == "/docs")
    environment["XDG_DOCUMENTS_DIR"] = "docs"
    #expect(folders(environment).documents == "/last")
    environment["XDG_CONFIG_HOME"] = "config"
    #expect(folders(environment).documents == home.url.path + "/Documents")
  }

  @Test(
    "user-dirs.dirs says where Documents are",
    arguments: [
      (#"XDG_DOCUMENTS_DIR="$HOME/Dokumente""#, "Dokumente"), (#"  XDG_DOCUMENTS_DIR="/docs""#, nil),
      (#"XDG_DOCUMENTS_DIR="$HOME/a \"b\"""#, #"a "b""#), (#"#XDG_DOCUMENTS_DIR="$HOME/x""#, "Documents"),
      (#"XDG_DOCUMENTS_DIR=$HOME/x"#, "Documents"), (#"XDG_DOCUMENTS_DIR="x""#, "Documents"),
      (#"XDG_DOCUMENTS_DIR="$HOME/x"#, "Documents"),
    ] as [(String, String?)])
  func userDirs(line: String, name: String?) throws {
    let home = try Folder()
    try home.write(
      "# made by a program\nXDG_MUSIC_DIR=\"$HOME/Music\"\n\(line)\n", to: ".config/user-dirs.dirs")
    #expect(folders(home.environment).documents == (name.map { home.url.path + "/" + $0 } ?? "/docs"))
  }
}
