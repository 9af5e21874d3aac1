import BlobStorage
import BlobStorageReports

/// Statistics in Prometheus' text format: a help and a type line for each metric, then its samples.
struct MetricsText {
  private(set) var text = ""
  private let store: String

  init(_ statistics: StoreStatistics, store: String) {
    self.store = store
    add("keys", "Keys that have a version.", statistics.keyCount)
    add("versions", "Versions of all keys, archived ones included.", statistics.versionCount)
    add("blobs", "Different blobs that versions point at.", statistics.blobCount)
    add("chunks", "Chunks that versions need.", statistics.chunkCount)
    add("packs", "Packs of the store.", statistics.packCount)
    add("plain_bytes", "Plain bytes of all versions, each counted.", statistics.plainByteCount)
    add(
      "unique_bytes", "Plain bytes of the chunks that versions need, each once.", statistics.uniqueByteCount)
    add("stored_bytes", "Stored bytes of live chunks.", statistics.storedByteCount)
    add("base_bytes", "Stored bytes of chunks that are only bases of others.", statistics.baseByteCount)
    add("garbage_bytes", "Bytes of records that nothing needs; gc frees them.", statistics.garbageByteCount)
    add("disk_bytes", "Bytes of the medium that all files of the store take.", statistics.diskByteCount)
    add(
      "saved_bytes", "Bytes saved, by what saved them.",
      [
        ("deduplication", statistics.deduplicationSavedByteCount),
        ("codecs", statistics.codecSavedByteCount),
        ("similarity", statistics.similaritySavedByteCount),
      ], label: "by")
  }

  private mutating func add(_ name: String, _ help: String, _ value: some BinaryInteger) {
    begin(name, help)
    text += "blobstorage_\(name){store=\"\(Self.escaped(store))\"} \(value)\n"
  }

  private mutating func add(_ name: String, _ help: String, _ values: [(String, Int64)], label: String) {
    begin(name, help)
    for (of, value) in values {
      text += "blobstorage_\(name){store=\"\(Self.escaped(store))\",\(label)=\"\(of)\"} \(value)\n"
    }
  }

  private mutating func begin(_ name: String, _ help: String) {
    text += "# HELP blobstorage_\(name) \(help)\n# TYPE blobstorage_\(name) gauge\n"
  }

  /// Escapes characters that a label's value must not hold.
  private static func escaped(_ value: String) -> String {
    var text = ""
    for scalar in value.unicodeScalars {
      switch scalar {
      case "\\": text += "\\\\"
      case "\"": text += "\\\""
      case "\n": text += "\\n"
      // The format has no other escapes, so show these as text.
      case _ where TerminalText.isObeyed(scalar): text += "\\\\u{\(String(scalar.value, radix: 16))}"
      default: text.unicodeScalars.append(scalar)
      }
    }
    return text
  }
}
