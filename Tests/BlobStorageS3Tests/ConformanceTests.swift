import BlobStorage
import BlobStorageS3
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("An S3 service")
struct ConformanceTests {
  @Test("does what an object store does", arguments: TestedService.present, ObjectStoreCheck.all)
  func conformance(service: TestedService, check: ObjectStoreCheck) throws {
    try check.run(on: try service.store(), below: "check")
  }

  @Test("does what those of the tests do", arguments: ObjectStoreCheck.all)
  func simulated(check: ObjectStoreCheck) throws {
    try check.run(on: MemoryObjectStore(pageCount: 10), below: "check")
  }

  @Test("says that there is no bucket", arguments: TestedService.present)
  func noBucket(service: TestedService) throws {
    var configuration = try service.configuration(prefix: "x")
    configuration.location = try S3Location("s3://no-such-bucket-\(UUID().uuidString.lowercased())/x")
    let store = S3ObjectStore(try S3Client(configuration))
    #expect(FaultTests.failure { _ = try store.get("x", 0..<1) }?.code == .noBucket)
    #expect(FaultTests.failure { _ = try FaultTests.put(store) }?.code == .noBucket)
    #expect(FaultTests.failure { _ = try store.list("", after: nil) }?.code == .noBucket)
  }

  @Test("takes names with any characters in the store's prefix", arguments: TestedService.present)
  func prefixes(service: TestedService) throws {
    for prefix in ["ä €/\u{1F600}", "a b+c&d=e%41", "~!*'();:@,?#[]"] {
      let store = S3ObjectStore(
        try S3Client(try service.configuration(prefix: "tests/\(UUID().uuidString)/\(prefix)")))
      #expect(try store.put("packs/a", .bytes([1]), ifAbsent: true) == .stored)
      #expect(try store.list("packs/", after: nil).entries.map(\.name) == ["packs/a"])
      #expect(try store.list("packs/", after: "packs/a").entries.isEmpty)
      #expect(try store.get("packs/a", 0..<2) == [1])
    }
  }

  /// The mock checks neither.
  @Test(
    "that is real refuses wrong credentials, and another time only until it was asked for its own",
    .enabled(if: TestedService.real.address != nil))
  func signatures() throws {
    var configuration = try TestedService.real.configuration(prefix: "tests/\(UUID().uuidString)")
    for hours in [-2, 2] {
      let surroundings = S3Surroundings(
        now: { S3Surroundings.system.now() + Int64(hours) * 3600 }, sleep: { _ in }, chance: { 0 })
      let store = S3ObjectStore(try S3Client(configuration, surroundings: surroundings))
      #expect(try FaultTests.put(store) == .stored)
      try store.delete("packs/x")
    }
    configuration.credentials.secretKey = S3Secret("wrong")
    let wrong = S3ObjectStore(try S3Client(configuration))
    #expect(FaultTests.failure { _ = try FaultTests.put(wrong) }?.code == .permissionDenied)
    configuration.credentials.accessKey = "wrong"
    let unknown = S3ObjectStore(try S3Client(configuration))
    #expect(FaultTests.failure { _ = try FaultTests.put(unknown) }?.code == .permissionDenied)
  }
}
