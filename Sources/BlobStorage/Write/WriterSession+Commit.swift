extension WriterSession {
  /// One commit under way: what it reads of the catalog, and the way to append to the pack.
  ///
  /// Refs and drops are held back to the end and stand side by side in the pack. Each but the last is marked as
  /// continued, so that a crash leaves all of them or none.
  package struct Commit {
    package let transaction: ReadTransaction
    let session: WriterSession
    let box: Box
    /// Whether a sync follows before the caller's operation returns.
    var isPromised = false
    private var deferred: [(content: PackRecord.Content, payload: [UInt8])] = []
    private var lastVersions: [[UInt8]: Stamp] = [:]
    private var byteCount = 0
    private var listedByteCount = 0
    /// The refs that have been appended.
    private(set) var versions: [(key: [UInt8], version: Stamp)] = []

    init(transaction: ReadTransaction, session: WriterSession, box: Box) {
      self.transaction = transaction
      self.session = session
      self.box = box
    }

    /// The next stamp of the clock: later than any in the store that is not far ahead of the present, and later than
    /// `other`, which may be.
    package func stamp(after other: Stamp = .none) throws(BlobStorageError) -> Stamp {
      let last =
        session.weaknesses.contains(.clockFollowsWall) ? 0 : max(try transaction.clock(), box.state.lastTime)
      var time = Stamp.timeAfter(last, wallClock: session.clock.now())
      // The clock may have caught up with stamps that were given out ahead of it.
      for given in box.state.timesAhead where given.contains(time) { time = given.upperBound + 1 }
      guard time < Stamp.timeMax else {
        throw BlobStorageError(.limitExceeded, "The store's clock has come to its end.")
      }
      if other.time >= time, !session.weaknesses.contains(.clockFollowsWall) {
        return try stamp(farAfter: other)
      }
      box.state.lastTime = time
      return Stamp(time: time, writer: session.writerID)
    }

    /// A stamp for a key whose newest version the clock does not follow. It leaves the clock as it is.
    private func stamp(farAfter other: Stamp) throws(BlobStorageError) -> Stamp {
      let last = box.state.timesAhead.last
      let time = max(other.time, last?.upperBound ?? 0) + 1
      guard time < Stamp.timeMax else {
        throw BlobStorageError(
          .limitExceeded,
          "A version of the key is stamped at the end of the clock, so that no version can follow it: delete or "
            + "replace it first.")
      }
      if let last, last.upperBound + 1 == time {
        box.state.timesAhead[box.state.timesAhead.count - 1] = last.lowerBound...time
      } else {
        box.state.timesAhead.append(time...time)
      }
      return Stamp(time: time, writer: session.writerID)
    }

    /// When a pack that is begun now was created: later than all in the store.
    private func packTime() throws(BlobStorageError) -> UInt64 {
      Stamp.timeAfter(try transaction.clock(), wallClock: wallTime)
    }

    /// Milliseconds since 1970 by the wall clock.
    package var wallTime: UInt64 { session.clock.now() }

    /// Drops versions of a key, in as many records as that takes.
    mutating func drop(_ versions: [Stamp], of key: [UInt8]) throws(BlobStorageError) {
      for start in stride(from: 0, to: versions.count, by: Limits.dropVersionCountMax) {
        let part = Array(versions[start..<min(start + Limits.dropVersionCountMax, versions.count)])
        let drop = DropRecord(key: key, stamp: try stamp(), versions: part)
        try bridge(drop.encodedPayload()) { (payload) throws(BlobStorageError) in
          _ = try append(.drop(drop), payload: payload)
        }
      }
    }

    /// Appends a record as part of the commit.
    ///
    /// - Returns: bytes that it adds to the pack.
    /// - Throws: `limitExceeded` when the commit would become too long for a pack.
    @discardableResult
    package mutating func append(
      _ content: PackRecord.Content,
      payload: UnsafeRawBufferPointer = UnsafeRawBufferPointer(start: nil, count: 0)
    ) throws(BlobStorageError) -> Int {
      let meta: [UInt8]
      switch content {
      case .ref(let ref):
        meta = ref.encodedMeta()
        lastVersions[ref.key] = ref.version
      case .drop(let drop): meta = drop.encodedMeta()
      default:
        let added = try session.append(content, payload: payload, to: &box.state, time: try packTime())
        // Nothing was added of what is pending.
        if added > 0 { try count(added, listed: added - payload.count) }
        return added
      }
      let added = RecordHeader.recordByteCount(metaByteCount: meta.count, payloadByteCount: payload.count)
      try count(added, listed: added)
      deferred.append((content, Array(payload)))
      return added
    }

    private mutating func count(_ added: Int, listed: Int) throws(BlobStorageError) {
      byteCount += added
      listedByteCount += listed
      guard byteCount <= Limits.commitByteCountMax, listedByteCount <= Limits.commitListedByteCountMax else {
        throw BlobStorageError(
          .limitExceeded,
          "A commit holds at most \(Limits.commitByteCountMax) bytes, \(Limits.commitListedByteCountMax) of them "
            + "keys, metadata and digests: divide it into several.")
      }
    }

    /// Appends what was held back.
    mutating func appendDeferred() throws(BlobStorageError) {
      for (index, (content, payload)) in deferred.enumerated() {
        let time = try packTime()
        // A pack that is begun for the first of them holds nothing before.
        if index == 0 { box.state.commitOffset = box.state.writer?.byteCount ?? Int64(PackHeader.byteCount) }
        try bridge(payload) { (payload) throws(BlobStorageError) in
          _ = try session.append(
            content, payload: payload, to: &box.state, time: time,
            continues: index < deferred.count - 1 && !session.weaknesses.contains(.splitsCommits))
        }
        if case .ref(let ref) = content { versions.append((ref.key, ref.version)) }
      }
    }

    /// The last version of a key that this commit has made.
    func lastVersion(of key: [UInt8]) -> Stamp? { lastVersions[key] }

    /// Throws why, if records that were appended since there were `lossCount` losses may have been lost.
    func checkNothingLost(since lossCount: Int) throws(BlobStorageError) {
      guard box.state.lossCount != lossCount else { return }
      throw box.state.lossCause ?? BlobStorageError(.io, "A pack could not be written.")
    }

    var trustsCondemnedPacks: Bool { session.weaknesses.contains(.trustsCondemnedPacks) }

    /// Whether a record of this commit may refer to one at `place` (H1).
    func canRefer(to place: Place) throws(BlobStorageError) -> Bool {
      try session.canRefer(to: place, transaction, box.state)
    }

    /// Whether a chunk is pending.
    package func hasPendingChunk(_ digest: Digest) -> Bool { box.state.pendingChunks.contains(digest) }
  }

  /// Applies appended records to the catalog.
  func apply(
    _ pending: [(header: PackHeader, record: PackRecord)], to transaction: WriteTransaction,
    isPromised: Bool = false
  ) throws(BlobStorageError) {
    var index = 0
    while index < pending.count {
      let header = pending[index].header
      var row = PackRow(name: header.name, created: header.created)
      let number: UInt32
      if let known = try transaction.pack(header.name) {
        number = known.number
        row = known.row
      } else {
        number = try transaction.addPack(row)
      }
      while index < pending.count, pending[index].header.name == header.name {
        // A rebuild by another process may have been here before.
        if pending[index].record.offset >= row.appliedByteCount {
          if pending[index].record.offset > row.appliedByteCount {
            // A rebuild by another process could not read what lies between.
            row.isDamaged = true
            row.appliedByteCount = pending[index].record.offset
          }
          try transaction.apply(pending[index].record, from: number, &row)
        }
        index += 1
      }
      if isPromised { row.promisedByteCount = row.appliedByteCount }
      try transaction.setPackRow(number, row)
    }
  }
}
