import CBlobKernels
import Synchronization
import SystemPackage

/// The folder of an open store, held by descriptor, whatever its path names later.
///
/// ``SystemFiles`` resolves every path below the folder relative to the held descriptors. So a store never reads or
/// writes in another folder that takes its folder's place, and a sync of names opens nothing. ``check()`` finds out
/// that the path names another folder. That ends the store for good: what it stores would be missing from the folder
/// that the program was told to use.
package final class FolderAnchor: Sendable {
  private final class Held: Sendable {
    let gate: DescriptorGate
    let identity: FileIdentity
    /// The path by which the program finds the folder, which may contain links.
    let name: [CChar]

    init(owning descriptor: Int32, _ identity: FileIdentity, name: [CChar]) {
      gate = DescriptorGate(owning: descriptor)
      self.identity = identity
      self.name = name
    }
  }

  private struct Header: Sendable {
    var storeID: [UInt8]
    var identity: FileIdentity?
  }

  /// The path that the program uses, which may contain links.
  private let path: FilePath
  /// The bytes of the path without links, as ``SystemFiles`` gets it.
  private let root: [CChar]
  private let folder: Held
  private let packs = Mutex<Held?>(nil)
  private let header = Mutex<Header?>(nil)
  private let headerName: [CChar]
  private let ending = Mutex<BlobStorageError?>(nil)
  private let hasEnded = Atomic<Bool>(false)

  /// Opens the folder.
  ///
  /// - Parameters:
  ///   - path: an absolute path, which may contain links.
  ///   - root: the same path without links.
  package init(_ path: FilePath, root: FilePath) throws(BlobStorageError) {
    self.path = path
    let text = [CChar](terminating: root.bytes)
    self.root = root.bytes == [UInt8(ascii: "/")] ? [0] : text
    headerName = [CChar](terminating: path.entry("store").bytes)
    let (descriptor, status) = try Self.openFolder(bs_working_directory(), text, root)
    // With the dot, a link in the last place is followed, too.
    folder = Held(
      owning: descriptor, status.identity, name: [CChar](terminating: path.bytes + Array("/.".utf8)))
  }

  private static func openFolder(
    _ directory: Int32, _ name: [CChar], _ path: FilePath
  ) throws(BlobStorageError) -> (descriptor: Int32, status: FileStatus) {
    let descriptor = Int32(
      try systemCall("open the folder", path) { bs_open_at(directory, name, Int32(BS_OPEN_DIRECTORY)) })
    var raw = bs_status()
    let outcome = uninterrupted { bs_status_of(descriptor, &raw) }
    guard outcome >= 0 else {
      closeDescriptor(descriptor)
      throw .systemCall("stat", path: path, errno: Int32(-outcome))
    }
    return (descriptor, FileStatus(raw))
  }

  /// Holds the folder `packs`, too, which exists.
  package func holdPacks() throws(BlobStorageError) {
    let path = path.entry(Self.packsName)
    let opened = try folder.gate.enter { (directory) throws(BlobStorageError) in
      try Self.openFolder(directory, [CChar](terminating: Self.packsName.utf8), path)
    }
    guard let (descriptor, status) = opened else { throw Self.closed }
    let held = Held(owning: descriptor, status.identity, name: [CChar](terminating: path.bytes))
    packs.withLock { $0 = held }
  }

  /// Makes ``check()`` compare the ID of the store in the folder.
  package func expectStore(_ id: [UInt8]) {
    let identity = Self.status(headerName).status?.identity
    header.withLock { $0 = Header(storeID: id, identity: identity) }
  }

  /// Closes the descriptors. Later calls throw `closed`.
  package func close() {
    folder.gate.shutGate()
    packs.withLock { $0.take() }?.gate.shutGate()
  }

  // MARK: Paths below the folder

  private static let packsName = "packs"
  private static let packsBytes = packsName.utf8.map { CChar(bitPattern: $0) }
  private static let slash = CChar(bitPattern: UInt8(ascii: "/"))

  /// Calls `body` with a folder's descriptor and the path relative to it; outside of the held folder, with the working
  /// folder and the path itself.
  ///
  /// - Returns: what `body` returns, or the negative `errno` for a bad descriptor after ``close()``.
  func resolve(_ path: UnsafePointer<CChar>, _ body: (Int32, UnsafePointer<CChar>) -> Int) -> Int {
    guard let relative = Self.rest(of: path, behind: root.dropLast()) else {
      return body(bs_working_directory(), path)
    }
    if let inPacks = Self.rest(of: relative, behind: Self.packsBytes[...]),
      let packs = packs.withLock({ $0 })
    {
      return Self.call(packs, inPacks, body)
    }
    return Self.call(folder, relative, body)
  }

  private static func call(
    _ held: Held, _ relative: UnsafePointer<CChar>, _ body: (Int32, UnsafePointer<CChar>) -> Int
  ) -> Int {
    let outcome = held.gate.enter { (descriptor) -> Int in
      relative.pointee == 0 ? ".".withCString { body(descriptor, $0) } : body(descriptor, relative)
    }
    return outcome ?? -Int(Errno.badFileDescriptor.rawValue)
  }

  /// The path behind a folder's: empty for the folder itself, nil for a path that does not begin with it.
  private static func rest(
    of path: UnsafePointer<CChar>, behind folder: ArraySlice<CChar>
  ) -> UnsafePointer<CChar>? {
    var place = path
    for character in folder {
      guard place.pointee == character else { return nil }
      place += 1
    }
    guard place.pointee == 0 || place.pointee == slash else { return nil }
    while place.pointee == slash { place += 1 }
    return place
  }

  /// Syncs the names of a held folder without opening it; nil for any other path.
  func synchronizeHeld(_ path: UnsafePointer<CChar>) -> Int? {
    var outcome: Int?
    let isSynced = resolve(path) { (directory, relative) in
      guard relative[0] == CChar(UInt8(ascii: ".")), relative[1] == 0 else { return 0 }
      outcome = bs_sync_all(directory)
      return 0
    }
    return isSynced < 0 ? isSynced : outcome
  }

  /// Calls `body` with a path for code that opens files by itself. It leads into the held folder where the system has
  /// `/proc`; elsewhere it is `path`, and the caller has to compare what was opened.
  func withSystemPath<T>(
    _ path: FilePath, _ body: (String) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let relative = path.withPlatformString { text in
      Self.rest(of: text, behind: root.dropLast()).map { String(cString: $0) }
    }
    guard let relative else { return try body(path.string) }
    let result = try folder.gate.enter { (descriptor) throws(BlobStorageError) -> T in
      let held = "/proc/self/fd/\(descriptor)/"
      let isThere = Self.status([CChar](terminating: (held + ".").utf8)).status?.identity == folder.identity
      return try body(isThere ? held + relative : path.string)
    }
    guard let result else { throw Self.closed }
    return result
  }

  // MARK: Identity

  private static var closed: BlobStorageError { BlobStorageError(.closed, "The store was closed.") }

  /// - Throws: `closed` once a check has found another folder. Makes no system call.
  package func checkNotEnded() throws(BlobStorageError) {
    guard hasEnded.load(ordering: .acquiring), let error = ending.withLock({ $0 }) else { return }
    throw error
  }

  /// Compares the folder that the path names now with the held one.
  ///
  /// - Throws: `closed` if it is another one, or none: then all later calls do, too. Other errors say that the path
  ///   cannot be looked at now, and end nothing.
  /// - Complexity: three system calls.
  package func check() throws(BlobStorageError) {
    try checkNotEnded()
    switch try compare(folder) {
    case .same: break
    case .missing:
      throw end(
        "The store's folder \(path) was moved or deleted while the store was open: open the store again where it is."
      )
    case .other:
      throw end(
        "Another folder has taken the place of the store's folder \(path): open the store again to use that one."
      )
    }
    if let packs = packs.withLock({ $0 }), try compare(packs) != .same {
      throw end(
        "The folder “packs” of the store at \(path) was moved, deleted or replaced while the store was open: "
          + "open the store again.")
    }
    try compareStore()
  }

  /// Like ``check()``, but ignores that the path cannot be looked at now.
  package func look() throws(BlobStorageError) {
    do { try check() } catch { if error.code == .closed { throw error } }
  }

  /// Ends the store's use of the folder, because a file that only this process may remove has lost its name.
  package func endWithout(_ what: String) -> BlobStorageError {
    end(
      "A program has deleted \(what) from the store at \(path): open the store again, and repeat the last changes."
    )
  }

  /// Ends the store's use of the folder. Returns the error that all later calls throw.
  private func end(_ message: String) -> BlobStorageError {
    var error = BlobStorageError(.closed, message, path: path.string)
    error.folderHasChanged = true
    return ending.withLock { ending in
      let first = ending ?? error
      ending = first
      hasEnded.store(true, ordering: .releasing)
      return first
    }
  }

  private enum Comparison { case same, other, missing }

  private func compare(_ held: Held) throws(BlobStorageError) -> Comparison {
    let (found, errno) = Self.status(held.name)
    guard let found else {
      let absences = [Errno.noSuchFileOrDirectory, .notDirectory, .tooManySymbolicLinkLevels].map(\.rawValue)
      if absences.contains(errno) { return .missing }
      throw .systemCall("look for the store's folder", path: path, errno: errno)
    }
    if found.identity == held.identity { return .same }
    // Some file systems give a folder another number while it is open.
    let now = held.gate.enter { (descriptor) -> FileIdentity? in
      var raw = bs_status()
      return uninterrupted { bs_status_of(descriptor, &raw) } < 0 ? nil : FileStatus(raw).identity
    }
    guard let now else { throw Self.closed }
    return found.identity == now ? .same : .other
  }

  /// Finds out that the contents of the folder were exchanged, and not the folder.
  private func compareStore() throws(BlobStorageError) {
    guard let known = header.withLock({ $0 }), let found = Self.status(headerName).status,
      found.identity != known.identity
    else { return }
    // A repair may have replaced the file, and so may a program that restores a backup.
    let bytes = try folder.gate.enter { (directory) throws(BlobStorageError) -> [UInt8] in
      let name = path.entry("store")
      let number = try systemCall("open", name) { bs_open_at(directory, "store", Int32(BS_OPEN_NONBLOCK)) }
      let file = SystemFile(owning: Int32(number), path: name)
      defer { file.close() }
      return try file.bytesThere(at: 0, StoreHeader.byteCount)
    }
    // The next opening reports a damaged file.
    guard let header = bytes?.withUnsafeBytes({ (raw) -> StoreHeader? in try? StoreHeader(raw) }) else {
      return
    }
    guard header.storeID == known.storeID else {
      throw end(
        "Another store has taken the place of the one at \(path): open the store again to use that one.")
    }
    self.header.withLock { $0?.identity = found.identity }
  }

  private static func status(_ name: [CChar]) -> (status: FileStatus?, errno: Int32) {
    var raw = bs_status()
    let outcome = uninterrupted { bs_status_at(bs_working_directory(), name, &raw) }
    return outcome < 0 ? (nil, Int32(-outcome)) : (FileStatus(raw), 0)
  }
}
