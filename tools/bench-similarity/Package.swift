// swift-tools-version: 6.2
import PackageDescription

// A package of its own, so that the library's has no program that only measures.
let package = Package(
  name: "bench-similarity",
  platforms: [.macOS(.v15)],
  dependencies: [.package(name: "blob-storage", path: "../..")],
  targets: [
    .executableTarget(
      name: "readback", dependencies: [.product(name: "BlobStorage", package: "blob-storage")])
  ]
)
