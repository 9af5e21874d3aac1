import BlobStorage
import CBlobKernels
import Synchronization

/// The names of users and groups, each looked up once.
final class OwnerNames: Sendable {
  /// Whether this process may give files to other owners.
  static var isRoot: Bool { bs_is_root() != 0 }

  private let users = Mutex<[UInt32: String]>([:])
  private let groups = Mutex<[UInt32: String]>([:])
  private let userNumbers = Mutex<[String: UInt32]>([:])
  private let groupNumbers = Mutex<[String: UInt32]>([:])

  func owner(of status: FileStatus) -> FileAttributes.Owner {
    FileAttributes.Owner(
      user: status.user, group: status.group,
      userName: Self.found(status.user, users) { Self.text { bs_user_name(status.user, $0, $1) } },
      groupName: Self.found(status.group, groups) { Self.text { bs_group_name(status.group, $0, $1) } })
  }

  /// The owner's numbers on this machine: those of the names, else the stored numbers.
  func numbers(of owner: FileAttributes.Owner) -> (user: UInt32, group: UInt32) {
    let user = Self.found("\(owner.user) \(owner.userName)", userNumbers) {
      var number = owner.user
      return !owner.userName.isEmpty && bs_user_number(owner.userName, &number) == 1 ? number : owner.user
    }
    let group = Self.found("\(owner.group) \(owner.groupName)", groupNumbers) {
      var number = owner.group
      return !owner.groupName.isEmpty && bs_group_number(owner.groupName, &number) == 1 ? number : owner.group
    }
    return (user, group)
  }

  private static func found<Key: Hashable & Sendable, Value: Sendable>(
    _ key: Key, _ known: borrowing Mutex<[Key: Value]>, _ find: () -> Value
  ) -> Value {
    if let value = known.withLock({ $0[key] }) { return value }
    let value = find()
    known.withLock { $0[key] = value }
    return value
  }

  /// The text that a call writes; empty if it writes none or too long a text.
  private static func text(_ call: (UnsafeMutablePointer<CChar>, Int) -> Int) -> String {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: FileAttributes.nameByteCountMax) { buffer in
      guard let start = buffer.baseAddress else { return "" }
      let count = call(start, buffer.count)
      return count <= 0
        ? "" : String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
    }
  }
}
