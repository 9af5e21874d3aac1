/// Links, restores, copies, renames and deletes versions. Stores bytes only where a commit may not refer to those that
/// are there.
///
/// While a version exists, everything that it needs exists. The commit that reads the version publishes the new one
/// before any other commit can drop the old one. A version of another key needs more, because gc may already have
/// passed that key: see ``FoundBlobs``.
package struct VersionChanges {
  let engine: Engine

  package init(_ engine: Engine) { self.engine = engine }

  /// Makes a version of `source` the current one of `target`, with its metadata; nil if it does not exist.
  ///
  /// - Parameter id: nil for the current version.
  package func put(
    _ id: BlobVersion.ID?, of source: String, as target: String, _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    try put(id, of: try Engine.keyBytes(source), as: try Engine.keyBytes(target), options)
  }

  /// The same for keys in bytes, such as internal ones.
  package func put(
    _ id: BlobVersion.ID?, of from: [UInt8], as to: [UInt8], _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    try engine.checkOpen()
    try engine.check(options.condition, on: to)
    if !engine.sharing.collectsBesideCommits, let row = try row(id, of: from),
      try KeptVersions(engine.writer).lacksPack(of: [row], engine.blobs)
    {
      return try putAgain(id, of: from, as: to, options)
    }
    return try commitVersions(on: [from, to], options.durability) {
      (commit, found) throws(BlobStorageError) -> PutResult? in
      guard let row = try Engine.found(id, of: from, commit.transaction)?.row,
        try found.mayReferTo([row], commit)
      else { return nil }
      var ref = RefOptions(options)
      ref.metadata = row.metadata
      let (version, byteCount) = try commit.appendRef(to, row.digest, row.byteCount, ref)
      return PutResult(version: version, newByteCount: 0, storedByteCount: Int64(byteCount))
    } orInBucket: { () throws(BlobStorageError) -> PutResult? in
      try putAgain(id, of: from, as: to, options)
    }
  }

  private func row(_ id: BlobVersion.ID?, of key: [UInt8]) throws(BlobStorageError) -> VersionRow? {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try Engine.found(id, of: key, transaction)?.row
    }
  }

  /// Puts the content and the metadata of a version like any others: what lies in condemned or cut packs is stored
  /// again.
  private func putAgain(
    _ id: BlobVersion.ID?, of from: [UInt8], as to: [UInt8], _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    guard let row = try row(id, of: from) else { return nil }
    guard let blob = try engine.openBlob(row.digest) else { throw Engine.missing(row.digest) }
    defer { blob.close() }
    let metadata = StoredMetadata(row.metadata)
    var options = options
    (options.mediaType, options.metadata, options.codec) = (metadata.mediaType, metadata.own, nil)
    return try OpenBlob.putting { () throws(BlobStorageError) in
      try engine.store(to, blob.content(), options)
    }
  }

  /// Puts a blob that is there under a key; nil if it is not there.
  ///
  /// If no version needs the blob, gc may be about to remove it. So its bytes are put like any others, which
  /// deduplicates them. A lease protects the blob meanwhile.
  package func link(
    _ key: String, to digest: BlobDigest, _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    try engine.check(options.condition, on: try Engine.keyBytes(key))
    guard let blob = try engine.openBlob(digest) else { return nil }
    defer { blob.close() }
    return try OpenBlob.putting { () throws(BlobStorageError) in
      try engine.put(key, blob.content(), options)
    }
  }

  /// Moves all versions of a key to a key that does not exist; false if `source` does not exist.
  package func rename(
    _ source: String, to target: String, _ durability: Durability
  ) throws(BlobStorageError) -> Bool {
    let (from, to) = (try Engine.keyBytes(source), try Engine.keyBytes(target))
    guard from != to else {
      throw BlobStorageError(.invalidArgument, "The key “\(source)” has that name already.", key: source)
    }
    try engine.checkOpen()
    try engine.check(.absent, on: to)
    return try rename(from, to: to, durability)
  }

  /// The same for internal keys. Also works in a bucket, whose commit sees only what this machine knows of the target.
  package func rename(
    _ from: [UInt8], to: [UInt8], _ durability: Durability
  ) throws(BlobStorageError) -> Bool {
    try engine.checkOpen()
    return try commitVersions(on: [from, to], durability) {
      (commit, found) throws(BlobStorageError) in
      guard let name = try commit.transaction.nameRow(from), name.versionCount > 0 else { return nil }
      try commit.checkHold(on: from)
      let versions = try commit.transaction.versions(of: name)
      guard try found.mayReferTo(versions.map(\.row), commit) else { return nil }
      // Made here, because the commit can be tried more than once.
      var ref = RefOptions(PutOptions(replacement: .archiveCurrent, condition: .absent))
      for version in versions.reversed() {
        ref.metadata = version.row.metadata
        _ = try commit.appendRef(
          to, version.row.digest, version.row.byteCount, ref, created: version.row.created)
        // The next version follows this one.
        ref.condition = .always
      }
      _ = try commit.dropVersions(of: from, keeping: 0)
      return true
    } ?? false
  }

  /// Drops one version of a key; false if it does not exist.
  package func delete(
    version id: BlobVersion.ID, of key: String, _ durability: Durability
  ) throws(BlobStorageError) -> Bool {
    try engine.checkOpen()
    let key = try Engine.keyBytes(key)
    // A caller that drops wants to free space, so dropping must not need space.
    let done = try engine.folder.withReserve { () throws(BlobStorageError) in
      try committedVersions(on: [key], durability) { (commit, _) throws(BlobStorageError) -> Bool? in
        guard let name = try commit.transaction.nameRow(key),
          try commit.transaction.versionRow(of: name, id.stamp) != nil
        else { return nil }
        try commit.checkHold(on: key)
        try commit.drop([id.stamp], of: key)
        return true
      }
    }
    try engine.makeDropDurable(durability, done?.watermark, hasDropped: done != nil)
    return done != nil
  }

  /// Drops keys whose current versions are these, and moves their versions to the internal keys of what is kept for
  /// states, unless told otherwise. Passes over keys that have changed, are held, or have a version that may be lost.
  ///
  /// - Returns: the number of keys that were dropped.
  package func retire(
    _ keys: [(key: [UInt8], current: Stamp)], keepsVersions: Bool, _ durability: Durability
  ) throws(BlobStorageError) -> Int {
    guard !keys.isEmpty else { return 0 }
    try engine.checkOpen()
    let names = keys.map(\.key)
    let (count, watermark) = try engine.folder.withReserve { () throws(BlobStorageError) in
      try KeptVersions(engine.writer).keepingReplaced(of: keepsVersions ? names : []) {
        (check) throws(BlobStorageError) in
        try engine.writer.commit(on: names) { (commit) throws(BlobStorageError) in
          try check(commit)
          commit.isPromised = durability == .durable
          var count = 0
          for (key, current) in keys {
            guard let name = try commit.transaction.nameRow(key), name.current?.stamp == current,
              try commit.hold(on: key) == nil
            else { continue }
            let stamps = try commit.transaction.versions(of: name).map(\.stamp)
            var isKept = true
            for stamp in stamps where keepsVersions && isKept {
              isKept = try commit.keepReplaced(stamp, of: key)
            }
            if !isKept { continue }
            try commit.drop(stamps, of: key)
            count += 1
          }
          return count
        }
      }
    }
    try engine.makeDropDurable(durability, watermark, hasDropped: count > 0)
    return count
  }

  /// Commits what `body` appends, and makes it durable if that is asked for.
  private func commitVersions<T>(
    on keys: [[UInt8]], _ durability: Durability,
    _ body: (inout Commit, inout FoundBlobs) throws(BlobStorageError) -> T?,
    orInBucket putAgain: (() throws(BlobStorageError) -> T?)? = nil
  ) throws(BlobStorageError) -> T? {
    guard let done = try committedVersions(on: keys, durability, body, orInBucket: putAgain) else {
      return nil
    }
    try engine.makeDurable(durability, done.watermark)
    return done.result
  }

  /// Commits what `body` appends. While `body` returns nil because it may not refer to something yet, does the missing
  /// work and calls it again.
  ///
  /// - Parameter putAgain: does it another way in a bucket, where the commit may not refer to something for long. Packs
  ///   stay condemned for long there, and what another program has cut stays so.
  private func committedVersions<T>(
    on keys: [[UInt8]], _ durability: Durability,
    _ body: (inout Commit, inout FoundBlobs) throws(BlobStorageError) -> T?,
    orInBucket putAgain: (() throws(BlobStorageError) -> T?)? = nil
  ) throws(BlobStorageError) -> (result: T, watermark: WriterSession.Watermark?)? {
    let isShared = !engine.sharing.collectsBesideCommits
    var found = FoundBlobs(checksCondemned: isShared || keys.first != keys.last)
    for _ in 0..<8 {
      found.begin()
      let (result, watermark) = try engine.writer.commit(on: keys) { (commit) throws(BlobStorageError) in
        commit.isPromised = durability == .durable
        return try body(&commit, &found)
      }
      if found.isComplete { return result.map { ($0, watermark) } }
      var refusal = found.refusal
      if refusal == nil, let lost = try engine.writer.publisher.secure(found.unsynced, of: engine.writer) {
        refusal = BlobStorageError(
          .io, "Pack \(lost), which the version is in, cannot be made durable: run verify.", pack: "\(lost)")
      }
      if let refusal {
        // A collection that was killed has left packs condemned.
        if found.refusal != nil, try engine.sharing.finishLastCollection(engine) { continue }
        guard let putAgain, isShared else { throw refusal }
        // It has made its result durable.
        return try putAgain().map { ($0, nil) }
      }
      for digest in found.unknown {
        guard let layout = try engine.blobs.layout(digest) else { throw Engine.missing(digest) }
        found.add(digest, try chunks(of: layout), hasManifest: layout.chunkCount > 1)
      }
    }
    throw BlobStorageError(.busy, "Other processes change the key again and again: try again.")
  }

  /// The chunks of a blob, including its lists: each once, because a hostile manifest can name a chunk more often than
  /// memory can hold. The empty blob is a chunk, too.
  private func chunks(of layout: BlobLayout) throws(BlobStorageError) -> Set<BlobDigest> {
    var digests: Set<BlobDigest> = []
    try LiveWalk(engine.blobs).forEachPart(of: layout) { part in
      digests.insert(part.digest)
      return true
    }
    return digests
  }
}
