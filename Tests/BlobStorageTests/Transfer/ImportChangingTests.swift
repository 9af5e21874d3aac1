import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import BlobStorageTrees
import Dispatch
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A file that changes while it is read")
struct ImportChangingTests {
  private let place: StorePlace
  private let engine: Engine
  private var tree: FilePath { place.temporary.path.appending("tree") }
  private var file: FilePath { tree.appending("f") }
  private static let byteCount = 5_000_000

  init() throws {
    place = try StorePlace()
    engine = try place.engine()
    try SystemFiles().createDirectory(tree)
  }

  /// Imports a long file, and calls `change` each time that the import has read a part of it.
  private func importTree(
    _ options: ImportOptions = ImportOptions(), changing change: @escaping @Sendable () -> Void
  ) throws -> ImportReport {
    var options = options
    // So slow that the progress is told while the file is read.
    options.maximumByteRate = 10_000_000
    let progress: ProgressHandler = { progress in
      if (1..<Int64(Self.byteCount)).contains(progress.doneByteCount) { change() }
    }
    return try Importer(engine, options, progress).run([tree.string])
  }

  private static func write(_ bytes: [UInt8], at offset: UInt64?, _ file: FilePath) {
    do {
      let handle = try #require(FileHandle(forWritingAtPath: file.string))
      if let offset { try handle.seek(toOffset: offset) } else { try handle.seekToEnd() }
      try handle.write(contentsOf: Data(bytes))
      try handle.close()
    } catch { Issue.record(error) }
  }

  @Test("and grows is stored with the bytes that it had at first, and named")
  func grown() throws {
    let bytes = [UInt8](repeating: 1, count: Self.byteCount)
    try SystemFiles().write(bytes, to: file)
    let file = file
    let report = try importTree { Self.write([2], at: nil, file) }
    #expect(report.skipped == [] && report.newFileCount == 1)
    #expect(report.uncertain == [UncertainFile(path: file.string, change: .grown)])
    #expect(try engine.data("f", nil) == Data(bytes))
    let version = try #require(try engine.versions("f").first)
    #expect(version.isUncertain && version.fileAttributes != nil)
    #expect(report.state?.fileCount == 1 && report.state?.failureCount == 0)
    // The next import reads it again.
    let next = try importTree {}
    #expect(next.newFileCount == 1 && next.uncertain == [])
    let last = try #require(try engine.versions("f").first)
    #expect(!last.isUncertain && last.byteCount > Self.byteCount)
    #expect(try importTree {}.unchangedFileCount == 1)
  }

  @Test("and is rewritten is read again, and then stored as it was read", arguments: [false, true])
  func rewritten(isDryRun: Bool) throws {
    try SystemFiles().write([UInt8](repeating: 1, count: Self.byteCount), to: file)
    let file = file
    let isDone = Mutex(false)
    let hasEnded = DispatchSemaphore(value: 0)
    // All the time: how often progress is told depends on the machine.
    let writer = Thread {
      var byte: UInt8 = 1
      while !isDone.withLock({ $0 }) {
        byte &+= 1
        Self.write([byte], at: 0, file)
        Thread.sleep(forTimeInterval: 0.001)
      }
      hasEnded.signal()
    }
    writer.start()
    let report = try importTree(ImportOptions(isDryRun: isDryRun)) {}
    isDone.withLock { $0 = true }
    hasEnded.wait()
    #expect(report.skipped == [] && report.newFileCount == 1)
    #expect(report.uncertain == [UncertainFile(path: file.string, change: .rewritten)])
    #expect(try engine.versions("f").map(\.isUncertain) == (isDryRun ? [] : [true]))
  }

  @Test("once is certain at the second attempt")
  func changedOnce() throws {
    try SystemFiles().write([UInt8](repeating: 1, count: Self.byteCount), to: file)
    let file = file
    let isChanged = Atomic<Bool>(false)
    let report = try importTree {
      if !isChanged.exchange(true, ordering: .relaxed) { Self.write([2], at: 0, file) }
    }
    let wasChanged = isChanged.load(ordering: .relaxed)
    #expect(wasChanged)
    #expect(report.skipped == [] && report.uncertain == [] && report.newFileCount == 1)
    #expect(try engine.data("f", nil)?.first == 2)
  }

  @Test("again and again is stored in each import, be it short")
  func short() throws {
    try SystemFiles().write([UInt8](repeating: 1, count: 100_000), to: file)
    let isStopped = Atomic<Bool>(false)
    let file = file
    let (engine, tree) = (engine, tree)
    try together([
      { while !isStopped.load(ordering: .relaxed) { Self.write([2], at: nil, file) } },
      {
        defer { isStopped.store(true, ordering: .relaxed) }
        for _ in 0..<20 {
          let report = try Importer(engine, ImportOptions(), nil).run([tree.string])
          #expect(report.skipped == [] && report.fileCount == 1)
          let version = try #require(try engine.versions("f").first)
          #expect(version.isUncertain == !report.uncertain.isEmpty)
        }
      },
    ])
  }

  @Test("is put as it was read, if that is asked for", arguments: [nil, UInt64(0)])
  func put(_ offset: UInt64?) throws {
    let bytes = [UInt8](repeating: 1, count: Self.byteCount)
    try SystemFiles().write(bytes, to: file)
    let file = file
    let change: ProgressHandler = { progress in
      if progress.doneByteCount > 0 { Self.write([2], at: offset, file) }
    }
    let options = PutOptions(storesChangingFiles: true)
    let result = try engine.put("k", .file(file.string), options, change)
    #expect(result.sourceChange == (offset == nil ? .grown : .rewritten))
    #expect(result.version.byteCount == Self.byteCount)
    if offset == nil { #expect(try engine.data("k", nil) == Data(bytes)) }
    #expect(try engine.put("k", .file(file.string), options).sourceChange == nil)
    let error = #expect(throws: BlobStorageError.self) {
      try engine.put("k", .file(file.string), PutOptions(), change)
    }
    #expect(error?.code == .sourceFailed)
  }
}
