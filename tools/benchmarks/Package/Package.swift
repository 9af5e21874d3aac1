// swift-tools-version: 6.2
import PackageDescription

// `Engine` links to the sources of the store, which are compiled here a second time: as a part of this package, so
// that its small parts, the chunker for instance, can be measured. They are not public.
let package = Package(
  name: "blob-storage-benchmarks",
  platforms: [.macOS(.v15)],
  dependencies: [
    // As in the store's own Package.swift.
    .package(url: "https://github.com/apple/swift-crypto", from: "3.10.0"),
    .package(url: "https://github.com/apple/swift-log", from: "1.6.0"),
    .package(url: "https://github.com/apple/swift-system", from: "1.4.0"),
    // Without its traits it needs no allocator of its own; its counts of allocations then stay 0.
    .package(url: "https://github.com/ordo-one/benchmark", from: "1.38.0", traits: []),
  ],
  targets: [
    .systemLibrary(name: "CZstd", path: "Engine/CZstd", pkgConfig: "libzstd"),
    .systemLibrary(name: "CZlib", path: "Engine/CZlib", pkgConfig: "zlib"),
    .systemLibrary(name: "CLMDB", path: "Engine/CLMDB", pkgConfig: "lmdb"),
    .target(name: "CBlobKernels", path: "Engine/CBlobKernels"),
    .target(
      name: "BlobStorage",
      dependencies: [
        "CBlobKernels", "CZstd", "CZlib", "CLMDB",
        .product(name: "Crypto", package: "swift-crypto"),
        .product(name: "Logging", package: "swift-log"),
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      path: "Engine/BlobStorage",
      swiftSettings: [
        .enableUpcomingFeature("ExistentialAny"), .enableUpcomingFeature("MemberImportVisibility"),
      ]),
    .target(name: "Numbers"),
    .executableTarget(name: "StoreBench", dependencies: ["BlobStorage", "Numbers"]),
    .executableTarget(
      name: "Micro",
      dependencies: ["BlobStorage", "Numbers", .product(name: "Benchmark", package: "benchmark")],
      path: "Benchmarks/Micro",
      plugins: [.plugin(name: "BenchmarkPlugin", package: "benchmark")]),
  ],
  swiftLanguageModes: [.v6]
)
