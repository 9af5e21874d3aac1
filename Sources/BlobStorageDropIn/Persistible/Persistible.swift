import Foundation

/// A type whose values are stored in one JSON document in the user's Documents.
///
/// The document is in a store at `<Documents>/.blobstore`, shared by all processes. The first access imports a file
/// that the original library has left at ``archiveUrl``, and leaves it as it is.
public protocol Persistible {
  /// The document's name; by default the type's.
  static var fileName: String { get }
}

extension Persistible {
  public static var fileName: String { String(describing: self) }

  /// Where the original would keep the document.
  public static var archiveUrl: URL {
    UserFolders.documents.appendingPathComponent(fileName).appendingPathExtension("json")
  }

  /// Removes the document. A file at ``archiveUrl`` stays, and is not imported again.
  public static func deleteFile() {
    // The original reports no failure: a document that could not be removed stays.
    try? document.delete()
  }

  static var document: Document { Document(fileName: fileName, file: archiveUrl) }
}

extension Persistible where Self: Codable {
  /// The encoder for values.
  public static func getEncoder() -> JSONEncoder {
    let encoder = JSONEncoder()
    encoder.outputFormatting = .prettyPrinted
    return encoder
  }

  /// The decoder for values.
  public static func getDecoder() -> JSONDecoder { JSONDecoder() }
}

/// The contents of a document.
public enum PersistenceData<T: Persistible> {
  /// The one value that was saved.
  case single(T)
  /// The different values that were saved, in the order of insertion.
  case array([T])
}

extension PersistenceData: Sendable where T: Sendable {}
