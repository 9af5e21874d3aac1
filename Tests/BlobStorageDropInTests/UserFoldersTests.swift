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
