// swift-tools-version: 6.2
import PackageDescription

// What tools/bench measures by. A package of its own, so that the library's has no program that only measures.
let package = Package(
  name: "blob-storage-bench",
  platforms: [.macOS(.v15)],
  dependencies: [.package(name: "blob-storage", path: "../..")],
  targets: [
    .executableTarget(
      name: "StoreBench",
      dependencies: [
        .product(name: "BlobStorage", package: "blob-storage"),
        .product(name: "BlobStorageReports", package: "blob-storage"),
        .product(name: "BlobStorageS3", package: "blob-storage"),
      ])
  ],
  swiftLanguageModes: [.v6]
)
