import BlobStorage
import Synchronization
import SystemPackage

/// One process's view of a simulated disk. Its locks and open files are its own and end with it.
package struct SimulatedProcess: FileSystem {
  package let disk: SimulatedDisk
  /// Its number in the log of calls.
  package let number: Int

  /// Ends the process: frees its locks, and makes all its later calls throw code `simulatedStop`.
  package func kill() { disk.state.withLock { $0.kill(number) } }

  /// Whether the process was not killed.
  package var isAlive: Bool { disk.state.withLock { $0.aliveProcesses.contains(number) } }

  /// Loads or stores a word of shared memory, unless the process is dead or dies before.
  func touch(_ kind: CallKind, _ path: FilePath, _ detail: String, _ body: () -> Void) {
    var isDone = false
    do throws(BlobStorageError) {
      try disk.perform(kind, number, path, detail) { (_) throws(SimulatedErrno) in
        body()
        isDone = true
      }
    } catch {
      // A hook can make a call fail, but memory does not fail.
      if !isDone, isAlive { body() }
    }
  }

  /// Logs a step that is not a call on the disk. The scheduler has just let others run.
  func log(_ step: TableStep, _ name: String) {
    _ = disk.state.withLock { $0.log(.step, number, "\(name) \(step.rawValue)") }
  }

  package func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    let normal = "/" + DiskImage.components(path).joined(separator: "/")
    // Creating a path takes long in a debug build.
    let path = path.string == normal ? path : FilePath(normal)
    let creates = intent == .create || intent == .openOrCreate || intent == .append
    let exists = try? disk.state.withLock { (state) throws(SimulatedErrno) in try state.image.find(path) }
    // Only a call that is about to create a file is mutating.
    let kind: CallKind = creates && exists == nil ? .create : .open
    let handle = try disk.perform(kind, number, path, "\(intent)") { (state) throws(SimulatedErrno) in
      let (directory, name) = try state.image.findParent(path)
      let node: DiskImage.NodeNumber
      if let found = state.image.nodes[directory]?.liveNames[name] {
        if intent == .create { throw .init(.fileExists) }
        if state.image.nodes[found]?.isDirectory == true { throw .init(.isDirectory) }
        node = found
      } else {
        guard creates else { throw .init(.noSuchFileOrDirectory) }
        node = state.image.addNode(isDirectory: false)
        let now = state.now
        state.image.nodes[node]?.modified = now
        state.image.changeNames([.init(directory: directory, name: name, node: node)], "create \(path)")
      }
      let handle = state.nextHandle
      state.nextHandle += 1
      state.handles[handle] = .init(node: node, process: number, isWritable: intent != .read)
      return handle
    }
    return SimulatedFile(disk: disk, process: number, handle: handle, path: path)
  }

  package func status(of path: FilePath) throws(BlobStorageError) -> FileStatus? {
    try disk.perform(.statusOfPath, number, path) { (state) throws(SimulatedErrno) in
      do throws(SimulatedErrno) {
        return state.image.status(of: try state.image.find(path))
      } catch {
        if error.errno == Errno.noSuchFileOrDirectory.rawValue { return nil }
        throw error
      }
    }
  }

  package func list(_ directory: FilePath) throws(BlobStorageError) -> [String] {
    try disk.perform(.list, number, directory) { (state) throws(SimulatedErrno) in
      let node = state.image.nodes[try state.image.find(directory)]
      guard let node, node.isDirectory else { throw .init(.notDirectory) }
      return node.liveNames.keys.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    }
  }

  // Folders of packs hold only files.
  package func listFiles(_ directory: FilePath) throws(BlobStorageError) -> [String] { try list(directory) }

  package func availableByteCount(at directory: FilePath) throws(BlobStorageError) -> Int64 {
    disk.state.withLock { Int64($0.freeByteCount) }
  }

  package func createDirectory(_ path: FilePath) throws(BlobStorageError) {
    try disk.perform(.createDirectory, number, path) { (state) throws(SimulatedErrno) in
      if (try? state.image.find(path)) != nil { throw .init(.fileExists) }
      let (directory, name) = try state.image.findParent(path)
      let node = state.image.addNode(isDirectory: true)
      state.image.changeNames(
        [.init(directory: directory, name: name, node: node)], "create the folder \(path)")
    }
  }

  package func rename(_ from: FilePath, to: FilePath) throws(BlobStorageError) {
    try disk.perform(.rename, number, from, "to \(to)") { (state) throws(SimulatedErrno) in
      let node = try state.image.find(from)
      let (fromDirectory, fromName) = try state.image.findParent(from)
      let (toDirectory, toName) = try state.image.findParent(to)
      let replaced = state.image.nodes[toDirectory]?.liveNames[toName]
      if replaced == node { return }
      if let replaced, let old = state.image.nodes[replaced], let new = state.image.nodes[node] {
        if old.isDirectory && !new.isDirectory { throw .init(.isDirectory) }
        if !old.isDirectory && new.isDirectory { throw .init(.notDirectory) }
        if !old.liveNames.isEmpty { throw .init(.directoryNotEmpty) }
      }
      state.image.changeNames(
        [
          .init(directory: fromDirectory, name: fromName, node: nil),
          .init(directory: toDirectory, name: toName, node: node),
        ], "rename \(from) to \(to)")
    }
  }

  package func remove(_ path: FilePath) throws(BlobStorageError) {
    try disk.perform(.remove, number, path) { (state) throws(SimulatedErrno) in
      let node = try state.image.find(path)
      if state.image.nodes[node]?.isDirectory == true { throw .init(.isDirectory) }
      let (directory, name) = try state.image.findParent(path)
      state.image.changeNames([.init(directory: directory, name: name, node: nil)], "remove \(path)")
    }
  }

  package func removeDirectory(_ path: FilePath) throws(BlobStorageError) {
    try disk.perform(.removeDirectory, number, path) { (state) throws(SimulatedErrno) in
      let found = state.image.nodes[try state.image.find(path)]
      guard let found, found.isDirectory else { throw .init(.notDirectory) }
      guard found.liveNames.isEmpty else { throw .init(.directoryNotEmpty) }
      let (directory, name) = try state.image.findParent(path)
      state.image.changeNames(
        [.init(directory: directory, name: name, node: nil)], "remove the folder \(path)")
    }
  }

  package func syncDirectory(_ path: FilePath) throws(BlobStorageError) {
    try disk.perform(.syncDirectory, number, path) { (state) throws(SimulatedErrno) in
      let node = try state.image.find(path)
      guard state.image.nodes[node]?.isDirectory == true else { throw .init(.notDirectory) }
      state.image.syncNames(of: node)
    }
  }
}

extension DiskImage {
  func status(of number: NodeNumber) -> FileStatus {
    let node = nodes[number, default: Node(isDirectory: false)]
    return FileStatus(
      kind: node.isDirectory ? .directory : .regular, byteCount: Int64(node.live.count),
      allocatedByteCount: Int64((node.live.count + 511) / 512 * 512),
      linkCount: linkCount(of: number), inode: UInt64(number), device: 1, modified: node.modified,
      permissions: node.isDirectory ? 0o700 : 0o600)
  }
}
