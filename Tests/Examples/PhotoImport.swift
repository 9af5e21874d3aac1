import BlobStorage
import BlobStorageTransfer
import Foundation
import Synchronization

// A photo import with progress. Equal files are stored once, and a second import reads only what has changed. Problems
// of single files are shown by their codes.

/// What a progress bar shows.
final class ProgressBar: Sendable {
  private let lastShare = Mutex(0.0)

  var handler: ProgressHandler {
    { [self] progress in
      guard progress.totalByteCount > 0 else { return }
      let share = Double(progress.doneByteCount) / Double(progress.totalByteCount)
      lastShare.withLock { $0 = max($0, share) }
    }
  }

  var text: String { "\(Int(lastShare.withLock { $0 } * 100)) %" }
}

func problem(of file: SkippedFile) -> String {
  switch file.code {
  case .permissionDenied: "You may not read \(file.path)."
  case .sourceFailed: "\(file.path) changed while it was read: import it again."
  case .notRegular: "\(file.path) is no file."
  default: "\(file.path): \(file.reason)"
  }
}

@Sendable func importPhotos(in folder: URL) async throws {
  let photos = folder.appending(path: "photos")
  try makePhotos(in: photos)
  let store = try await BlobStore.openOrCreate(at: folder.appending(path: "photos.store"))
  let bar = ProgressBar()
  let options = ImportOptions(prefix: "2026/", excluded: ["*.tmp"])
  let report = try await store.importFiles([photos.path], options: options, progress: bar.handler)
  print("\(bar.text) of \(report.fileCount) files, \(report.duplicateByteCount) bytes were duplicates")
  for file in report.skipped { print(problem(of: file)) }

  // The next day one photo is new.
  try Data((0..<20_000).map { UInt8(truncatingIfNeeded: $0 &* 7 >> 3) })
    .write(to: photos.appending(path: "new.jpg"))
  let again = try await store.importFiles([photos.path], options: options)
  print("\(again.unchangedFileCount) unchanged, \(again.newFileCount) new")

  let exported = try await store.exportFiles(
    to: folder.appending(path: "restored").path, options: ExportOptions(prefix: "2026/", stripped: "2026/"))
  print("restored \(exported.fileCount) files")
  try await store.close()
}

private func makePhotos(in folder: URL) throws {
  try FileManager.default.createDirectory(
    at: folder.appending(path: "album"), withIntermediateDirectories: true)
  for number in 0..<12 {
    // Every third photo is a copy of the first.
    let seed = number % 3 == 0 ? 0 : number
    let bytes = Data((0..<100_000).map { UInt8(truncatingIfNeeded: ($0 &* $0 &+ seed &* 977) >> 5) })
    try bytes.write(to: folder.appending(path: "album/\(number).jpg"))
  }
  try Data("half".utf8).write(to: folder.appending(path: "upload.tmp"))
  try FileManager.default.createSymbolicLink(
    at: folder.appending(path: "latest.jpg"), withDestinationURL: folder.appending(path: "album/11.jpg"))
}
