import BlobStorageTestSupport

/// The kernel's comment as plain Swift.
struct ReferenceKernel {
  private let wordFactors: [UInt64]
  private let functions: [(multiplier: UInt32, increment: UInt32)]

  init() {
    // The kernel's constants are from it.
    var stream = SplitMix64(seed: "similar!".utf8.reduce(0) { $0 << 8 | UInt64($1) })
    let numbers = (0..<265).map { _ in stream.next() }
    wordFactors = numbers[..<8].map { $0 | 1 }
    functions = numbers[256...].map { (UInt32($0 >> 32) | 1, UInt32(truncatingIfNeeded: $0)) }
  }

  func keys(of bytes: [UInt8]) -> [UInt32] {
    var features = [UInt32](repeating: 0, count: 9)
    for place in 0..<max(0, bytes.count - 63) {
      let beginning = UInt32(truncatingIfNeeded: word(bytes, at: place, byteCount: 4))
      guard (beginning &* 0x9E37_79B1) >> 26 == 63 else { continue }
      let sum = (0..<8).reduce(UInt64(0)) { sum, index in
        sum &+ word(bytes, at: place + 8 * index, byteCount: 8) &* wordFactors[index]
      }
      let sample = UInt32(sum >> 32)
      for index in 0..<9 {
        let (multiplier, increment) = functions[index]
        features[index] = max(features[index], multiplier &* sample &+ increment)
      }
    }
    return (0..<3).map { key in
      features[key * 3..<key * 3 + 3].reduce(UInt32(key)) { mixed($0 &* 31 &+ $1) }
    }
  }

  private func word(_ bytes: [UInt8], at offset: Int, byteCount: Int) -> UInt64 {
    bytes[offset..<offset + byteCount].reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }

  private func mixed(_ key: UInt32) -> UInt32 {
    var z = key
    z = (z ^ (z >> 16)) &* 0x85EB_CA6B
    z = (z ^ (z >> 13)) &* 0xC2B2_AE35
    return z ^ (z >> 16)
  }
}
