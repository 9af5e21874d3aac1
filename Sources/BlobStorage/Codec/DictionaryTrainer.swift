import CZstd

/// Makes a dictionary for many small chunks that resemble each other.
package enum DictionaryTrainer {
  /// A dictionary of at most that many bytes, or nil if the samples are too few or have too little in common.
  ///
  /// libzstd advises about 100 times as many bytes of samples as the dictionary has.
  package static func train(samples: [[UInt8]], byteCountMax: Int) -> [UInt8]? {
    var joined: [UInt8] = []
    joined.reserveCapacity(samples.reduce(0) { $0 + $1.count })
    for sample in samples { joined += sample }
    let counts = samples.map(\.count)
    guard joined.isEmpty == false, byteCountMax > 0 else { return nil }
    let dictionary = [UInt8](unsafeUninitializedCapacity: byteCountMax) { output, count in
      let result = ZDICT_trainFromBuffer(
        output.baseAddress, output.count, joined, counts, UInt32(counts.count))
      count = ZDICT_isError(result) == 0 ? result : 0
    }
    return dictionary.isEmpty ? nil : dictionary
  }
}
