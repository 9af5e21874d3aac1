// Puts, reads and deletes objects of a pack's length, and prints the rates: WireTrial s3://BUCKET/PREFIX COUNT BYTES WIDTH
import BlobStorage
import BlobStorageS3
import Foundation
import SystemPackage

/// Runs calls on so many threads at once and returns the seconds that all of them took.
func timed(_ count: Int, _ width: Int, _ body: @escaping @Sendable (Int) throws -> Void) -> Double {
  let begin = ContinuousClock.now
  let group = DispatchGroup()
  for thread in 0..<width {
    group.enter()
    Thread {
      for index in stride(from: thread, to: count, by: width) {
        do { try body(index) } catch {
          FileHandle.standardError.write(Data("\(error)\n".utf8))
          exit(1)
        }
      }
      group.leave()
    }.start()
  }
  group.wait()
  return (ContinuousClock.now - begin) / .seconds(1)
}

let arguments = CommandLine.arguments
guard arguments.count == 5, let count = Int(arguments[2]), let byteCount = Int64(arguments[3]),
  let width = Int(arguments[4])
else {
  FileHandle.standardError.write(Data("WireTrial s3://BUCKET/PREFIX COUNT BYTES WIDTH\n".utf8))
  exit(64)
}
let store = S3ObjectStore(try S3Client(try S3Configuration(location: try S3Location(arguments[1]))))
let path = FileManager.default.temporaryDirectory.appending(path: "wire-trial-\(UUID().uuidString)").path
var generator = SystemRandomNumberGenerator()
try Data((0..<byteCount / 8).flatMap { _ in withUnsafeBytes(of: generator.next()) { Array($0) } })
  .write(to: URL(filePath: path))
defer { try? FileManager.default.removeItem(atPath: path) }
let file = try SystemFiles().open(FilePath(path), .read)
let written = (byteCount / 8) * 8

let putting = timed(count, width) {
  _ = try store.put("\($0)", .file(file, byteCount: written), ifAbsent: true)
}
let getting = timed(count, width) {
  guard try store.get("\($0)", 0..<written)?.count == Int(written) else { exit(2) }
}
let ranging = timed(count, width) { _ = try store.get("\($0)", 0..<(64 << 10)) }
let deleting = timed(count, width) { try store.delete("\($0)") }
let rate = { (seconds: Double) in String(format: "%.1f", Double(Int64(count) * written) / seconds / 1e6) }
let milliseconds = { (seconds: Double) in
  String(format: "%.2f", seconds * 1000 * Double(width) / Double(count))
}
FileHandle.standardOutput.write(
  Data(
    """
    {"putMBps":\(rate(putting)),"getMBps":\(rate(getting)),"range64KiBms":\(milliseconds(ranging)),\
    "deletems":\(milliseconds(deleting))}

    """.utf8))
