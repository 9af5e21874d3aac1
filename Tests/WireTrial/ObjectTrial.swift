import BlobStorage
import BlobStorageS3
import BlobStorageSharing
import Foundation
import SystemPackage

/// Objects of one length, put, read whole, read in part and deleted, by some threads.
struct ObjectTrial {
  let place: S3Configuration
  let count: Int
  let byteCount: Int
  let width: Int

  func run() throws {
    let store = S3ObjectStore(try S3Client(place))
    let path = FileManager.default.temporaryDirectory.appending(path: "wire-trial-\(UUID().uuidString)").path
    let data = randomData(byteCount)
    try data.write(to: URL(filePath: path))
    defer { try? FileManager.default.removeItem(atPath: path) }
    let file = try SystemFiles().open(FilePath(path), .read)
    let written = Int64(data.count)
    let putting = timed { _ = try store.put("\($0)", .file(file, byteCount: written), ifAbsent: true) }
    let getting = timed {
      guard try store.get("\($0)", 0..<written)?.count == data.count else {
        fail("an object came back shorter")
      }
    }
    let ranging = timed { _ = try store.get("\($0)", 0..<(64 << 10)) }
    let deleting = timed { try store.delete("\($0)") }
    say([
      ("putMBps", rate(putting)), ("getMBps", rate(getting)), ("range64KiBms", milliseconds(ranging)),
      ("deletems", milliseconds(deleting)),
    ])
  }

  private func rate(_ seconds: Double) -> String {
    String(format: "%.1f", Double(count * byteCount) / seconds / 1e6)
  }

  private func milliseconds(_ seconds: Double) -> String {
    String(format: "%.2f", seconds * 1000 * Double(width) / Double(count))
  }

  /// Runs calls on so many threads at once and returns the seconds that all of them took.
  private func timed(_ body: @escaping @Sendable (Int) throws -> Void) -> Double {
    let begin = ContinuousClock.now
    let group = DispatchGroup()
    for thread in 0..<width {
      group.enter()
      Thread { [count, width] in
        for index in stride(from: thread, to: count, by: width) {
          do { try body(index) } catch { fail("\(error)") }
        }
        group.leave()
      }.start()
    }
    group.wait()
    return (ContinuousClock.now - begin) / .seconds(1)
  }
}
