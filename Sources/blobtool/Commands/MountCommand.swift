import ArgumentParser
import BlobStorage
import BlobStorageMount
import Dispatch
import Foundation

/// `mount`: shows a store as files, until it is interrupted or the folder is unmounted.
struct MountCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "mount", abstract: "Shows the store as files in a folder, for reading.",
    discussion: """
      The folder current has a file for each key, and versions/KEY one for each version of it. The command runs until \
      it is interrupted, or the folder is unmounted with `fusermount3 -u FOLDER` or `umount FOLDER`. Imports and gc may \
      run meanwhile; current shows new versions within a second. A read of damaged bytes fails, and a line on standard \
      error names them. With --json, a line on standard output says when the folder is mounted. Needs Linux with FUSE: \
      the packages libfuse3-dev to build, and fuse3 to mount without root.
      """)

  @Argument(help: "An empty folder.", completion: .directory)
  var folder: String

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func validate() throws {
    guard !folder.isEmpty else { throw ValidationError("the folder's name is empty") }
  }

  func perform(on store: BlobStore) async throws {
    let mount = try StoreMount(store, at: folder)
    let shared = shared
    let closing = Self.endsWithTerminal()
    defer { closing?.cancel() }
    try await mount.run { path in
      shared.mention("mounted \(path.printable); press Ctrl-C to unmount.")
      if shared.json { try? JSONText.print(Output(folder: path)) }
    } report: {
      StandardError.say($0.printable)
    }
  }

  /// Makes SIGHUP end the command as SIGTERM does, unless it is ignored, so that a closed terminal leaves no mount.
  private static func endsWithTerminal() -> (any DispatchSourceSignal)? {
    guard signal(SIGHUP, SIG_IGN) == nil else { return nil }
    let source = DispatchSource.makeSignalSource(signal: SIGHUP)
    source.setEventHandler { kill(getpid(), SIGTERM) }
    source.resume()
    return source
  }

  private struct Output: Encodable {
    var folder: String
  }
}
