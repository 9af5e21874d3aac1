// swift-tools-version: 6.2
import PackageDescription

// libFuzzer around the targets of BlobStorageTestSupport. tools/fuzz/run builds and runs it.
let package = Package(
  name: "fuzz",
  platforms: [.macOS(.v15)],
  dependencies: [.package(name: "blob-storage", path: "../..")],
  targets: [
    .target(name: "CLibFuzzer"),
    .executableTarget(
      name: "fuzz",
      dependencies: ["CLibFuzzer", .product(name: "BlobStorageTestSupport", package: "blob-storage")]),
  ]
)
