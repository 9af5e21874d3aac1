import BlobStorage
import SystemPackage

/// The content of a simulated disk: nodes with a live and a durable side, and the changes between the two.
///
/// A node's `live` side is what processes see. Its `durable` side changes only when pending changes are synced into it,
/// in their order. A change that a failed sync lost stays live and never becomes durable.
struct DiskImage {
  typealias NodeNumber = Int

  struct Node {
    var isDirectory: Bool
    var live: [UInt8] = []
    var durable: [UInt8] = []
    /// Names; in folders only.
    var liveNames: [String: NodeNumber] = [:]
    var durableNames: [String: NodeNumber] = [:]
    var modified = FileTime(seconds: 0, nanoseconds: 0)
    /// Changes of the bytes that no sync has made durable yet.
    var pending: [DataChange] = []
  }

  /// One unsynced change of a file's bytes.
  struct DataChange {
    enum Kind {
      case write(offset: Int, bytes: [UInt8])
      case truncate(Int)
    }
    var number: Int
    var kind: Kind
  }

  /// One unsynced change of names: all of its parts happen or none, as on a journaling file system.
  struct NameChange {
    struct Part {
      var directory: NodeNumber
      var name: String
      /// The node of the name afterwards; nil if the name is gone.
      var node: NodeNumber?
    }
    var number: Int
    var parts: [Part]
    /// Folders that must still be synced before the change is durable.
    var unsynced: Set<NodeNumber>
    var description: String
  }

  static let root: NodeNumber = 1
  var nodes: [NodeNumber: Node] = [root: Node(isDirectory: true)]
  var nextNode: NodeNumber = 2
  var nameChanges: [NameChange] = []
  var nextChange = 1

  /// The components of a path, from the root.
  static func components(_ path: FilePath) -> [String] {
    // Avoids FilePath's own components: in a debug build they take most of a test's time.
    var names: [String] = []
    for name in path.string.split(separator: "/") where name != "." {
      if name == ".." { _ = names.popLast() } else { names.append(String(name)) }
    }
    return names
  }

  func find(_ path: FilePath) throws(SimulatedErrno) -> NodeNumber { try find(Self.components(path)) }

  private func find(_ components: [String]) throws(SimulatedErrno) -> NodeNumber {
    var node = Self.root
    for name in components {
      guard let directory = nodes[node], directory.isDirectory else { throw .init(.notDirectory) }
      guard let next = directory.liveNames[name] else { throw .init(.noSuchFileOrDirectory) }
      node = next
    }
    return node
  }

  /// The folder of the path's last name, and that name.
  func findParent(_ path: FilePath) throws(SimulatedErrno) -> (directory: NodeNumber, name: String) {
    var components = Self.components(path)
    guard let name = components.popLast() else { throw .init(.resourceBusy) }
    let directory = try find(components)
    guard nodes[directory]?.isDirectory == true else { throw .init(.notDirectory) }
    return (directory, name)
  }

  mutating func addNode(isDirectory: Bool) -> NodeNumber {
    defer { nextNode += 1 }
    nodes[nextNode] = Node(isDirectory: isDirectory)
    return nextNode
  }

  mutating func changeNames(_ parts: [NameChange.Part], _ description: String) {
    for part in parts { nodes[part.directory]?.liveNames[part.name] = part.node }
    nameChanges.append(
      NameChange(
        number: nextChangeNumber(), parts: parts, unsynced: Set(parts.map(\.directory)),
        description: description))
  }

  /// Makes the folder's names durable, except changes that other folders still have to sync.
  ///
  /// - Parameter numbers: the changes that the sync covers; nil for all.
  mutating func syncNames(of directory: NodeNumber, _ numbers: Set<Int>? = nil) {
    for index in nameChanges.indices where numbers?.contains(nameChanges[index].number) ?? true {
      nameChanges[index].unsynced.remove(directory)
    }
    for change in nameChanges where change.unsynced.isEmpty { applyDurably(change) }
    nameChanges.removeAll { $0.unsynced.isEmpty }
  }

  mutating func applyDurably(_ change: NameChange) {
    for part in change.parts { nodes[part.directory]?.durableNames[part.name] = part.node }
  }

  mutating func change(_ number: NodeNumber, _ kind: DataChange.Kind, modified: FileTime) {
    guard var node = nodes.removeValue(forKey: number) else { return }
    Self.apply(kind, to: &node.live)
    node.pending.append(DataChange(number: nextChangeNumber(), kind: kind))
    node.modified = modified
    nodes[number] = node
  }

  /// Makes a file's bytes durable.
  ///
  /// - Parameter numbers: the changes that the sync covers; nil for all.
  mutating func syncData(of number: NodeNumber, _ numbers: Set<Int>? = nil) {
    guard var node = nodes.removeValue(forKey: number) else { return }
    let isSynced = { (change: DataChange) in numbers?.contains(change.number) ?? true }
    for change in node.pending where isSynced(change) { Self.apply(change.kind, to: &node.durable) }
    node.pending.removeAll(where: isSynced)
    nodes[number] = node
  }

  /// Simulates a failed sync: the system takes the pages as written from now on, though they never were.
  mutating func loseData(of number: NodeNumber) { nodes[number]?.pending = [] }

  static func apply(_ kind: DataChange.Kind, to bytes: inout [UInt8]) {
    switch kind {
    case .write(let offset, let new):
      let end = offset + new.count
      if bytes.count < end { bytes += [UInt8](repeating: 0, count: end - bytes.count) }
      bytes.replaceSubrange(offset..<end, with: new)
    case .truncate(let count):
      if count <= bytes.count {
        bytes.removeLast(bytes.count - count)
      } else {
        bytes += [UInt8](repeating: 0, count: count - bytes.count)
      }
    }
  }

  /// How many live names a node has.
  func linkCount(of number: NodeNumber) -> Int {
    nodes.values.reduce(0) { sum, node in sum + node.liveNames.values.count { $0 == number } }
  }

  /// Nodes that the root leads to, by live names.
  func reachable() -> Set<NodeNumber> {
    var found: Set<NodeNumber> = [Self.root]
    var open = [Self.root]
    while let number = open.popLast() {
      for next in nodes[number, default: Node(isDirectory: true)].liveNames.values
      where found.insert(next).inserted { open.append(next) }
    }
    return found
  }

  private mutating func nextChangeNumber() -> Int {
    defer { nextChange += 1 }
    return nextChange
  }
}

/// The error of a simulated call, before the path is known.
struct SimulatedErrno: Error {
  var errno: Int32
  init(_ errno: Errno) { self.errno = errno.rawValue }
  init(errno: Int32) { self.errno = errno }
}
