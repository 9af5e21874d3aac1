// swift-tools-version: 6.2
import PackageDescription

// The parts that are measured one by one, the chunker for instance, have `package` access: the name of the package
// in which they may be used is that of the folder it lies in, in lower case.
let repository = Context.packageDirectory.split(separator: "/").dropLast(3).last ?? ""
let packageName = String(
  repository.lowercased().map { $0.isLetter || $0.isNumber ? $0 : "_" })

let inside: [SwiftSetting] = [.unsafeFlags(["-package-name", packageName])]

let package = Package(
  name: "blob-storage-benchmarks",
  platforms: [.macOS(.v15)],
  dependencies: [
    .package(name: "blob-storage", path: "../../.."),
    // Without its traits it needs no allocator of its own; its counts of allocations then stay 0.
    .package(url: "https://github.com/ordo-one/benchmark", from: "1.38.0", traits: []),
  ],
  targets: [
    .executableTarget(
      name: "StoreBench",
      dependencies: [.product(name: "BlobStorage", package: "blob-storage")],
      swiftSettings: inside),
    .executableTarget(
      name: "Micro",
      dependencies: [
        .product(name: "BlobStorage", package: "blob-storage"),
        .product(name: "Benchmark", package: "benchmark"),
      ],
      path: "Benchmarks/Micro",
      swiftSettings: inside,
      plugins: [.plugin(name: "BenchmarkPlugin", package: "benchmark")]),
  ],
  swiftLanguageModes: [.v6]
)
