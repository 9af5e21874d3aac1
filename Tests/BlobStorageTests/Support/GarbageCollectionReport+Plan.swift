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
    // A digest and a length, or the digest's place.
    return refDifference >= -40 * Int64(refCount) && self == expected
  }
}
