import BlobStorage
import BlobStorageTransfer

/// A tree of folders and files that shows a part of a store: a folder in the root of a mount.
///
/// Its methods run on several threads at once. They keep no transaction open, so they delay no writer and no gc.
package protocol MountedTree: Sendable {
  /// How long the system may use a name before it looks it up again.
  var nameSeconds: Double { get }

  /// The child of that name, or nil. A tree names its folders by bytes of its own choice; its root is the empty name.
  func item(named name: [UInt8], in folder: [UInt8]) throws(BlobStorageError) -> MountedItem?

  /// Some of the children after `place`, which is the end of another page, or nil for the first page.
  func page(of folder: [UInt8], after place: [UInt8]?) throws(BlobStorageError) -> MountedPage

  /// The mark that an import kept of a folder; nil if there is none.
  func mark(ofFolder folder: [UInt8]) throws(BlobStorageError) -> FileMark?
}

extension MountedTree {
  package func mark(ofFolder folder: [UInt8]) -> FileMark? { nil }
}

/// A folder, by its tree's name for it, or a file.
package enum MountedItem: Hashable, Sendable {
  case folder([UInt8])
  case file(BlobVersion)
}

/// Some children of a folder.
package struct MountedPage: Sendable {
  /// The children with their names. No two children of a folder have the same name.
  package var children: [(name: [UInt8], item: MountedItem)] = []
  /// The place where the next page begins; nil if this is the last one.
  package var end: [UInt8]?
}
