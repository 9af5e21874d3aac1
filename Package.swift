// swift-tools-version: 6.2
import PackageDescription

// A warning is an error, and `any` is written out: an existential on a hot path should be seen in review.
let strict: [SwiftSetting] = [
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("MemberImportVisibility"),
  .treatAllWarnings(as: .error),
]

let package = Package(
  name: "blob-storage",
  platforms: [.macOS(.v15)],
  products: [
    .library(name: "BlobStorage", targets: ["BlobStorage"]),
    .library(name: "BlobStorageCache", targets: ["BlobStorageCache"]),
    .library(name: "BlobStorageMigration", targets: ["BlobStorageMigration"]),
    .library(name: "BlobStorageMount", targets: ["BlobStorageMount"]),
    .library(name: "BlobStorageObservation", targets: ["BlobStorageObservation"]),
    .library(name: "BlobStorageReports", targets: ["BlobStorageReports"]),
    .library(name: "BlobStorageTesting", targets: ["BlobStorageTesting"]),
    .library(name: "BlobStorageTransfer", targets: ["BlobStorageTransfer"]),
    .library(name: "BlobStorageTrees", targets: ["BlobStorageTrees"]),
    .library(name: "BlobStorageDropIn", targets: ["BlobStorageDropIn"]),
    .library(name: "BlobStorageS3", targets: ["BlobStorageS3"]),
    .executable(name: "blobtool", targets: ["blobtool"]),
  ],
  dependencies: [
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.1"),
    .package(url: "https://github.com/apple/swift-log", from: "1.6.0"),
    .package(url: "https://github.com/apple/swift-system", from: "1.4.0"),
  ],
  targets: [
    .systemLibrary(
      name: "CZstd", pkgConfig: "libzstd", providers: [.apt(["libzstd-dev"]), .brew(["zstd"])]),
    .systemLibrary(
      name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"]), .brew(["zlib"])]),
    .systemLibrary(
      name: "CLMDB", pkgConfig: "lmdb", providers: [.apt(["liblmdb-dev"]), .brew(["lmdb"])]),
    // SHA-256 where CryptoKit is not.
    .systemLibrary(name: "CCrypto", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
    // HTTP and TLS. Needs the headers of libcurl (Debian's libcurl4-openssl-dev) to build. macOS has it.
    .target(name: "CCurl", linkerSettings: [.linkedLibrary("curl", .when(platforms: [.macOS]))]),
    // FUSE, which is optional: without it everything builds, and nothing can be mounted.
    .systemLibrary(name: "CFuse", pkgConfig: "fuse3", providers: [.apt(["libfuse3-dev"])]),
    .target(
      name: "CFuseSession", dependencies: [.target(name: "CFuse", condition: .when(platforms: [.linux]))]),
    // Slow in debug builds: -O3 needs unsafeFlags, and those forbid using this package as a dependency.
    .target(name: "CBlobKernels"),
    .target(
      name: "BlobStorage",
      dependencies: [
        "CBlobKernels", "CZstd", "CZlib", "CLMDB",
        .target(name: "CCrypto", condition: .when(platforms: [.linux])),
        .product(name: "Logging", package: "swift-log"),
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      swiftSettings: strict),
    // A store that keeps its folder below a limit.
    .target(
      name: "BlobStorageCache",
      dependencies: [
        "BlobStorage", .product(name: "Logging", package: "swift-log"),
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      swiftSettings: strict),
    // States of trees of files, and which of them are kept.
    .target(name: "BlobStorageTrees", dependencies: ["BlobStorage"], swiftSettings: strict),
    // Imports, exports and copies.
    .target(
      name: "BlobStorageTransfer",
      dependencies: [
        "BlobStorage", "BlobStorageCache", "BlobStorageTrees", "CBlobKernels",
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      swiftSettings: strict),
    // A store as files.
    .target(
      name: "BlobStorageMount",
      dependencies: [
        "BlobStorage", "BlobStorageCache", "BlobStorageTransfer", "BlobStorageTrees", "CFuseSession",
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      swiftSettings: strict),
    // Snapshots of other programs as states.
    .target(
      name: "BlobStorageMigration", dependencies: ["BlobStorage", "BlobStorageTransfer", "BlobStorageTrees"],
      swiftSettings: strict),
    // Changes as they become visible.
    .target(name: "BlobStorageObservation", dependencies: ["BlobStorage"], swiftSettings: strict),
    // Statistics, and where the space went.
    .target(name: "BlobStorageReports", dependencies: ["BlobStorage"], swiftSettings: strict),
    // For the tests of programs that use a store.
    .target(
      name: "BlobStorageTesting",
      dependencies: ["BlobStorage", .product(name: "SystemPackage", package: "swift-system")],
      swiftSettings: strict),
    .target(
      name: "BlobStorageDropIn",
      dependencies: ["BlobStorage", .product(name: "SystemPackage", package: "swift-system")],
      swiftSettings: strict),
    // Stores that several machines share, on any object store.
    .target(
      name: "BlobStorageSharing",
      dependencies: [
        "BlobStorage", .product(name: "Logging", package: "swift-log"),
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      swiftSettings: strict),
    // Packs in a bucket. A product of its own: a store in a folder needs no network.
    .target(
      name: "BlobStorageS3",
      dependencies: [
        "BlobStorage", "BlobStorageSharing", "CCurl",
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      swiftSettings: strict),
    .executableTarget(
      name: "blobtool",
      dependencies: [
        "BlobStorage", "BlobStorageCache", "BlobStorageMigration", "BlobStorageMount", "BlobStorageReports",
        "BlobStorageS3", "BlobStorageTransfer", "BlobStorageTrees",
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      swiftSettings: strict),
    // What tests share, and no product: a simulated disk, and what is fuzzed.
    .target(
      name: "BlobStorageTestSupport",
      dependencies: [
        "BlobStorage", "BlobStorageReports", "BlobStorageSharing", "BlobStorageTransfer",
        .product(name: "Logging", package: "swift-log"),
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      swiftSettings: strict),
    .testTarget(
      name: "BlobStorageTests",
      dependencies: [
        "BlobStorage", "BlobStorageCache", "BlobStorageMount", "BlobStorageObservation", "BlobStorageReports",
        "BlobStorageSharing",
        "BlobStorageTestSupport", "BlobStorageTesting", "BlobStorageTransfer", "BlobStorageTrees",
        "CBlobKernels",
        "CacheTrial",
        "Examples",
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      exclude: ["Format/blake3.py", "Format/second_reader.py"], swiftSettings: strict),
    // Programs as they were written for the four libraries, in the language mode of their time. No products.
    .executableTarget(
      name: "DropInProgram", dependencies: ["BlobStorageDropIn"], path: "Tests/DropInProgram",
      swiftSettings: [.swiftLanguageMode(.v5)]),
    .testTarget(
      name: "BlobStorageDropInTests",
      dependencies: [
        "BlobStorageDropIn", "BlobStorage", "BlobStorageTestSupport", "DropInProgram",
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      swiftSettings: strict),
    // A server with TLS, for tests.
    .systemLibrary(
      name: "CSSL", path: "Tests/CSSL", pkgConfig: "libssl",
      providers: [.apt(["libssl-dev"]), .brew(["openssl"])]),
    .testTarget(
      name: "BlobStorageS3Tests",
      dependencies: [
        "BlobStorageS3", "BlobStorage", "BlobStorageSharing", "BlobStorageTestSupport", "CCurl", "CSSL",
        "blobtool",
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      swiftSettings: strict),
    // Tries to break the store: crashes, faults, races, damage. Bounded; `tools/soak` runs it for longer.
    .testTarget(
      name: "ReliabilityTests",
      dependencies: [
        "BlobStorage", "BlobStorageCache", "BlobStorageReports", "BlobStorageSharing",
        "BlobStorageTestSupport", "BlobStorageTransfer", "BlobStorageTrees",
        .product(name: "SystemPackage", package: "swift-system"),
      ],
      swiftSettings: strict),
    // Programs that show how the library is used. No product.
    .executableTarget(
      name: "Examples",
      dependencies: [
        "BlobStorage", "BlobStorageCache", "BlobStorageObservation", "BlobStorageReports",
        "BlobStorageTransfer",
      ],
      path: "Tests/Examples", swiftSettings: strict),
    // Loads a cache from several processes and watches its limit. No product.
    .executableTarget(
      name: "CacheTrial",
      dependencies: ["BlobStorage", "BlobStorageCache", .product(name: "Logging", package: "swift-log")],
      path: "Tests/CacheTrial", swiftSettings: strict),
    // Runs the tool that is built beside it as a process; it sees nothing of its inside. Of the library it uses a
    // decoder, for screenshots.
    .testTarget(
      name: "BlobtoolTests",
      dependencies: ["blobtool", "BlobStorage", "BlobStorageObservation", "BlobStorageTestSupport"],
      swiftSettings: strict),
  ],
  swiftLanguageModes: [.v6]
)

// Only tools/fuzz, a package of its own, sees the targets that it runs.
if Context.environment["BLOB_STORAGE_FUZZING"] != nil {
  package.products.append(.library(name: "BlobStorageTestSupport", targets: ["BlobStorageTestSupport"]))
}
