import BlobStorage
import CBlobKernels
import SystemPackage

/// Attributes that an export gives to a file, link or folder.
struct RestoredAttributes: Sendable {
  var attributes: FileAttributes
  var extended: [FileAttributes.Extended]
  var modified: FileTime
  /// Nil to leave owners as they are.
  var owners: OwnerNames?

  /// Gives them to an open file or folder, as far as this user may. A file gets its set-user-ID and set-group-ID bits
  /// only together with its owner: otherwise root would make programs that run as root of a user's files.
  ///
  /// - Returns: false if some could not be set.
  /// - Throws: if setting the mode or time fails, unless only the owner may set it.
  func apply(
    to descriptor: Int32, isFolder: Bool = false, _ path: @autoclosure () -> FilePath
  ) throws(BlobStorageError) -> Bool {
    var isComplete = true
    var hasOwner = false
    // A change of owner clears what runs as another user, and capabilities.
    if let owners, let owner = attributes.owner {
      let numbers = owners.numbers(of: owner)
      hasOwner = uninterrupted { bs_set_owner(descriptor, numbers.user, numbers.group) } >= 0
      isComplete = hasOwner
    }
    let permissions =
      isFolder ? attributes.permissions : attributes.permissionsOfFile(withOwner: hasOwner)
    if permissions != attributes.permissions { isComplete = false }
    if try !ExtendedAttributes.file(descriptor).write(extended, path()) { isComplete = false }
    // The mode last: an export that goes on knows by it which folders lack attributes.
    let areSet = try [
      Self.change("set the time of", path()) {
        bs_set_modified(descriptor, modified.seconds, modified.nanoseconds)
      },
      Self.change("set the permissions of", path()) { bs_set_permissions(descriptor, UInt32(permissions)) },
    ]
    return isComplete && areSet.allSatisfy { $0 }
  }

  /// False if only the owner of the file may make the change.
  private static func change(
    _ attempt: String, _ path: @autoclosure () -> FilePath, _ body: () -> Int
  ) throws(BlobStorageError) -> Bool {
    let outcome = uninterrupted(body)
    if outcome >= 0 { return true }
    guard outcome == -Int(Errno.notPermitted.rawValue) else {
      throw .systemCall(attempt, path: path(), errno: Int32(-outcome))
    }
    return false
  }

  /// The same for a symbolic link, which has no mode.
  func apply(
    toLink name: [CChar], in directory: Int32, _ path: @autoclosure () -> FilePath
  ) throws(BlobStorageError) -> Bool {
    var isComplete = true
    if let owners, let owner = attributes.owner {
      let numbers = owners.numbers(of: owner)
      isComplete = uninterrupted { bs_set_link_owner_at(directory, name, numbers.user, numbers.group) } >= 0
    }
    if !extended.isEmpty, try !ExtendedAttributes.link(name, directory: directory).write(extended, path()) {
      isComplete = false
    }
    _ = try systemCall("set the time of", path()) {
      bs_set_link_modified_at(directory, name, modified.seconds, modified.nanoseconds)
    }
    return isComplete
  }
}

extension FileAttributes {
  /// The mode of a file that is written: without set-user-ID and set-group-ID bits, unless it has its owner.
  func permissionsOfFile(withOwner hasOwner: Bool) -> UInt16 {
    hasOwner ? permissions : permissions & ~0o6000
  }
}
