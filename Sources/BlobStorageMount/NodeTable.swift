import BlobStorage
import Synchronization

/// The nodes that the system knows. Each stays until the system forgets it.
final class NodeTable: Sendable {
  static let root: UInt64 = 1

  private struct State: Sendable {
    var nodes: [UInt64: (node: MountedNode, holdCount: UInt64)] = [NodeTable.root: (.root, 1)]
    var numbers: [MountedNode.Identity: UInt64] = [.root: NodeTable.root]
    var lastNumber = NodeTable.root
  }

  private let state = Mutex(State())

  func node(_ number: UInt64) -> MountedNode? { state.withLock { $0.nodes[number]?.node } }

  /// Gives the system one more hold on a node, and returns the node's number.
  func hold(_ node: MountedNode) -> UInt64 {
    let identity = node.identity
    return state.withLock { state in
      if let number = state.numbers[identity] {
        state.nodes[number]?.holdCount += 1
        return number
      }
      state.lastNumber += 1
      state.numbers[identity] = state.lastNumber
      state.nodes[state.lastNumber] = (node, 1)
      return state.lastNumber
    }
  }

  /// Ends this many holds of the system on a node. The root stays.
  func release(_ number: UInt64, _ count: UInt64) {
    state.withLock { state in
      guard number != Self.root, let found = state.nodes[number] else { return }
      if found.holdCount > count {
        state.nodes[number]?.holdCount -= count
      } else {
        state.nodes[number] = nil
        state.numbers[found.node.identity] = nil
      }
    }
  }
}
