import BlobStorage

/// Walks the entries of many states at once, in key order.
///
/// Reads the stored entries of each state once, however many states build on it, so the work grows with the changes.
/// Lists unreadable states and continues with the others. For use by one thread.
final class StateForest {
  /// What states have under one key.
  struct Line {
    var key: [UInt8]
    fileprivate(set) var contents: [(content: StateEntry.Content, states: [Range<Int>])] = []
  }

  /// A wanted state, or a state that a wanted one builds on. The states that build on it follow it.
  private struct Node {
    var record: StateRecord
    var isWanted: Bool
    /// The index after the last state that builds on it.
    var end = 0
  }

  private var nodes: [Node] = []
  /// The number of wanted states before each node, and at the end of all.
  private var wantedCounts: [Int] = []
  private var blobs: [OpenBlob] = []
  private var merge = StateMerge([])
  /// The number of failures of the merge that were handled.
  private var settledCount = 0
  /// Wanted states that cannot be read, at all or beyond the last line.
  private(set) var unreadable: [UnreadableState] = []

  init(_ file: StateFile, _ list: StateList, of wanted: some Sequence<TreeState>) throws(BlobStorageError) {
    let wanted = Set(wanted.map(\.id))
    arrange(list, wanted)
    var readers: [StateEntryReader] = []
    do throws(BlobStorageError) {
      for index in nodes.indices {
        do throws(BlobStorageError) {
          let blob = try file.open(nodes[index].record)
          blobs.append(blob)
          readers.append(StateEntryReader(blob))
        } catch {
          readers.append(StateEntryReader { () throws(BlobStorageError) in throw error })
        }
      }
      merge = StateMerge(readers)
      count()
      try settle()
    } catch {
      close()
      throw error
    }
  }

  func close() {
    for blob in blobs { blob.close() }
    blobs = []
  }

  /// Orders the states: each after the one that it builds on.
  private func arrange(_ list: StateList, _ wanted: Set<TreeState.ID>) {
    let records = Dictionary(
      (list.links + list.states).map { ($0.state.id, $0) }, uniquingKeysWith: { $1 })
    // The wanted states, and those that they build on.
    var needed: Set<TreeState.ID> = []
    for id in wanted {
      var next = records[id]
      while let record = next, needed.insert(record.state.id).inserted {
        next = record.parent.flatMap { records[$0] }
      }
    }
    var roots: [StateRecord] = []
    var children: [TreeState.ID: [StateRecord]] = [:]
    for record in (list.links + list.states).reversed() where needed.contains(record.state.id) {
      guard let parent = record.parent else {
        roots.append(record)
        continue
      }
      children[parent, default: []].append(record)
    }
    var seen: Set<TreeState.ID> = []
    // Without recursion: chains have hundreds of states.
    var open: [(record: StateRecord?, index: Int)] = roots.map { ($0, 0) }
    while let (record, index) = open.popLast() {
      guard let record else {
        nodes[index].end = nodes.count
        continue
      }
      guard seen.insert(record.state.id).inserted else { continue }
      open.append((nil, nodes.count))
      nodes.append(Node(record: record, isWanted: wanted.contains(record.state.id)))
      for child in children[record.state.id] ?? [] { open.append((child, 0)) }
    }
    for record in list.states where wanted.contains(record.state.id) && !seen.contains(record.state.id) {
      unreadable.append(UnreadableState(record.state, "a state that it builds on is missing"))
    }
  }

  private func count() {
    wantedCounts = [0]
    for node in nodes { wantedCounts.append(wantedCounts[wantedCounts.count - 1] + (node.isWanted ? 1 : 0)) }
  }

  /// Leaves out the states that need an unreadable one.
  private func settle() throws(BlobStorageError) {
    guard merge.failures.count > settledCount else { return }
    for (index, error) in merge.failures[settledCount...] {
      guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error }
      for needing in index..<nodes[index].end where nodes[needing].isWanted {
        nodes[needing].isWanted = false
        unreadable.append(UnreadableState(nodes[needing].record.state, error.message))
      }
    }
    settledCount = merge.failures.count
    count()
  }

  /// The next key that any readable state has; nil after the last.
  func next() throws(BlobStorageError) -> Line? {
    while true {
      try CancellationFlag.check()
      try settle()
      let group = merge.nextGroup()
      guard let first = group.first else { return nil }
      var line = Line(key: first.entry.key)
      for place in group.indices where group[place].entry.content != .removed {
        let states = states(of: place, in: group)
        if !states.isEmpty { line.contents.append((group[place].entry.content, states)) }
      }
      if !line.contents.isEmpty { return line }
    }
  }

  /// The nodes that have an entry of a group: those that build on its state, except nodes with entries of their own and
  /// those that build on them.
  private func states(of place: Int, in group: [StateMerge.Head]) -> [Range<Int>] {
    var start = group[place].index
    let end = nodes[start].end
    var found: [Range<Int>] = []
    func add(_ range: Range<Int>) {
      if wantedCounts[range.upperBound] > wantedCounts[range.lowerBound] { found.append(range) }
    }
    for other in group[(place + 1)...] {
      if other.index >= end { break }
      // The node builds on another with an entry of its own.
      if other.index < start { continue }
      add(start..<other.index)
      start = nodes[other.index].end
      if start >= end { break }
    }
    add(start..<end)
    return found
  }

  /// The states that these ranges of a line stand for, oldest first.
  func states(in ranges: [Range<Int>]) -> [TreeState] {
    ranges.joined().filter { nodes[$0].isWanted }.map { nodes[$0].record }
      .sorted { $0.index < $1.index }.map(\.state)
  }
}
