import BlobStorage
import Synchronization
import SystemPackage

/// Caches parts of published packs on this machine's disk, up to a limit. Evicts packs that this process has not used
/// first, then the least recently used.
///
/// Each pack with cached blocks has one file: a map of 64 KiB with one checksum for each block, then the blocks at
/// their places. A checksum of 0 means that the block is absent. A pack written on this machine is kept whole if it has
/// at most a quarter of the limit. Any number of processes share the folder. A block with a checksum mismatch counts as
/// absent and is fetched again.
package final class RangeCache: Sendable {
  package static let blockByteCount = 64 << 10
  private static let mapByteCount: Int64 = 64 << 10
  private static let openCountMax = 64

  private struct State: Sendable {
    var open: [PackName: any File] = [:]
    var lastUse: [PackName: UInt64] = [:]
    var clock: UInt64 = 0
    /// Bytes added since this process measured the folder; nil before. Many short processes may add little each, so
    /// each measures it once.
    var addedByteCount: Int64?
  }

  private let folder: FilePath
  private let files: any FileSystem
  let byteCountMax: Int64
  private let state = Mutex(State())
  private let roomMade = Mutex<(@Sendable (Set<PackName>) -> Void)?>(nil)

  package init(folder: FilePath, files: any FileSystem, byteCountMax: Int64) {
    self.folder = folder
    self.files = files
    self.byteCountMax = byteCountMax
  }

  private func partsPath(_ name: PackName) -> FilePath { folder.entry("\(name).parts") }
  private func wholePath(_ name: PackName) -> FilePath { folder.entry(name.fileName) }

  // MARK: Blocks

  /// Reads cached blocks into the buffer. Returns the range that covers all absent blocks, or nil if there are none.
  ///
  /// - Parameter buffer: has the length of the blocks; the last block of a pack may be shorter.
  package func load(
    _ name: PackName, _ blocks: Range<Int>, into buffer: UnsafeMutableRawBufferPointer
  ) -> Range<Int>? {
    guard let file = file(name, creates: false) else { return blocks }
    var missing: Range<Int>?
    do throws(BlobStorageError) {
      let map = try file.bytesThere(at: Int64(blocks.lowerBound * 4), blocks.count * 4)
      for block in blocks {
        let index = block - blocks.lowerBound
        let start = index * Self.blockByteCount
        let target = UnsafeMutableRawBufferPointer(
          rebasing: buffer[start..<min(start + Self.blockByteCount, buffer.count)])
        let checksum =
          map.count < index * 4 + 4
          ? 0
          : map.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: index * 4, as: UInt32.self) }.littleEndian
        if checksum != 0, try file.read(into: target, at: place(of: block)) == target.count,
          CRC32C.checksum(target.bytes) == checksum
        {
          continue
        }
        missing = (missing?.lowerBound ?? block)..<block + 1
      }
      return missing
    } catch {
      return blocks
    }
  }

  /// Caches blocks. Failures are ignored: the next read fetches the blocks again.
  package func store(_ name: PackName, _ blocks: Range<Int>, _ bytes: UnsafeRawBufferPointer) {
    guard byteCountMax > 0, let file = file(name, creates: true) else { return }
    do throws(BlobStorageError) {
      try file.write(bytes, at: place(of: blocks.lowerBound))
      var map = ByteWriter(capacity: blocks.count * 4)
      for start in stride(from: 0, to: bytes.count, by: Self.blockByteCount) {
        let end = min(start + Self.blockByteCount, bytes.count)
        map.integer(CRC32C.checksum(bytes.bytes.extracting(start..<end)))
      }
      try file.put(map.bytes, at: Int64(blocks.lowerBound * 4))
    } catch {
      // No room, or no permission: the cache is optional.
    }
    count(Int64(bytes.count))
  }

  /// The range that covers all absent blocks, by the map alone. Damaged blocks are found when they are read.
  package func missing(_ name: PackName, _ blocks: Range<Int>) -> Range<Int>? {
    guard let file = file(name, creates: false) else { return blocks }
    do throws(BlobStorageError) {
      let map = try file.bytesThere(at: Int64(blocks.lowerBound * 4), blocks.count * 4)
      let isThere = { (block: Int) in
        let index = (block - blocks.lowerBound) * 4
        return index + 4 <= map.count && map[index..<index + 4].contains { $0 != 0 }
      }
      guard let first = blocks.first(where: { !isThere($0) }),
        let last = blocks.last(where: { !isThere($0) })
      else { return nil }
      return first..<last + 1
    } catch {
      return blocks
    }
  }

  /// Marks blocks as absent.
  func forget(_ name: PackName, _ blocks: Range<Int>) {
    guard let file = file(name, creates: false) else { return }
    do throws(BlobStorageError) {
      let offset = Int64(blocks.lowerBound * 4)
      guard try file.bytesThere(at: offset, blocks.count * 4).contains(where: { $0 != 0 }) else { return }
      try file.put([UInt8](repeating: 0, count: blocks.count * 4), at: offset)
    } catch {
      // Blocks with a checksum mismatch are fetched again all the same.
    }
  }

  private func place(of block: Int) -> Int64 { Self.mapByteCount + Int64(block) * Int64(Self.blockByteCount) }

  private func file(_ name: PackName, creates: Bool) -> (any File)? {
    let known = state.withLock { state -> (any File)? in
      state.clock += 1
      state.lastUse[name] = state.clock
      return state.open[name]
    }
    do throws(BlobStorageError) {
      // Another process may have evicted it.
      if let known, !creates { return known }
      if let known, try files.names(partsPath(name), known) { return known }
      let file = try files.open(partsPath(name), creates ? .openOrCreate : .readWrite)
      // Close the replaced file outside of the lock.
      _ = state.withLock { state -> (any File)? in
        defer { state.open[name] = file }
        if let old = state.open.removeValue(forKey: name) { return old }
        guard state.open.count >= Self.openCountMax else { return nil }
        let oldest = state.open.keys.min { state.lastUse[$0] ?? 0 < state.lastUse[$1] ?? 0 }
        return oldest.flatMap { state.open.removeValue(forKey: $0) }
      }
      return file
    } catch {
      return nil
    }
  }

  // MARK: Whole packs

  /// Opens a pack that was written on this machine and is cached whole.
  func whole(_ name: PackName) -> (any File)? {
    do throws(BlobStorageError) {
      let file = try files.open(wholePath(name), .read)
      state.withLock { state in
        state.clock += 1
        state.lastUse[name] = state.clock
      }
      return file
    } catch { return nil }
  }

  /// Moves the file of a whole pack into the cache, or deletes it if the cache cannot keep it.
  func adopt(_ file: FilePath, _ name: PackName, byteCount: Int64) throws(BlobStorageError) {
    guard byteCount <= byteCountMax / 4 else {
      try files.remove(file)
      return
    }
    try files.rename(file, to: wholePath(name))
    count(byteCount)
  }

  // MARK: Room

  /// Registers a callback for evicted packs. Their bytes stay on the disk until all processes have closed them.
  func whenRoomIsMade(_ body: @escaping @Sendable (Set<PackName>) -> Void) {
    roomMade.withLock { $0 = body }
  }

  /// Deletes everything cached of a pack.
  func forget(_ name: PackName) {
    _ = state.withLock { state in
      state.lastUse[name] = nil
      return state.open.removeValue(forKey: name)
    }
    for path in [partsPath(name), wholePath(name)] { files.discard(path) }
  }

  private func count(_ byteCount: Int64) {
    let isDue = state.withLock { state in
      let sum = state.addedByteCount.map { $0 + byteCount }
      if let sum, sum <= byteCountMax / 8 {
        state.addedByteCount = sum
        return false
      }
      state.addedByteCount = 0
      return true
    }
    if isDue { makeRoom() }
  }

  /// Evicts packs until the folder is below its limit, with some room for new blocks.
  func makeRoom() {
    do throws(BlobStorageError) {
      var kept: [(name: PackName, byteCount: Int64, lastUse: UInt64, modified: Int64)] = []
      let lastUse = state.withLock { $0.lastUse }
      for fileName in try files.list(folder) {
        guard let name = PackName(fileName: fileName) ?? PackName(fileName: fileName, ending: "parts"),
          let status = try files.status(of: folder.entry(fileName))
        else { continue }
        kept.append((name, status.allocatedByteCount, lastUse[name] ?? 0, status.modified.seconds))
      }
      var sum = kept.reduce(0) { $0 + $1.byteCount }
      guard sum > byteCountMax - byteCountMax / 8 else { return }
      kept.sort { ($0.lastUse, $0.modified) < ($1.lastUse, $1.modified) }
      var gone: Set<PackName> = []
      for part in kept where sum > byteCountMax - byteCountMax / 4 {
        forget(part.name)
        gone.insert(part.name)
        sum -= part.byteCount
      }
      roomMade.withLock { $0 }?(gone)
    } catch {
      // The next thread that adds blocks tries again.
    }
  }
}
