import BlobStorage
import CBlobKernels
import SystemPackage

/// Attributes that an export gives to a file, link or folder.
struct RestoredAttributes: Sendable {
  var attributes: FileAttributes
  var extended: [FileAttributes.Extended]
  var modified: FileTime
  /// Nil if owners are left as they are.
  var owners: OwnerNames?

  /// Gives them to an open file or folder, as far as this user may.
  ///
  /// - Returns: false if some could not be set.
  /// - Throws: if the mode or time cannot be set, which the owner of a file always may.
  func apply(to descriptor: Int32, _ path: @autoclosure () -> FilePath) throws(BlobStorageError) -> Bool {
    var isComplete = true
    // A change of owner clears what runs as another user, and capabilities.
    if let owners, let owner = attributes.owner {
      let numbers = owners.numbers(of: owner)
      isComplete = uninterrupted { bs_set_owner(descriptor, numbers.user, numbers.group) } >= 0
    }
    if try !ExtendedAttributes.write(extended, descriptor, path()).isEmpty { isComplete = false }
    let permissions = UInt32(attributes.permissions)
    _ = try systemCall("set the permissions of", path()) { bs_set_permissions(descriptor, permissions) }
    _ = try systemCall("set the time of", path()) {
      bs_set_modified(descriptor, modified.seconds, modified.nanoseconds)
    }
    return isComplete
  }

  /// The same for a symbolic link, which has an owner and a time.
  func apply(
    toLink name: [CChar], in directory: Int32, _ path: @autoclosure () -> FilePath
  ) throws(BlobStorageError) -> Bool {
    var isComplete = true
    if let owners, let owner = attributes.owner {
      let numbers = owners.numbers(of: owner)
      isComplete = uninterrupted { bs_set_link_owner_at(directory, name, numbers.user, numbers.group) } >= 0
    }
    _ = try systemCall("set the time of", path()) {
      bs_set_link_modified_at(directory, name, modified.seconds, modified.nanoseconds)
    }
    return isComplete
  }
}
