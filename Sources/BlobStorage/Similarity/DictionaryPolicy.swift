/// When a trained dictionary is made, kept and tried: every threshold in one place.
///
/// Measured on 2,600 package descriptions of Debian as JSON, 900 bytes each. Encoded alone they take 0.60 of their
/// length. With a dictionary of 8 KiB they take 0.54 of that, of 32 KiB 0.51, of 110 KiB 0.49. It may be trained on 300
/// of them or on all.
package enum DictionaryPolicy {
  /// Plain lengths of the chunks that dictionaries are for: shorter ones are smaller than what a record takes, longer
  /// ones have most of what they repeat in themselves.
  package static let plainByteCounts = 256...(32 << 10)
  /// A larger dictionary gains little and has to be loaded by every process that needs it.
  package static let byteCountMax = 32 << 10
  /// Dictionaries that are used side by side, one for each kind of content.
  package static let countMax = 4

  /// Fewer samples tell nothing about the next chunk.
  package static let sampleCountMin = 128
  /// Bounds memory and time of the training: 0.3 s.
  package static let sampleByteCountMax = 4 << 20
  /// One sample in this number is held out: the dictionary is tried on it, not trained.
  package static let heldOutStride = 4
  /// The held-out samples have to shrink to this share of what they take without a new dictionary. Reading costs a
  /// second chunk, which is cached, and damage of the dictionary costs all of them.
  package static let shareMax = 0.75
  /// The stored chunks must shrink by this many times the bytes of a new dictionary. A dictionary goes when it saves
  /// less than its own bytes. The margin keeps the two from alternating.
  package static let paybackMin: Int64 = 4
  /// A fruitless training is repeated once the number of small chunks has grown by this factor.
  package static let retryGrowth = 1.5

  /// A chunk is encoded with a dictionary if that takes at most this share of what it takes alone.
  package static let worthwhileShare = 0.9
  /// With a dictionary that leaves at most this share of the plain bytes, encoding alone is not even tried.
  package static let sureShare = 0.2
  /// A chunk that resembles one with a dictionary begins a group of bases. Condition: encoding the two against each
  /// other takes at most this share of what the dictionary makes of it.
  package static let groupShare = 0.5
  /// A ref to a base in a record's meta, less the features that the record does without.
  package static let refByteCount = 32

  /// Whether a record of `storedByteCount` with a dictionary is better than one of `aloneByteCount`.
  package static func pays(storedByteCount: Int, aloneByteCount: Int) -> Bool {
    Double(storedByteCount + refByteCount) <= Double(aloneByteCount) * worthwhileShare
  }
}
