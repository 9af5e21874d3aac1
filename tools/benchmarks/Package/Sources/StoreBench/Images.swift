import BlobStorage
import Dispatch
import Foundation
import Synchronization

/// Many small blobs: each put by itself, then got in random order from the store opened anew.
struct Images {
  let list: [String]
  let order: [String]
  let path: String
  let options: PutOptions
  let threadCount: Int

  init(_ arguments: inout Arguments) throws {
    list = try Self.lines(arguments.text("list"))
    order = try Self.lines(arguments.text("order"))
    path = try arguments.text("store")
    options = arguments.has("durable") ? PutOptions() : .relaxed
    threadCount = try arguments.number("threads", default: 1)
  }

  private static func lines(_ path: String) throws -> [String] {
    try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n").map(String.init)
  }

  func run() throws -> [String: Any] {
    let images = try list.map { (key: $0, data: try Data(contentsOf: URL(fileURLWithPath: $0))) }
    var store = try BlockingBlobStore.create(at: path)
    let (puts, putSeconds) = try put(images, store)
    let closing = try timed { try store.close() }
    store = try BlockingBlobStore.open(at: path)
    var gets = Durations()
    var gotByteCount = 0
    for key in order {
      let got = try timed { try store.data(forKey: key) }
      gets.seconds.append(got.seconds)
      gotByteCount += got.value?.count ?? 0
    }
    try store.close()
    guard gotByteCount == images.reduce(0, { $0 + $1.data.count }) else {
      throw UsageError(reason: "what was got is not what was put")
    }
    return [
      "put": puts.microseconds, "get": gets.microseconds, "putSeconds": putSeconds,
      "closeSeconds": closing.seconds, "count": images.count,
    ]
  }

  private func put(
    _ images: [(key: String, data: Data)], _ store: BlockingBlobStore
  ) throws -> (each: Durations, seconds: Double) {
    let outcome = Mutex<(all: Durations, failure: (any Error)?)>((Durations(), nil))
    let options = options
    let threadCount = threadCount
    let whole = timed {
      runOnThreads(threadCount) { thread in
        var durations = Durations()
        durations.seconds.reserveCapacity(images.count / threadCount + 1)
        do {
          for index in stride(from: thread, to: images.count, by: threadCount) {
            let image = images[index]
            durations.seconds.append(
              try timed { try store.put(image.key, .data(image.data), options: options) }.seconds)
          }
        } catch { outcome.withLock { $0.failure = error } }
        outcome.withLock { $0.all.seconds += durations.seconds }
      }
    }
    return try outcome.withLock { outcome in
      if let failure = outcome.failure { throw failure }
      return (outcome.all, whole.seconds)
    }
  }
}

/// Runs a body on so many threads of their own, more than there are cores if asked for, and waits for all.
private func runOnThreads(_ count: Int, _ body: @escaping @Sendable (Int) -> Void) {
  guard count > 1 else { return body(0) }
  let group = DispatchGroup()
  for index in 0..<count {
    group.enter()
    Thread.detachNewThread {
      body(index)
      group.leave()
    }
  }
  group.wait()
}
