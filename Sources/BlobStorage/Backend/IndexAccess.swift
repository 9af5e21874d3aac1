/// How a catalog reads an index.
package struct IndexAccess: Sendable {
  /// Opens a part, whose length is known.
  package let open: @Sendable (_ name: PackName, _ byteCount: Int64) -> any File
  /// Takes an index that is damaged: it does not count from then on.
  package let distrust: @Sendable (IndexRoot) -> Void

  package init(
    open: @escaping @Sendable (PackName, Int64) -> any File, distrust: @escaping @Sendable (IndexRoot) -> Void
  ) {
    self.open = open
    self.distrust = distrust
  }
}
