import BlobStorage
import BlobStorageTransfer

/// Shows keys as files, in folders by the slashes in the keys.
///
/// If a key also begins other keys, the file gets the name, and the folder another one: ``ComponentName``.
package struct KeyTree<Keys: OrderedKeys>: MountedTree {
  package let keys: Keys
  package let nameSeconds: Double

  package init(_ keys: Keys, nameSeconds: Double) {
    self.keys = keys
    self.nameSeconds = nameSeconds
  }

  package func item(named name: [UInt8], in folder: [UInt8]) throws(BlobStorageError) -> MountedItem? {
    let escaped = EscapedName.key(of: name)
    if escaped.isEscaped, let found = try item(Array(escaped.text.utf8), in: folder) {
      // An import escaped the name in this way.
      switch found {
      case .folder: if String(validating: name, as: UTF8.self) == nil { return found }
      case .file(let version): if version.fileAttributes?.isNameEscaped == true { return found }
      }
    }
    let found: MountedItem?
    let component: [UInt8]
    var isBesideFile = false
    switch ComponentName(name) {
    case .component(let named):
      component = named
      found = try item(component, in: folder)
    case .folder(let named):
      component = named
      isBesideFile = true
      found = try folderItem(component, in: folder)
    case .long(let start, let isFolder):
      let named = try keys.component(startingWith: start, in: folder) { component, isFolder in
        ComponentName.name(of: component) == name
          || isFolder && ComponentName.name(of: component, isBesideFile: true) == name
      }
      guard let named else { return nil }
      component = named
      isBesideFile = isFolder
      found = isFolder ? try folderItem(component, in: folder) : try item(component, in: folder)
    }
    guard ComponentName.name(of: component, isBesideFile: isBesideFile) == name else { return nil }
    return found
  }

  private func item(_ component: [UInt8], in folder: [UInt8]) throws(BlobStorageError) -> MountedItem? {
    if let version = try keys.version(at: folder + component) { return .file(version) }
    let path = folder + component + [UInt8(ascii: "/")]
    return try keys.hasFolder(path) ? .folder(path) : nil
  }

  /// A folder beside a file of the same component.
  private func folderItem(
    _ component: [UInt8], in folder: [UInt8]
  ) throws(BlobStorageError) -> MountedItem? {
    let path = folder + component + [UInt8(ascii: "/")]
    guard try keys.version(at: folder + component) != nil, try keys.hasFolder(path) else { return nil }
    return .folder(path)
  }

  /// The name of a file: its original name, if the key escapes it.
  private static func name(of component: [UInt8], _ version: BlobVersion) -> [UInt8] {
    if version.fileAttributes?.isNameEscaped == true, let name = EscapedName.path(ofKey: component),
      name.count <= ComponentName.byteCountMax
    {
      return name
    }
    return ComponentName.name(of: component)
  }

  package func page(of folder: [UInt8], after place: [UInt8]?) throws(BlobStorageError) -> MountedPage {
    let (found, end) = try keys.components(of: folder, after: place)
    var page = MountedPage(end: end)
    for (component, version) in found {
      if let version {
        page.children.append((Self.name(of: component, version), .file(version)))
      } else {
        let isBesideFile = try keys.version(at: folder + component) != nil
        let name = ComponentName.name(of: component, isBesideFile: isBesideFile)
        page.children.append((name, .folder(folder + component + [UInt8(ascii: "/")])))
      }
    }
    return page
  }
}
