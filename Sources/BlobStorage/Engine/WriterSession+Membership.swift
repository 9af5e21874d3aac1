import Logging
import Synchronization

/// Where packs are published: collectors wait for the writer, from before it looks anything up until all is published.
extension WriterSession {
  /// Registers the writer, unless it is. What was looked up before is not to be relied on.
  package func join() throws(BlobStorageError) { try member?.join(writerID) }

  /// Goes on under another number if a collector has waited for this one in vain while nothing was left to publish.
  ///
  /// A thread that writes at this moment comes first, and then the number stays, or it finds the new number registered.
  func renewIfFenced() throws(BlobStorageError) {
    guard let member, let publisher else { return }
    guard let next = nextIfIdle(), try member.isFenced(before: next) else { return }
    let isRenewed = try member.renew { (writer) in
      locked { state in
        guard isIdle(state), state.nextSequence == next.sequence else { return false }
        state.nextSequence = 1
        number.store(writer, ordering: .relaxed)
        publisher.begin(as: writer)
        return true
      }
    }
    if isRenewed {
      logger.info("Another machine waited for this writer too long; it goes on under a new number.")
    }
  }

  /// The next pack, if all that was written is published.
  private func nextIfIdle() -> PackName? {
    locked { state -> PackName? in
      isIdle(state) ? PackName(writer: writerID, sequence: state.nextSequence) : nil
    }
  }

  /// Whether all that was written is published.
  private func isIdle(_ state: State) -> Bool {
    guard let publisher, state.poison == nil, state.sealFailure == nil, state.writer == nil,
      state.full.isEmpty,
      state.pending.isEmpty, state.sealingCount == 0
    else { return false }
    return publisher.isDone(before: state.nextSequence)
  }

  /// Puts everything on the medium. Where packs are published nothing is written from then on, and collectors wait no
  /// more.
  ///
  /// - Throws: when what was written may not be on the medium.
  package func close() throws(BlobStorageError) {
    guard let member else {
      do throws(BlobStorageError) { try rollOver() } catch { try closePublished(because: error) }
      return
    }
    do throws(BlobStorageError) {
      repeat { try rollOver() } while !endIfIdle()
    } catch {
      // Nothing is published under that number any more, so no collector needs to wait for it.
      if error.code == .fenced { leave(member) }
      throw error
    }
    leave(member)
  }

  /// Leaves packs whose records are published but could not be settled, on a full disk for example. They are forced to
  /// the medium. The next process to open the store settles them.
  private func closePublished(because error: BlobStorageError) throws(BlobStorageError) {
    let published = locked { (state) -> [Watermark] in
      guard publishesInTable, state.poison == nil, state.pending.isEmpty,
        state.full.allSatisfy({ state.slots[$0.name] != nil })
      else { return [] }
      return state.full.map { Watermark(pack: $0.name, byteCount: $0.writtenByteCount) }
    }
    if published.isEmpty { throw error }
    for watermark in published { try synchronize(watermark) }
    logger.warning(
      "The catalog lags behind until it can be written.", metadata: ["reason": "\(error.message)"])
  }

  private func endIfIdle() -> Bool {
    locked { state -> Bool in
      guard isIdle(state) else { return false }
      state.poison = BlobStorageError(.closed, "The store was closed.")
      return true
    }
  }

  private func leave(_ member: SharedMember) {
    do throws(BlobStorageError) { try member.leave() } catch {
      // The next opening of the state folder, or a collector, ends the registration.
      logger.warning("The writer is still registered.", metadata: ["reason": "\(error.message)"])
    }
  }
}
