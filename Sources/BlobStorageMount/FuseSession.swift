import BlobStorage
import BlobStorageTransfer
import CFuseSession
import Foundation
import Synchronization

/// Connects a mounted folder's libfuse session with a ``MountService``.
final class FuseSession: @unchecked Sendable {
  // Unchecked: libfuse locks its own session.
  private let session: OpaquePointer
  private let isEnded = Mutex(false)
  private let service: MountService
  private let folder: String

  static var isAvailable: Bool { bs_fuse_is_available() }

  /// Mounts a folder.
  ///
  /// - Parameter source: the device that the table of mounts shows.
  /// - Throws: `io` with libfuse's message.
  init(_ service: MountService, at folder: String, source: String) throws(BlobStorageError) {
    // A comma would end the option.
    let escaped = source.replacing("\\", with: "\\\\").replacing(",", with: "\\,")
    let options = "ro,default_permissions,noatime,subtype=blobtool,fsname=\(escaped)"
    var reason = [CChar](repeating: 0, count: 256)
    // `self` keeps the service alive as long as the session.
    let context = Unmanaged.passUnretained(service).toOpaque()
    let mounted = keepingStandardDescriptors {
      bs_fuse_mount(folder, options, Self.calls, context, &reason, reason.count)
    }
    guard let session = mounted else {
      let text = String(decoding: reason.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        .split(whereSeparator: \.isNewline).joined(separator: " ")
      throw BlobStorageError(
        .io,
        "\(folder) cannot be mounted\(text.isEmpty ? "" : " (\(text))"): mounting needs the right to do so, in a"
          + " container CAP_SYS_ADMIN and /dev/fuse.",
        path: folder)
    }
    self.session = session
    self.service = service
    self.folder = folder
  }

  /// Answers the system's requests until the folder is unmounted, or ``stop()`` is called.
  func run() throws(BlobStorageError) {
    let status = bs_fuse_run(session)
    guard status >= 0 else {
      throw BlobStorageError(
        .io, "The mount of \(folder) broke: \(String(cString: strerror(-status))).", path: folder,
        errno: -status)
    }
  }

  /// Makes ``run()`` return. May be called at any time.
  func stop() {
    let isRunning = isEnded.withLock { isEnded in
      if !isEnded { bs_fuse_stop(session) }
      return !isEnded
    }
    guard isRunning else { return }
    // The loop checks for the stop at the next request: this sends one. It waits for the answer, or for the unmount.
    let folder = folder
    Thread.start(named: "blob-unmount") {
      _ = try? FileManager.default.attributesOfFileSystem(forPath: folder)
    }
  }

  /// Unmounts the folder, if necessary. Call it once, after ``run()``.
  func end() {
    isEnded.withLock { $0 = true }
    bs_fuse_end(session)
  }

  // MARK: Calls from C

  private static func service(_ context: UnsafeMutableRawPointer?) -> MountService {
    Unmanaged<MountService>.fromOpaque(context!).takeUnretainedValue()
  }

  /// Runs `body`, and returns 0 or the `errno` of what it throws.
  private static func status(_ body: () throws(MountService.Refusal) -> Void) -> Int32 {
    do throws(MountService.Refusal) {
      try body()
      return 0
    } catch { return error.errno }
  }

  private static func fill(_ entry: UnsafeMutablePointer<bs_fuse_entry>?, _ found: MountService.Found) {
    let attributes = found.attributes
    entry?.pointee = bs_fuse_entry(
      node: found.number, inode: found.inode, mode: attributes.mode, user: attributes.user,
      group: attributes.group, byte_count: attributes.byteCount, seconds: attributes.modified.seconds,
      nanoseconds: attributes.modified.nanoseconds, name_seconds: found.nameSeconds)
  }

  private static let calls = bs_fuse_calls(
    look_up: { context, parent, name, entry in
      FuseSession.status { () throws(MountService.Refusal) in
        let name = UnsafeRawBufferPointer(start: name, count: strlen(name!))
        FuseSession.fill(entry, try FuseSession.service(context).lookUp(Array(name), in: parent))
      }
    },
    forget: { context, node, count in FuseSession.service(context).nodes.release(node, count) },
    attributes: { context, node, entry in
      FuseSession.status { () throws(MountService.Refusal) in
        FuseSession.fill(entry, try FuseSession.service(context).attributes(node))
      }
    },
    open: { context, node, handle in
      FuseSession.status { () throws(MountService.Refusal) in
        handle?.pointee = try FuseSession.service(context).openFile(node)
      }
    },
    read: { context, handle, buffer, size, offset, count in
      FuseSession.status { () throws(MountService.Refusal) in
        let target = UnsafeMutableRawBufferPointer(start: buffer, count: size)
        count?.pointee = try FuseSession.service(context).read(handle, into: target, at: offset)
      }
    },
    close: { context, handle in FuseSession.service(context).closeFile(handle) },
    open_folder: { context, node, handle in
      FuseSession.status { () throws(MountService.Refusal) in
        handle?.pointee = try FuseSession.service(context).openFolder(node)
      }
    },
    list: { context, handle, offset, holds, list in
      FuseSession.status { () throws(MountService.Refusal) in
        try FuseSession.list(FuseSession.service(context), handle, from: Int(offset), holds: holds, list)
      }
    },
    close_folder: { context, handle in FuseSession.service(context).closeFolder(handle) },
    read_link: { context, node, buffer, size, count in
      FuseSession.status { () throws(MountService.Refusal) in
        let target = try FuseSession.service(context).linkTarget(node)
        try FuseSession.copy(target, buffer, size, count)
      }
    },
    get_attribute: { context, node, name, buffer, size, count in
      FuseSession.status { () throws(MountService.Refusal) in
        let name = Array(UnsafeRawBufferPointer(start: name, count: strlen(name!)))
        let all = try FuseSession.service(context).extendedAttributes(node)
        guard let found = all.first(where: { $0.name == name }) else {
          throw MountService.Refusal(errno: ENODATA)
        }
        try FuseSession.copy(found.value, buffer, size, count)
      }
    },
    list_attributes: { context, node, buffer, size, count in
      FuseSession.status { () throws(MountService.Refusal) in
        let all = try FuseSession.service(context).extendedAttributes(node)
        try FuseSession.copy(all.flatMap { $0.name + [0] }, buffer, size, count)
      }
    })

  /// Copies bytes into a buffer; with a size of 0, returns only their number.
  private static func copy(
    _ bytes: [UInt8], _ buffer: UnsafeMutableRawPointer?, _ size: Int, _ count: UnsafeMutablePointer<Int>?
  ) throws(MountService.Refusal) {
    count?.pointee = bytes.count
    if size == 0 { return }
    guard bytes.count <= size else { throw MountService.Refusal(errno: ERANGE) }
    UnsafeMutableRawBufferPointer(start: buffer, count: size).copyBytes(from: bytes)
  }

  /// Adds children to a list until it is full. The first two are the folder itself and its parent.
  private static func list(
    _ service: MountService, _ handle: UInt64, from offset: Int, holds: Bool, _ list: OpaquePointer?
  ) throws(MountService.Refusal) {
    let folder = try service.folder(handle)
    var index = max(offset, 0)
    while true {
      let isOwn = index < 2
      let name: [UInt8]
      let node: MountedNode
      if isOwn {
        // The system knows both, and uses only the name.
        name = Array([".", ".."][index].utf8)
        node = folder.node
      } else {
        guard let child = try service.child(at: index - 2, of: folder) else { return }
        (name, node) = child
      }
      let isHeld = holds && !isOwn
      let found =
        isHeld ? service.hold(node, folder.nameSeconds) : service.found(node, 0, folder.nameSeconds)
      var entry = bs_fuse_entry()
      fill(&entry, found)
      let fits = (name + [0]).withUnsafeBytes {
        bs_fuse_add(list, $0.baseAddress?.assumingMemoryBound(to: CChar.self), &entry, Int64(index + 1))
      }
      guard fits else {
        if isHeld { service.nodes.release(found.number, 1) }
        return
      }
      index += 1
    }
  }
}
