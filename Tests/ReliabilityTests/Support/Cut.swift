import BlobStorageTestSupport

/// A kill of all processes, or a power cut.
enum Cut: CustomStringConvertible {
  case kill
  /// A kill, a recovery, and then a power cut that leaves only what was synced.
  case killThenPower
  case dropAll
  /// Unsynced names stay, unsynced bytes do not.
  case dropData
  /// Unsynced bytes stay, unsynced names do not.
  case dropNames
  /// Of the changes that are not synced, those stay whose bit is set.
  case subset(UInt64)
  /// So many of the oldest stay.
  case oldest(Int)
  /// So many of the newest stay.
  case newest(Int)
  /// Fates, torn writes among them, and an order by chance.
  case seed(UInt64)

  var isPower: Bool { if case .kill = self { false } else { true } }

  /// The most unsynced changes of which a soak tries every subset.
  static let subsetCountMax = 6

  /// The cuts to try at one point; in a daily run two.
  static func all(_ number: Int, _ pending: [PendingChange]) -> [Cut] {
    guard Soak.isOn else {
      let some: [Cut] = [
        .dropAll, .seed(UInt64(number)), .dropData, .killThenPower, .oldest(number % (pending.count + 1)),
      ]
      return [.kill, some[number % some.count]]
    }
    let orders: [Cut] =
      pending.count <= subsetCountMax
      ? (0..<UInt64(1) << UInt64(pending.count)).map { .subset($0) }
      : [.dropAll, .dropData, .dropNames] + (1..<pending.count).map { .oldest($0) }
    return [.kill, .killThenPower] + orders
      + (0..<4).map { .seed(Soak.firstSeed + UInt64(number) * 1_000 + $0) }
  }

  var description: String {
    switch self {
    case .kill: "killed"
    case .killThenPower: "killed, recovered, power cut"
    case .dropAll: "power cut, nothing unsynced stays"
    case .dropNames: "power cut, unsynced bytes stay"
    case .dropData: "power cut, unsynced names stay"
    case .subset(let mask): "power cut, of what is unsynced stays \(String(mask, radix: 2))"
    case .oldest(let count): "power cut, the oldest \(count) unsynced changes stay"
    case .newest(let count): "power cut, the newest \(count) unsynced changes stay"
    case .seed(let seed): "power cut with seed \(seed)"
    }
  }

  func apply(_ disk: SimulatedDisk) -> SimulatedDisk {
    let pending = disk.pendingChanges
    func keep(_ isKept: (Int, PendingChange) -> Bool) -> SimulatedDisk {
      let kept = pending.enumerated().filter { isKept($0.offset, $0.element) }
      return disk.powerCut(keeping: kept.map { ($0.element.number, .whole) })
    }
    return switch self {
    case .kill, .killThenPower, .dropAll: disk.powerCut()
    case .dropNames: keep { $1.byteCount > 0 }
    case .dropData: keep { $1.byteCount == 0 }
    case .subset(let mask): keep { place, _ in mask >> UInt64(place) & 1 == 1 }
    case .oldest(let count): keep { place, _ in place < count }
    case .newest(let count): keep { place, _ in place >= pending.count - count }
    case .seed(let seed): disk.powerCut(seed: seed)
    }
  }
}
