import BlobStorage

extension Damage {
  /// One line for the user.
  var text: String {
    let name = digest?.description ?? "a record"
    let keys = keys.map { "“\($0.printable)”" }.joined(separator: ", ")
    // A missing chunk has no place.
    let place = pack.isEmpty ? "" : " in pack \(pack) at \(offset)"
    return "damaged: \(name)\(place): \(reason.printable)" + (keys.isEmpty ? "" : "; needed by \(keys)")
  }
}
