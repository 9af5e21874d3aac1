import BlobStorage
import Dispatch
import Foundation

/// Stores data under identifiers in a named folder of the user's Documents. Closures make and read the data.
///
/// Loads run side by side. A store or removal waits for what was called before it on the same instance, and what is
/// called later waits for it. Closures that make or read data run on threads of the store's, completions on the main
/// queue.
///
/// The data is in a store at `<Documents>/<name>/.blobstore`, shared by all processes. The first operation imports
/// files that the original library has left in the folder, and leaves them as they are.
public final class PersistentDataStore: Sendable {
  /// Names a piece of data.
  public typealias Identifier = String

  /// The result of storing.
  public enum Result: Sendable {
    /// The data could not be stored; the earlier data is unchanged.
    case failed(any Error)
    /// The provider gave no data; the earlier data is unchanged.
    case noData
    /// The data is stored under the identifier.
    case success(Identifier)
  }

  /// The name of the folder.
  public let name: String
  private let store: DropInStore
  private let queue = DispatchQueue(
    label: "blob-storage.drop-in.data", qos: .userInitiated, attributes: .concurrent)

  /// A data store in the folder `<Documents>/<name>`. Creates a missing folder.
  ///
  /// - Throws: if the folder cannot be created.
  public init(name: String) throws {
    self.name = name
    let folder = UserFolders.documents.appendingPathComponent(name, isDirectory: true)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    let other = UserFolders.otherDocuments?.appendingPathComponent(name, isDirectory: true)
    store = DropInStore.of(folder, other: other)
  }

  /// Files that the original left in the folder and that could not be imported yet. The next process that uses the
  /// folder tries again. None changes them.
  public var oldFilesLeftOut: [URL] { store.leftOut(.data) }

  /// The identifier as the original names its file: without surrounding white space.
  private static func trimmed(_ identifier: Identifier) -> String {
    identifier.trimmingCharacters(in: .whitespacesAndNewlines)
  }

  private static func key(_ identifier: Identifier) -> String { Library.data.storeKey(trimmed(identifier)) }

  /// Stores the provider's data in place of the data under the identifier.
  public func storeData(
    _ dataProvider: @escaping () -> Data?, identifier: Identifier = UUID().uuidString,
    completionHandler block: @escaping (Result) -> Void
  ) {
    let provider = Handed(dataProvider)
    let block = Handed(block)
    queue.async(flags: .barrier) { [self] in
      let result = put(provider.value(), identifier)
      DispatchQueue.main.async { block.value(result) }
    }
  }

  /// Hands over the transformed data; nil when there is none, or when it cannot be read.
  public func loadData<T>(
    forIdentifier identifier: Identifier, dataTransformer: @escaping (Data) -> T?,
    completionHandler block: @escaping (T?) -> Void
  ) {
    let transformer = Handed(dataTransformer)
    let block = Handed(block)
    queue.async { [self] in
      // The original's handler reports a failure only as nil.
      let data = try? store.perform(.data) { (store) throws(BlobStorageError) in
        try store.data(forKey: Self.key(identifier))
      }
      let value = Handed(data.flatMap { transformer.value($0) })
      DispatchQueue.main.async { block.value(value.value) }
    }
  }

  /// Removes the data under an identifier.
  public func removeData(forIdentifier identifier: Identifier) {
    // The original reports no failure: data that could not be removed stays.
    queue.async(flags: .barrier) { [self] in
      try? store.perform(.data) { (store) throws(BlobStorageError) in
        let key = Self.key(identifier)
        let versions = try store.versions(of: key)
        _ = try self.store.forget(Self.trimmed(identifier), of: .data)
        _ = try store.delete(key)
        self.store.space.dropped(versions)
      }
    }
  }

  /// Removes all data at once.
  public func removeAll() {
    queue.async(flags: .barrier) { [self] in
      try? store.perform(.data) { (store) throws(BlobStorageError) in
        _ = try self.store.forget(nil, of: .data)
        _ = try store.delete(prefix: Library.data.prefix)
        self.store.space.droppedAll()
      }
    }
  }

  private func put(_ data: Data?, _ identifier: Identifier) -> Result {
    guard let data, !data.isEmpty else { return .noData }
    do throws(BlobStorageError) {
      guard !Self.trimmed(identifier).isEmpty else {
        throw BlobStorageError(.invalidArgument, "An identifier must not be empty.", key: identifier)
      }
      try store.perform(.data) { (store) throws(BlobStorageError) in
        _ = try store.put(.data(data), forKey: Self.key(identifier))
        self.store.space.put(data.count)
      }
      return .success(identifier)
    } catch { return .failed(error) }
  }
}
