import BlobStorage
import BlobStorageS3
import BlobStorageSharing
import Foundation
import Testing

/// An object store that was started for the tests, as the environment says: `tools/test` starts the mock; a real one is
/// tested when it is there.
enum TestedService: String, CaseIterable, CustomTestStringConvertible, Sendable {
  /// `BLOB_STORAGE_S3_MOCK` is its address.
  case mock
  /// `BLOB_STORAGE_S3_ENDPOINT` is its address; credentials are AWS's variables.
  case real

  var testDescription: String { rawValue }

  /// Those that are there.
  static var present: [TestedService] { allCases.filter { $0.address != nil } }

  /// The bucket that `tools/engine` creates.
  static let bucket = "blob-storage"

  var address: String? {
    let variable = self == .mock ? "BLOB_STORAGE_S3_MOCK" : "BLOB_STORAGE_S3_ENDPOINT"
    return ProcessInfo.processInfo.environment[variable].flatMap { $0.isEmpty ? nil : $0 }
  }

  func configuration(prefix: String) throws -> S3Configuration {
    var environment = ProcessInfo.processInfo.environment
    environment["AWS_ENDPOINT_URL"] = address
    if self == .mock {
      environment["AWS_ACCESS_KEY_ID"] = "mock"
      environment["AWS_SECRET_ACCESS_KEY"] = "mock-secret"
    }
    return try S3Configuration(
      location: try S3Location("s3://\(Self.bucket)/\(prefix)"), environment: environment)
  }

  /// A store below a prefix of its own, with pages of ten.
  func store() throws -> S3ObjectStore {
    S3ObjectStore(
      try S3Client(try configuration(prefix: "tests/\(UUID().uuidString)")), pageCountMax: 10)
  }
}
