import BlobStorage
import BlobStorageCache
import Foundation

/// Shows every key as a folder with a file for each version, beside the folders of the keys that it begins.
package struct VersionsTree: MountedTree {
  private let engine: Engine
  private let keys: CurrentKeys
  private let reads: CacheReads?
  /// A version never changes, but it can be dropped.
  package let nameSeconds: Double = 60

  /// - Parameter reads: the rules of the store's cache.
  package init(_ engine: Engine, _ reads: CacheReads? = nil) {
    self.engine = engine
    self.reads = reads
    keys = CurrentKeys(engine, reads)
  }

  package func item(named name: [UInt8], in folder: [UInt8]) throws(BlobStorageError) -> MountedItem? {
    if let id = Self.versionID(name) {
      guard let key = Self.key(folder), let version = try engine.version(key, id),
        reads?.isExpired(version) != true
      else { return nil }
      return Self.name(of: version) == name ? .file(version) : nil
    }
    let component: [UInt8]
    switch ComponentName(name) {
    case .component(let named), .folder(let named): component = named
    case .long(let start, _):
      let found = try keys.component(startingWith: start, in: folder) { component, _ in
        Self.name(ofFolder: component) == name
      }
      guard let found else { return nil }
      component = found
    }
    let path = folder + component + [UInt8(ascii: "/")]
    guard Self.name(ofFolder: component) == name else { return nil }
    let isThere = try keys.version(at: folder + component) != nil ? true : try keys.hasFolder(path)
    return isThere ? .folder(path) : nil
  }

  package func page(of folder: [UInt8], after place: [UInt8]?) throws(BlobStorageError) -> MountedPage {
    let (found, end) = try keys.components(of: folder, after: place)
    var page = MountedPage(end: end)
    if place == nil, let key = Self.key(folder) {
      let versions = CacheReads.valid(try engine.versions(key), by: reads)
      page.children = versions.reversed().map { (Self.name(of: $0), .file($0)) }
    }
    for (component, version) in found {
      // A component that ends a key was listed before.
      if version == nil, try keys.version(at: folder + component) != nil { continue }
      page.children.append(
        (Self.name(ofFolder: component), .folder(folder + component + [UInt8(ascii: "/")])))
    }
    return page
  }

  /// The key whose versions are in a folder.
  private static func key(_ folder: [UInt8]) -> String? {
    folder.count < 2 ? nil : String(decoding: folder.dropLast(), as: UTF8.self)
  }

  private static let nameByteCount = 53

  /// The name of a version's file: the time of its put, in UTC, and its ID.
  package static func name(of version: BlobVersion) -> [UInt8] {
    let style = Date.ISO8601FormatStyle(
      dateSeparator: .omitted, timeSeparator: .omitted, includingFractionalSeconds: true, timeZone: .gmt)
    // The style truncates milliseconds. A hostile store may have any time.
    let seconds = min(max(version.created.timeIntervalSince1970, -62_135_596_800), 253_402_300_799) + 0.0004
    return Array("\(Date(timeIntervalSince1970: seconds).formatted(style))-\(version.id)".utf8)
  }

  /// The ID in the name of a version's file; nil for any other name.
  private static func versionID(_ name: [UInt8]) -> BlobVersion.ID? {
    let id = name.suffix(32)
    guard name.count == nameByteCount, name.dropLast(id.count).suffix(2).elementsEqual("Z-".utf8) else {
      return nil
    }
    return BlobVersion.ID(String(decoding: id, as: UTF8.self))
  }

  /// The name of the folder for a component. Names of versions are reserved for versions.
  private static func name(ofFolder component: [UInt8]) -> [UInt8] {
    ComponentName.name(of: component, isBesideFile: versionID(component) != nil)
  }
}
