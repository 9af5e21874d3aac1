import BlobStorage
import BlobStorageObservation
import Foundation

// An app with versioned documents. Every save keeps the version before, and two windows cannot overwrite each other's
// work. An old version can be brought back. A list of documents follows changes, also those of other processes.

struct Document: Codable, Sendable {
  var title: String
  var text: String
}

/// A document as a window shows it.
struct OpenDocument: Sendable {
  var content: Document
  /// What was read: saving is refused if another window has saved since.
  let version: BlobVersion.ID
}

struct DocumentLibrary: Sendable {
  private let store: BlobStore

  init(in folder: URL) async throws { store = try await BlobStore.openOrCreate(at: folder) }

  func create(_ name: String, _ document: Document) async throws -> OpenDocument {
    let options = PutOptions(condition: .absent, mediaType: "application/json")
    let put = try await store.set("documents/\(name)", to: document, options: options)
    return OpenDocument(content: document, version: put.version.id)
  }

  func open(_ name: String) async throws -> OpenDocument? {
    let key = "documents/\(name)"
    guard let version = try await store.currentVersion(of: key),
      let content = try await store.value(Document.self, forKey: key, version: version.id)
    else { return nil }
    return OpenDocument(content: content, version: version.id)
  }

  /// Saves a document; nil if another window has saved it since it was opened.
  func save(_ name: String, _ document: OpenDocument) async throws -> OpenDocument? {
    let options = PutOptions(
      replacement: .archiveCurrent, condition: .current(document.version), mediaType: "application/json")
    do {
      let put = try await store.set("documents/\(name)", to: document.content, options: options)
      return OpenDocument(content: document.content, version: put.version.id)
    } catch {
      guard error.code == .conditionFailed else { throw error }
      return nil
    }
  }

  /// The versions of a document, newest first.
  func history(_ name: String) async throws -> [BlobVersion] {
    try await store.versions(of: "documents/\(name)")
  }

  func restore(_ name: String, _ version: BlobVersion) async throws {
    try await store.restore(version.id, of: "documents/\(name)")
  }

  /// The titles of all documents, and again after each change.
  func names() async throws -> AsyncStream<[String]> {
    let changes = try await store.changes(prefix: "documents/")
    let store = store
    return AsyncStream { continuation in
      let task = Task {
        defer { continuation.finish() }
        var names = try await Set(store.keys(prefix: "documents/").reduce(into: []) { $0.append($1.key) })
        continuation.yield(names.sorted())
        for try await change in changes {
          switch change {
          case .set(let version): names.insert(version.key)
          case .deleted(let key): names.remove(key)
          case .reload:
            names = try await Set(store.keys(prefix: "documents/").reduce(into: []) { $0.append($1.key) })
          }
          continuation.yield(names.sorted())
        }
      }
      continuation.onTermination = { _ in task.cancel() }
    }
  }

  func close() async throws { try await store.close() }
}

@Sendable func editDocuments(in folder: URL) async throws {
  let library = try await DocumentLibrary(in: folder.appending(path: "documents.store"))
  var names = try await library.names().makeAsyncIterator()
  print("documents", await names.next()?.count ?? -1)
  var first = try await library.create("letter", Document(title: "Letter", text: "Dear Ada"))
  while let list = await names.next(), list.isEmpty {}
  let second = try await library.open("letter")!
  first.content.text = "Dear Ada, thank you."
  print("saved:", try await library.save("letter", first) != nil)
  print("saved over another window's work:", try await library.save("letter", second) != nil)
  let history = try await library.history("letter")
  print("versions", history.count)
  try await library.restore("letter", history[1])
  print(try await library.open("letter")!.content.text)
  try await library.close()
}
