import BlobStorage
import SystemPackage

/// The medium at any moment of what ``RecordedFiles`` recorded: replays the events on a simulated disk.
///
/// A sync makes durable what had ended before it began. What a failed sync left unsynced stays uncertain for good.
package struct RecordedDisk {
  private struct Sync {
    var directory: DiskImage.NodeNumber?
    /// The changes that it makes durable.
    var changes: Set<Int>
    var file: DiskImage.NodeNumber?
  }

  private let events: [RecordedFiles.Event]
  private let prefixCount: Int
  private var image = DiskImage()
  private var nodes: [Int: DiskImage.NodeNumber] = [:]
  /// Changes of bytes that have not ended, by call.
  private var open: [Int: Int] = [:]
  /// Changes that no sync makes durable: those that have not ended, and those of failed syncs.
  private var uncertain: Set<Int> = []
  private var syncs: [Int: Sync] = [:]
  /// The number of events played.
  package private(set) var moment = 0

  /// The disk before the first event. The recorder's root is `/`.
  package init(_ files: RecordedFiles) {
    events = files.events
    prefixCount = files.root.string.utf8.count
  }

  package var momentCount: Int { events.count }

  /// Whether the next event ends a sync: then much is uncertain.
  package var isBeforeEndOfSync: Bool {
    guard moment < events.count, case .ended(let call) = events[moment] else { return false }
    return syncs[call] != nil
  }

  /// The disk at this moment, with the changes that a power cut may undo.
  package var disk: SimulatedDisk { SimulatedDisk(image) }

  /// Plays the events up to that moment, which must not be earlier than the current one.
  package mutating func advance(to moment: Int) throws {
    precondition(self.moment...events.count ~= moment)
    while self.moment < moment {
      try play(events[self.moment])
      self.moment += 1
    }
  }

  private func inside(_ path: FilePath) -> FilePath {
    FilePath(String(decoding: path.string.utf8.dropFirst(prefixCount), as: UTF8.self))
  }

  private mutating func play(_ event: RecordedFiles.Event) throws {
    switch event {
    case .createDirectory(let path): addNode(try parent(path), isDirectory: true, "create the folder \(path)")
    case .create(let path, let file):
      nodes[file] = addNode(try parent(path), isDirectory: false, "create \(path)")
    case .rename(let from, let to):
      let (source, target) = (try parent(from), try parent(to))
      image.changeNames(
        [
          .init(directory: source.directory, name: source.name, node: nil),
          .init(directory: target.directory, name: target.name, node: try image.find(inside(from))),
        ], "rename \(from) to \(to)")
    case .remove(let path), .removeDirectory(let path):
      let place = try parent(path)
      image.changeNames([.init(directory: place.directory, name: place.name, node: nil)], "remove \(path)")
    case .write(let call, let file, let offset, let bytes):
      change(call, file, .write(offset: offset, bytes: bytes))
    case .append(let call, let file, let bytes):
      let end = nodes[file].flatMap { image.nodes[$0]?.live.count } ?? 0
      change(call, file, .write(offset: end, bytes: bytes))
    case .truncate(let call, let file, let byteCount): change(call, file, .truncate(byteCount))
    case .sync(let call, let file):
      guard let node = nodes[file] else { return }
      let pending = image.nodes[node]?.pending.map(\.number) ?? []
      syncs[call] = Sync(changes: Set(pending).subtracting(uncertain), file: node)
    case .syncDirectory(let call, let path):
      syncs[call] = Sync(
        directory: try image.find(inside(path)), changes: Set(image.nameChanges.map(\.number)))
    case .ended(let call): end(call)
    case .failed(let call):
      // A failed write may have changed any part of the file.
      if open[call] != nil { end(call) }
      if let sync = syncs.removeValue(forKey: call), let file = sync.file {
        uncertain.formUnion(image.nodes[file]?.pending.map(\.number) ?? [])
      }
    }
  }

  private func parent(_ path: FilePath) throws -> (directory: DiskImage.NodeNumber, name: String) {
    try image.findParent(inside(path))
  }

  @discardableResult
  private mutating func addNode(
    _ place: (directory: DiskImage.NodeNumber, name: String), isDirectory: Bool, _ description: String
  ) -> DiskImage.NodeNumber {
    let node = image.addNode(isDirectory: isDirectory)
    image.changeNames([.init(directory: place.directory, name: place.name, node: node)], description)
    return node
  }

  private mutating func change(_ call: Int, _ file: Int, _ kind: DiskImage.DataChange.Kind) {
    guard let node = nodes[file] else { return }
    open[call] = image.nextChange
    uncertain.insert(image.nextChange)
    image.change(node, kind, modified: FileTime(seconds: 1_000_000 + Int64(moment), nanoseconds: 0))
  }

  private mutating func end(_ call: Int) {
    if let number = open.removeValue(forKey: call) { uncertain.remove(number) }
    guard let sync = syncs.removeValue(forKey: call) else { return }
    if let directory = sync.directory { image.syncNames(of: directory, sync.changes) }
    if let file = sync.file { image.syncData(of: file, sync.changes) }
  }
}
