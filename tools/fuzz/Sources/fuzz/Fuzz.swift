import BlobStorageTestSupport
import Foundation

/// The target that BLOB_STORAGE_FUZZ_TARGET names.
private let target: FuzzTarget = {
  let name = ProcessInfo.processInfo.environment["BLOB_STORAGE_FUZZ_TARGET"] ?? ""
  guard let target = FuzzTarget.all.first(where: { $0.name == name }) else {
    print("BLOB_STORAGE_FUZZ_TARGET must be one of \(FuzzTarget.all.map(\.name).joined(separator: " "))")
    exit(64)
  }
  // What libFuzzer begins with stands beside what it finds.
  if let folder = ProcessInfo.processInfo.environment["BLOB_STORAGE_FUZZ_SEEDS"] {
    for (index, seed) in target.seeds().enumerated() {
      FileManager.default.createFile(atPath: "\(folder)/seed-\(index)", contents: Data(seed))
    }
  }
  return target
}()

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutableRawPointer, _ arguments: UnsafeMutableRawPointer) -> CInt {
  _ = target
  return 0
}

@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
  target.run(Array(UnsafeBufferPointer(start: start, count: count)))
  return 0
}
