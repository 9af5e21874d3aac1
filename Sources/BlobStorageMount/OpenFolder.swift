import BlobStorage

/// A folder that a program lists, with the last two pages of its children in memory: the system asks again for children
/// that the program had no room for.
final class OpenFolder: Sendable {
  typealias Child = (name: [UInt8], node: MountedNode)
  typealias Paging =
    @Sendable (_ place: [UInt8]?) throws(BlobStorageError) -> (children: [Child], end: [UInt8]?)

  private struct State: Sendable {
    var firstIndex = 0
    var children: [Child] = []
    /// How many of them are on the last page.
    var lastPageCount = 0
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
  /// - Complexity: an index before the pages in memory lists the folder again.
  func child(at index: Int) throws(BlobStorageError) -> Child? {
    try state.withLock { (state) throws(BlobStorageError) in
      if index < state.firstIndex { state = State() }
      while index >= state.firstIndex + state.children.count {
        guard !state.isAtEnd else { return nil }
        let (children, end) = try page(state.end)
        (state.end, state.isBegun) = (end, true)
        if children.isEmpty { continue }
        let passedCount = state.children.count - state.lastPageCount
        state.firstIndex += passedCount
        state.children.removeFirst(passedCount)
        state.children += children
        state.lastPageCount = children.count
      }
      return state.children[index - state.firstIndex]
    }
  }
}
