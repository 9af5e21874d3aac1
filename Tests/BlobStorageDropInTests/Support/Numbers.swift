import BlobStorage
import BlobStorageTestSupport
import Foundation

/// Random bytes that a test can ask for again.
func randomBytes(_ count: Int, seed: UInt64) -> Data {
  var random = SplitMix64(seed: seed)
  return Data(random.bytes(count))
}

func sha256(_ data: Data?) -> String { data.map { BlobDigest.of($0, by: .sha256).hex } ?? "nothing" }
