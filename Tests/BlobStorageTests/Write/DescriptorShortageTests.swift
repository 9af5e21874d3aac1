import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// A process that has no descriptor left for a moment has lost nothing that it could not do again.
@Suite("A moment without file descriptors")
struct DescriptorShortageTests {
  /// Takes all descriptors of a process that may have few.
  private struct Descriptors {
    private var taken: [Int32] = []

    init() {
      while true {
        let descriptor = open("/dev/null", O_RDONLY)
        if descriptor < 0 { break }
        taken.append(descriptor)
      }
    }

    /// Gives some of them back, or all.
    mutating func giveBack(_ count: Int = .max) {
      for descriptor in taken.prefix(count) { close(descriptor) }
      taken.removeFirst(min(count, taken.count))
    }
  }

  private static func lowerLimit() {
    #if canImport(Darwin)
      let resource = RLIMIT_NOFILE
    #else
      let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    #endif
    var limit = rlimit(rlim_cur: 256, rlim_max: 256)
    precondition(setrlimit(resource, &limit) == 0)
  }

  @Test("poisons no writer whose pack has no durable name yet")
  func names() async throws {
    await #expect(processExitsWith: .success) {
      Self.lowerLimit()
      let place = try StorePlace()
      let engine = try place.engine()
      // A pack whose name was not synced.
      _ = try engine.put("first", [1], .relaxed)
      var taken = Descriptors()
      for number in 0..<30 {
        let error = failure { _ = try engine.put("k\(number)", [2], PutOptions()) }
        #expect(error == nil || error?.errno == Errno.tooManyOpenFiles.rawValue, "\(error?.message ?? "")")
      }
      taken.giveBack()
      for number in 0..<30 { _ = try engine.put("k\(number)", [3], PutOptions()) }
      try engine.close()
      let next = try place.engine()
      #expect(try next.data("first", nil) == Data([1]))
      #expect(try next.data("k29", nil) == Data([3]))
      #expect(try next.losses().isEmpty)
      try next.close()
    }
  }

  @Test("poisons no writer that begins and seals packs meanwhile")
  func packs() async throws {
    await #expect(processExitsWith: .success) {
      Self.lowerLimit()
      let place = try StorePlace()
      var environment = Engine.Environment()
      environment.packByteCountTarget = 64 << 10
      let engine = try place.engine(environment)
      var random = SplitMix64(seed: 1)
      func put(_ key: String) throws { _ = try engine.put(key, random.bytes(30 << 10), PutOptions()) }
      for free in 0..<6 {
        try put("before")
        var taken = Descriptors()
        taken.giveBack(free)
        for number in 0..<10 {
          let error = failure { try put("k\(number)") }
          #expect(error == nil || error?.errno == Errno.tooManyOpenFiles.rawValue, "\(error?.message ?? "")")
        }
        taken.giveBack()
        for number in 0..<10 { try put("k\(number)") }
      }
      try engine.close()
      let next = try place.engine()
      #expect(try next.losses().isEmpty)
      #expect(try next.data("k9", nil)?.count == 30 << 10)
      try next.close()
    }
  }
}
