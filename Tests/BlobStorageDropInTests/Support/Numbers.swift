import BlobStorage
import Foundation

/// Random bytes that a test can ask for again.
func randomBytes(_ count: Int, seed: UInt64) -> Data {
  var state = seed
  var data = Data(capacity: count + 8)
  while data.count < count {
    // xorshift64*, Marsaglia 2003 and Vigna 2016.
    state ^= state >> 12
    state ^= state << 25
    state ^= state >> 27
    withUnsafeBytes(of: (state &* 0x2545_F491_4F6C_DD1D).littleEndian) { data.append(contentsOf: $0) }
  }
  return data.prefix(count)
}

func sha256(_ data: Data?) -> String { data.map { BlobDigest.of($0, by: .sha256).hex } ?? "nothing" }
