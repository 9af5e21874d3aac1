import Foundation

// MARK: Changing

extension Engine {
  package func put(
    _ key: String, _ content: BlobContent, _ options: PutOptions, _ progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> PutResult {
    try measured { () throws(BlobStorageError) in
      try putUnmeasured(key, content, options, progress)
    } _: {
      .put([$0], $1)
    }
  }

  private func putUnmeasured(
    _ key: String, _ content: BlobContent, _ options: PutOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> PutResult {
    try checkOpen()
    let keyBytes = try Self.keyBytes(key)
    try MemoryPut.check(options)
    try check(options.condition, on: keyBytes)
    if case .data(let data) = content, data.count <= MemoryPut.byteCountMax {
      let (result, watermark) = try memoryPut.commit(keyBytes, data, options)
      try makeDurable(options.durability, watermark)
      return result
    }
    var put = try streamPut(options)
    if let progress {
      let total = content.knownByteCount()
      put.progress = { done in
        progress(
          WorkProgress(
            phase: "storing", doneByteCount: done, totalByteCount: total > 0 ? max(done, total) : 0))
      }
      // A stream may keep silent for long before its first byte.
      put.progress(0)
    }
    let (result, watermark) = try put.run(keyBytes, content)
    try makeDurable(options.durability, watermark)
    return result
  }

  package func put(_ items: [PutItem], _ options: PutOptions) throws(BlobStorageError) -> [PutResult] {
    try measured { () throws(BlobStorageError) in
      try putUnmeasured(items, options)
    } _: {
      .put($0, $1)
    }
  }

  private func putUnmeasured(
    _ items: [PutItem], _ options: PutOptions
  ) throws(BlobStorageError) -> [PutResult] {
    try checkOpen()
    var prepared: [MemoryPut.Item] = []
    prepared.reserveCapacity(items.count)
    var seen: Set<[UInt8]> = []
    for item in items {
      let key = try Self.keyBytes(item.key)
      try check(options.condition, on: key)
      guard options.condition == .always || seen.insert(key).inserted else {
        throw BlobStorageError(
          .invalidArgument,
          "Two items are for the key “\(item.key)”: under a condition each key is put once.",
          key: item.key)
      }
      prepared.append(try memoryPut.prepare(key, item, options))
    }
    let joined = environment.joinsItems ? try memoryPut.joined(prepared, by: options.codec) : []
    let (results, watermark) = try memoryPut.commit(
      prepared, joined: joined, by: options.codec, promising: options.durability)
    try makeDurable(options.durability, watermark)
    return results
  }

  /// A put of content of any length.
  package func streamPut(_ options: PutOptions) throws(BlobStorageError) -> StreamPut {
    try StreamPut(
      memoryPut, options,
      StreamPut.Batching(
        headByteCount: environment.streamHeadByteCount, batchByteCount: environment.streamBatchByteCount))
  }

  /// Throws at once what the commit would throw, before any content is read or stored.
  package func check(_ condition: ChangeCondition, on key: [UInt8]) throws(BlobStorageError) {
    if condition == .always { return }
    try sharing.requireOwnPacks(
      "A store in a bucket does not support conditions: another machine may change the key at the same time."
    )
    try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.check(condition, on: key)
    }
  }

  /// Makes several changes in one commit: all of them or none.
  package func change(
    _ changes: [BlobChange], _ durability: Durability
  ) throws(BlobStorageError) -> [PutResult?] {
    try checkOpen()
    var items: [MemoryPut.Item] = []
    var deleted: [(key: [UInt8], condition: ChangeCondition)] = []
    var seen: Set<[UInt8]> = []
    for change in changes {
      let key = try Self.keyBytes(change.key)
      guard seen.insert(key).inserted else {
        throw BlobStorageError(
          .invalidArgument,
          "Two changes are for the key “\(change.key)”: a commit changes each key once.",
          key: change.key)
      }
      try check(change.condition, on: key)
      switch change {
      case .put(let item, let replacement, let condition):
        let options = PutOptions(durability: durability, replacement: replacement, condition: condition)
        items.append(try memoryPut.prepare(key, item, options))
      case .delete(_, let condition): deleted.append((key, condition))
      }
    }
    try checkHolds(on: deleted.map(\.key))
    func commitOnce() throws(BlobStorageError) -> ([PutResult], WriterSession.Watermark?) {
      try memoryPut.commit(items, promising: durability, on: deleted.map(\.key)) {
        (commit) throws(BlobStorageError) in
        for (key, condition) in deleted {
          try commit.transaction.check(condition, on: key)
          _ = try commit.dropVersions(of: key, keeping: 0)
        }
      }
    }
    // A caller that only drops wants to free room, so dropping must not need room.
    let (stored, watermark) =
      try items.isEmpty
      ? folder.withReserve { () throws(BlobStorageError) in try commitOnce() } : commitOnce()
    try makeDurable(durability, watermark)
    var results = stored.makeIterator()
    return changes.map { change in
      if case .put = change { results.next() } else { nil }
    }
  }

  package func makeDurable(
    _ durability: Durability, _ watermark: WriterSession.Watermark?
  ) throws(BlobStorageError) {
    guard durability == .durable, let watermark else { return }
    try measured { () throws(BlobStorageError) in
      try writer.synchronize(watermark)
    } _: {
      .synchronized(duration: $1)
    }
  }
}

// MARK: Losses

extension Engine {
  /// The losses that are not accepted yet. A shared store knows of what its last extension found.
  package func losses() throws(BlobStorageError) -> StoreLosses { StoreLosses(try sharing.losses()) }
}
