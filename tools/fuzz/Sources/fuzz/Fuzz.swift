import BlobStorageTestSupport
import CLibFuzzer
import Foundation

/// The target that BLOB_STORAGE_FUZZ_TARGET names.
private let target: FuzzTarget = {
  let name = ProcessInfo.processInfo.environment["BLOB_STORAGE_FUZZ_TARGET"] ?? ""
  guard let target = FuzzTarget.all.first(where: { $0.name == name }) else {
    print("BLOB_STORAGE_FUZZ_TARGET must be one of \(FuzzTarget.all.map(\.name).joined(separator: " "))")
    exit(64)
  }
  return target
}()

/// A main of its own, for SwiftPM renames it and libFuzzer's would not be found.
@main
struct Fuzz {
  static func main() {
    // What libFuzzer begins with stands beside what it finds.
    if let folder = ProcessInfo.processInfo.environment["BLOB_STORAGE_FUZZ_SEEDS"] {
      for (index, seed) in target.seeds().enumerated() {
        _ = FileManager.default.createFile(atPath: "\(folder)/seed-\(index)", contents: Data(seed))
      }
    }
    var count = CommandLine.argc
    var arguments = CommandLine.unsafeArgv
    exit(
      LLVMFuzzerRunDriver(&count, &arguments) { start, count in
        target.run(Array(UnsafeBufferPointer(start: start, count: count)))
        return 0
      })
  }
}
