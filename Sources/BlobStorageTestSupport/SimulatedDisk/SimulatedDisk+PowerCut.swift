import BlobStorage
import Synchronization
import SystemPackage

/// A change that a power cut may undo.
package struct PendingChange: Sendable, CustomStringConvertible {
  /// Its number among all changes of the disk; later changes have higher numbers.
  package let number: Int
  /// Bytes of a write; 0 for any other change.
  package let byteCount: Int
  package let description: String
}

/// The effect of a power cut on one change.
package enum PowerCutFate: Sendable, Hashable {
  case whole
  case dropped
  /// Keeps the first bytes of a write. Drops any other change.
  case prefix(byteCount: Int)
  /// Keeps the 512-byte sectors of a write whose bit is set; bit n % 64 stands for sector n of the write. The file is
  /// as long as if all were kept. Drops any other change.
  case sectors(mask: UInt64)
}

extension SimulatedDisk {
  /// The changes that a power cut now may undo, oldest first.
  package var pendingChanges: [PendingChange] { state.withLock { $0.image.pendingChanges } }

  /// The disk after a power cut that drops every unsynced change.
  package func powerCut() -> SimulatedDisk { powerCut(keeping: []) }

  /// The disk after a power cut that keeps these changes, in this order, and no others.
  ///
  /// Changes of names always keep their own order among each other.
  package func powerCut(keeping kept: [(number: Int, fate: PowerCutFate)]) -> SimulatedDisk {
    SimulatedDisk(state.withLock { $0.image.afterPowerCut(keeping: kept) })
  }

  /// The disk after a power cut in which the seed decides the fate and the order of all unsynced changes.
  package func powerCut(seed: UInt64) -> SimulatedDisk {
    var generator = SplitMix64(seed: seed)
    var kept: [(number: Int, fate: PowerCutFate)] = []
    // Some cuts lose nearly all, some nearly nothing: one middling probability would seldom do either.
    let percentLost = [5, 30, 60, 95].randomElement(using: &generator) ?? 30
    for change in pendingChanges {
      let isLost = Int.random(in: 0..<100, using: &generator) < percentLost
      let fate: PowerCutFate =
        switch (isLost, Int.random(in: 0..<10, using: &generator)) {
        case (false, _): .whole
        case (true, 0..<3): .prefix(byteCount: .random(in: 0...change.byteCount, using: &generator))
        case (true, 3..<6): .sectors(mask: generator.next())
        case (true, _): .dropped
        }
      kept.append((change.number, fate))
    }
    if Bool.random(using: &generator) { kept.shuffle(using: &generator) }
    return powerCut(keeping: kept)
  }
}

extension DiskImage {
  var pendingChanges: [PendingChange] {
    var changes = nameChanges.map {
      PendingChange(number: $0.number, byteCount: 0, description: $0.description)
    }
    for (number, node) in nodes {
      for change in node.pending {
        switch change.kind {
        case .write(let offset, let bytes):
          let description = "write \(offset)..<\(offset + bytes.count) of node \(number)"
          changes.append(.init(number: change.number, byteCount: bytes.count, description: description))
        case .truncate(let count):
          let description = "make node \(number) \(count) bytes long"
          changes.append(.init(number: change.number, byteCount: 0, description: description))
        }
      }
    }
    return changes.sorted { $0.number < $1.number }
  }

  func afterPowerCut(keeping kept: [(number: Int, fate: PowerCutFate)]) -> DiskImage {
    var cut = self
    let fates = Dictionary(kept.map { ($0.number, $0.fate) }, uniquingKeysWith: { first, _ in first })
    for change in nameChanges where fates[change.number] == .whole { cut.applyDurably(change) }
    let places = Dictionary(
      kept.enumerated().map { ($0.element.number, $0.offset) }, uniquingKeysWith: { first, _ in first })
    for (number, node) in nodes {
      var bytes = node.durable
      let changes = node.pending.filter { places[$0.number] != nil }
        .sorted { places[$0.number, default: 0] < places[$1.number, default: 0] }
      for change in changes { Self.apply(change.kind, fates[change.number] ?? .dropped, to: &bytes) }
      cut.nodes[number]?.durable = bytes
      cut.nodes[number]?.live = bytes
      cut.nodes[number]?.pending = []
    }
    cut.nameChanges = []
    for (number, node) in cut.nodes { cut.nodes[number]?.liveNames = node.durableNames }
    let reachable = cut.reachable()
    cut.nodes = cut.nodes.filter { reachable.contains($0.key) }
    return cut
  }

  private static func apply(_ kind: DataChange.Kind, _ fate: PowerCutFate, to bytes: inout [UInt8]) {
    switch (fate, kind) {
    case (.whole, _): apply(kind, to: &bytes)
    case (.prefix(let count), .write(let offset, let new)):
      if count > 0 { apply(.write(offset: offset, bytes: Array(new.prefix(count))), to: &bytes) }
    case (.sectors(let mask), .write(let offset, let new)):
      if bytes.count < offset + new.count { apply(.truncate(offset + new.count), to: &bytes) }
      var start = offset
      var sector = 0
      while start < offset + new.count {
        let end = min((start / 512 + 1) * 512, offset + new.count)
        if mask >> UInt64(sector % 64) & 1 == 1 {
          apply(.write(offset: start, bytes: Array(new[start - offset..<end - offset])), to: &bytes)
        }
        start = end
        sector += 1
      }
    case (.dropped, _), (.prefix, .truncate), (.sectors, .truncate): break
    }
  }
}
