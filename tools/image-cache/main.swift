import BlobStorage
import Foundation

// An image cache: PNG, JPEG and other files are kept as they are, bit for bit, and a thumbnail of each is made once.
//
//   swift run image-cache FOLDER BYTES IMAGE...
//
// IMAGE_CACHE_THUMBNAILER is the shell command that makes a thumbnail of what it reads; without it, ImageMagick's
// `convert - -thumbnail 128x128 jpeg:-` (apt-get install imagemagick). Run twice: the second time nothing is made.

let words = CommandLine.arguments
guard words.count > 3, let byteCountMax = Int64(words[2]) else {
  FileHandle.standardError.write(Data("usage: image-cache FOLDER BYTES IMAGE...\n".utf8))
  exit(64)
}
let command =
  ProcessInfo.processInfo.environment["IMAGE_CACHE_THUMBNAILER"] ?? "convert - -thumbnail 128x128 jpeg:-"

/// A thumbnail of the image in a file.
@Sendable func thumbnail(of path: String) throws -> Data {
  let process = Process()
  process.executableURL = URL(fileURLWithPath: "/bin/sh")
  process.arguments = ["-c", command]
  process.standardInput = try FileHandle(forReadingFrom: URL(fileURLWithPath: path))
  let output = Pipe()
  process.standardOutput = output
  try process.run()
  let data = output.fileHandleForReading.readDataToEndOfFile()
  process.waitUntilExit()
  guard process.terminationStatus == 0, !data.isEmpty else { throw CocoaError(.fileReadCorruptFile) }
  return data
}

let cache = try await BlobCache.open(at: words[1], limits: CacheLimits(byteCountMax: byteCountMax))
var failedCount = 0
for path in words.dropFirst(3) {
  do {
    let image = try await cache.value(Data.self, forKey: "image/\(path)") {
      print("reading \(path)")
      return try Data(contentsOf: URL(fileURLWithPath: path))
    }
    // Small and dear to make: it outlives the image itself.
    let small = try await cache.value(Data.self, forKey: "thumbnail/128/\(path)", priority: .high) {
      print("shrinking \(path)")
      return try thumbnail(of: path)
    }
    print("\(path): \(image.count) bytes, thumbnail \(small.count)")
  } catch {
    failedCount += 1
    FileHandle.standardError.write(Data("\(path): \(error)\n".utf8))
  }
}
let statistics = try await cache.statistics()
print("\(statistics.keyCount) keys, \(statistics.diskByteCount) of \(byteCountMax) bytes on disk")
try await cache.close()
exit(failedCount == 0 ? 0 : 1)
