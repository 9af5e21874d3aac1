import BlobStorage
import BlobStorageReports
import BlobStorageSharing
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import Testing

@Suite("A store whose engine does not answer")
struct RemotePoolTests {
  private final class Gate: Sendable {
    private let isOpen = Atomic<Bool>(true)
    let waitingCount = Atomic<Int>(0)
    private let opened = DispatchSemaphore(value: 0)

    func shut() { isOpen.store(false, ordering: .sequentiallyConsistent) }
    func open(for count: Int) {
      isOpen.store(true, ordering: .sequentiallyConsistent)
      for _ in 0..<count { opened.signal() }
    }
    func pass() {
      if isOpen.load(ordering: .sequentiallyConsistent) { return }
      waitingCount.add(1, ordering: .sequentiallyConsistent)
      opened.wait()
    }
  }

  @Test("is not waited for any longer by tasks that are cancelled")
  func cancelled() async throws {
    let place = try RemotePlace()
    let gate = Gate()
    let store = try await BlobStore.open(
      place.objects, state: place.statePath("one"), remote: RemoteConfiguration(interval: .zero))
    _ = try await store.put(.data(Data("value".utf8)), forKey: "key")
    place.objects.beforeRequests { request, _ in if request == "put" { gate.pass() } }
    gate.shut()
    // More than the pool has threads.
    let putting = (0..<20).map { index in
      Task { _ = try await store.put(.data(Data("value \(index)".utf8)), forKey: "key \(index)") }
    }
    while gate.waitingCount.load(ordering: .sequentiallyConsistent) < 1 { await Task.yield() }
    // Only so that no thread waits for ever.
    let rescue = Task {
      try await Task.sleep(for: .seconds(60))
      gate.open(for: 100)
    }
    for task in putting { task.cancel() }
    for task in putting {
      let error = await #expect(throws: BlobStorageError.self) { try await task.value }
      #expect(error?.code == .cancelled)
    }
    rescue.cancel()
    gate.open(for: 100)
    try await store.synchronize()
    let other = try place.engine("two")
    // What was committed is published after all.
    #expect(try await other.keys("", after: nil, limit: 100).count == store.statistics().keyCount)
    try await store.close()
  }

  @Test("keeps no thread from the other stores of the process")
  func otherStores() async throws {
    let place = try RemotePlace()
    let gate = Gate()
    var stores: [BlobStore] = []
    for index in 0..<20 {
      stores.append(
        try await BlobStore.open(
          place.objects, state: place.statePath("\(index)"), remote: RemoteConfiguration(interval: .zero)))
    }
    place.objects.beforeRequests { _, _ in gate.pass() }
    gate.shut()
    let waiting = stores.map { store in Task { try await store.extend() } }
    // More than any pool has threads, if they shared one.
    while gate.waitingCount.load(ordering: .sequentiallyConsistent) < 20 { await Task.yield() }
    let local = try await BlobStore.create(at: place.statePath("local"))
    _ = try await local.put(.data(Data("value".utf8)), forKey: "key")
    try await local.close()
    gate.open(for: 20)
    for task in waiting { _ = try await task.value }
    for store in stores { try await store.close() }
    withExtendedLifetime(place) {}
  }
}
