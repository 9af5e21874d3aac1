/// The maxima of records, packs and commits. Readers check a length from disk against its maximum before they use it.
public enum BlobLimits {
  /// Bytes of a key in UTF-8.
  public static let maximumKeyByteCount = 4_096
  /// Plain bytes of one chunk. Every length in a chunk record is checked against it.
  package static let chunkByteCountMax = 8 << 20
  /// The smallest average chunk size that `init` accepts.
  public static let minimumAverageChunkByteCount = 1 << 10
  /// The largest average chunk size that `init` accepts: the largest chunk is four times as long.
  public static let maximumAverageChunkByteCount = 2 << 20
  /// Plain bytes of one blob.
  public static let maximumBlobByteCount: Int64 = 1 << 48
  /// Bytes of a ref's metadata.
  public static let maximumMetadataByteCount = 1_024
  /// Chunks in one list of a manifest, and lists in a manifest.
  package static let manifestListCountMax = 1 << 17
  /// Bytes of one record's meta.
  package static let recordMetaByteCountMax = 8_192
  /// Bytes of one record's payload: a chunk that did not shrink, or a full manifest.
  package static let recordPayloadByteCountMax = 8 << 20
  /// Plain bytes of all members of a frame.
  package static let frameByteCountMax = 2 << 20
  /// Versions in one drop.
  package static let dropVersionCountMax = 4_096
  /// Bytes of the entries of a commit record before compression.
  package static let commitRecordByteCountMax = 2 << 20
  /// Bytes of these entries compressed: what zstd makes of noise. A frame could have any number of empty blocks.
  package static let commitRecordStoredByteCountMax = 2 << 20 + 8 << 10
  /// Bytes that the entries of a commit record take in memory, about: keys share their beginnings on disk.
  package static let commitRecordMemoryByteCountMax = 8 << 20
  /// Bytes of one pack, including its footer. A writer begins a new pack long before.
  package static let packByteCountMax: Int64 = 1 << 30
  /// Bytes of a pack's records before its writer begins a new one.
  package static let packByteCountTarget: Int64 = 64 << 20
  /// Bytes that one commit may add: all of it goes into one pack.
  package static let commitByteCountMax = 256 << 20
  /// Bytes of a commit's records that its pack's footer repeats, about. Each ref counts as if it named its blob by
  /// digest. One footer must hold them, those of earlier records, and those of chunks that other threads append
  /// meanwhile.
  package static let commitListedByteCountMax = 160 << 20
  /// Bytes that the refs and drops of one commit take in memory, about. A drop with a key of one byte takes five times
  /// as many as it counts for in ``commitListedByteCountMax``.
  package static let commitMemoryByteCountMax = 1 << 30
  /// Bytes of all blocks of a footer as they are stored, with their headers.
  package static let footerByteCountMax = 256 << 20
  /// Records in one pack. Each entry of a commit record and each member of a frame counts as one.
  package static let packRecordCountMax = 1 << 23
  /// Records of one pack before its writer begins a new one. That leaves room for as many of one more commit, whose
  /// number only its bytes limit.
  package static let packRecordCountTarget = 1 << 22
  /// Bytes of a line of the census: the file `store` in hexadecimal, and some words.
  package static let censusLineByteCountMax = 256
  /// Bytes of the census.
  package static let censusByteCountMax: Int64 = 1 << 30
  /// Bytes of a log entry or checkpoint of a shared store.
  package static let collectionByteCountMax = 64 << 20
  /// Bytes of a machine's name in a writer's registration.
  package static let machineNameByteCountMax = 255
}
