import BlobStorage

/// A folder that a program lists, with one page of its children in memory.
final class OpenFolder: Sendable {
  typealias Child = (name: [UInt8], node: MountedNode)
  typealias Paging =
    @Sendable (_ place: [UInt8]?) throws(BlobStorageError) -> (children: [Child], end: [UInt8]?)

  private struct State: Sendable {
    var firstIndex = 0
    var children: [Child] = []
    var end: [UInt8]?
    var isBegun = false

    var isAtEnd: Bool { isBegun && end == nil }
  }

  let node: MountedNode
  let nameSeconds: Double
  private let page: Paging
  private let state = IOLock(State())

  init(_ node: MountedNode, nameSeconds: Double, _ page: @escaping Paging) {
    self.node = node
    self.nameSeconds = nameSeconds
    self.page = page
  }

  /// The child at an index; nil after the last one.
  ///
  /// - Complexity: an index before the page in memory lists the folder again.
  func child(at index: Int) throws(BlobStorageError) -> Child? {
    try state.withLock { (state) throws(BlobStorageError) in
      if index < state.firstIndex { state = State() }
      while index >= state.firstIndex + state.children.count {
        guard !state.isAtEnd else { return nil }
        let (children, end) = try page(state.end)
        state.firstIndex += state.children.count
        (state.children, state.end, state.isBegun) = (children, end, true)
      }
      return state.children[index - state.firstIndex]
    }
  }
}
