import BlobStorage
import BlobStorageCache
import Foundation
import Synchronization

// An image cache for a server: several processes share a folder that never takes more than its limit. Each image is fetched
// and scaled once, however many clients ask for it at the same time.

/// A thumbnail server's cache.
final class Thumbnails: Sendable {
  private let cache: BlobCache
  private let fetch: @Sendable (URL) async throws -> Data

  init(
    in folder: URL, metrics: any StoreMetrics, fetch: @escaping @Sendable (URL) async throws -> Data
  ) async throws {
    cache = try await BlobCache.open(
      at: folder, limits: CacheLimits(byteLimit: 64 << 20, lifetime: .seconds(86_400)),
      configuration: CacheConfiguration(store: StoreConfiguration(metrics: metrics), memoryByteLimit: 8 << 20)
    )
    self.fetch = fetch
  }

  /// The thumbnail of an image, if it is in memory: for a view that must not wait.
  func thumbnailInMemory(of image: URL, width: Int) -> Data? {
    cache.cachedData(forKey: Self.key(image, width))
  }

  /// The thumbnail of an image, made if it is not in the cache. If the client leaves and no other waits, `fetch` is
  /// cancelled.
  func thumbnail(of image: URL, width: Int) async throws -> Data {
    try await cache.value(forKey: Self.key(image, width)) { [fetch] in
      Self.scaled(try await fetch(image), to: width)
    }
  }

  /// Makes the thumbnails of images that will soon be asked for, until the caller's task is cancelled.
  func prefetch(_ images: [URL], width: Int) async throws {
    let byKey = Dictionary(images.map { (Self.key($0, width), $0) }) { first, _ in first }
    try await cache.prefetch(images.map { Self.key($0, width) }) { [fetch] key in
      guard let image = byKey[key] else { throw CocoaError(.fileNoSuchFile) }
      return Self.scaled(try await fetch(image), to: width)
    }
  }

  private static func key(_ image: URL, _ width: Int) -> String { "\(image.absoluteString)/\(width)" }

  /// Forgets all thumbnails of an image that has changed.
  func forget(_ image: URL) async throws {
    try await cache.removeAll(prefix: "\(image.absoluteString)/")
  }

  func close() async throws { try await cache.close() }

  /// Stands in for a library that scales images.
  private static func scaled(_ image: Data, to width: Int) -> Data { image.prefix(width) }
}

/// Counts hits and misses, as a metrics library would.
final class HitCounter: StoreMetrics {
  private let counts = Mutex((hits: 0, misses: 0))

  func record(_ event: StoreEvent) {
    switch event {
    case .cacheHit: counts.withLock { $0.hits += 1 }
    case .cacheMiss: counts.withLock { $0.misses += 1 }
    default: break
    }
  }

  var text: String { counts.withLock { "\($0.hits) hits, \($0.misses) misses" } }
}

@Sendable func serveImages(in folder: URL) async throws {
  let counter = HitCounter()
  let fetches = Mutex(0)
  let thumbnails = try await Thumbnails(in: folder.appending(path: "thumbnails"), metrics: counter) { image in
    fetches.withLock { $0 += 1 }
    try await Task.sleep(for: .milliseconds(20))
    return Data(repeating: UInt8(image.absoluteString.utf8.count % 251), count: 50_000)
  }
  let images = (1...5).map { URL(string: "https://example.org/\($0).jpg")! }
  // A hundred clients ask for five images at once.
  try await withThrowingTaskGroup(of: Int.self) { group in
    for client in 0..<100 {
      group.addTask { try await thumbnails.thumbnail(of: images[client % images.count], width: 200).count }
    }
    for try await byteCount in group { precondition(byteCount == 200) }
  }
  print("fetched", fetches.withLock { $0 })
  try await thumbnails.forget(images[0])
  try await thumbnails.prefetch(images, width: 200)
  precondition(images.allSatisfy { thumbnails.thumbnailInMemory(of: $0, width: 200) != nil })
  print("fetched", fetches.withLock { $0 })
  print(counter.text)
  try await thumbnails.close()
}
