import BlobStorage

extension GarbageCollectionReport {
  /// Whether a collection did what its dry run said.
  ///
  /// Refs and drops may take other bytes than before, and small chunks take fewer once they are joined, which a
  /// dry run does not try.
  func isAsPlanned(_ plan: GarbageCollectionReport, refCount: Int) -> Bool {
    let refDifference = freedByteCount - plan.freedByteCount
    var expected = plan
    expected.isDryRun = false
    expected.duration = duration
    expected.freedByteCount += refDifference
    expected.copiedByteCount -= refDifference
    // In a pack of gc's own a ref has a digest and a length in place of the blob's place, and its stamps name their writer.
    return refDifference >= -Int64(BlobDigest.byteCount + 3 + 2 * 9) * Int64(refCount) && self == expected
  }
}
