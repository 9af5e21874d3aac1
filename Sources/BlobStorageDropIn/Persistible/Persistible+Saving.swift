import Foundation

extension Persistible where Self: Codable & Hashable {
  /// Adds the value to the document, unless the document has an equal one.
  ///
  /// - Throws: if the document cannot be read, and stays as it is; or if it cannot be written.
  public func saveToFile() throws { try Self.add([self], asList: false) }

  /// Adds those values to the document that it lacks, in their order.
  ///
  /// - Parameter asList: whether the document becomes a list even if it has one value.
  static func add(_ added: [Self], asList: Bool) throws {
    try document.locked { document in
      var values: [Self] = []
      var isList = false
      if let data = try document.read() {
        switch try decode(data) {
        case .single(let value): values = [value]
        case .array(let list):
          values = list
          isList = true
        }
      }
      let oldCount = values.count
      var known = Set(values)
      for value in added where known.insert(value).inserted { values.append(value) }
      guard values.count > oldCount || asList && !isList else { return }
      if let first = values.first, values.count == 1, !isList, !asList {
        try document.write(getEncoder().encode(first))
      } else {
        try document.write(getEncoder().encode(values))
      }
    }
  }

  /// The document's value, if it holds one.
  ///
  /// - Throws: `DecodingError.typeMismatch` when it holds a list, `CocoaError.fileReadNoSuchFile` when there
  ///   is none.
  public static func loadFromFile() throws -> Self {
    try getDecoder().decode(Self.self, from: document.existing())
  }

  /// The document's values, if it holds a list.
  ///
  /// - Throws: `DecodingError.typeMismatch` when it holds one value, `CocoaError.fileReadNoSuchFile` when
  ///   there is no document.
  public static func loadListFromFile() throws -> [Self] {
    try getDecoder().decode([Self].self, from: document.existing())
  }

  /// Hands over the contents of the document before it returns.
  public static func load(completion: @escaping (PersistenceData<Self>) -> Void) throws {
    completion(try decode(document.existing()))
  }

  /// One value or a list. If the data is neither, throws the error about a value.
  static func decode(_ data: Data) throws -> PersistenceData<Self> {
    do { return .single(try getDecoder().decode(Self.self, from: data)) } catch {
      // Nil means that it is not a list either.
      guard let values = try? getDecoder().decode([Self].self, from: data) else { throw error }
      return .array(values)
    }
  }
}

extension Array where Element: Persistible & Codable & Hashable {
  /// Adds those values to the document that it lacks, in their order. From then on the document is a list.
  ///
  /// - Throws: if the document cannot be read, and stays as it is; or if it cannot be written.
  public func saveToFile() throws {
    if !isEmpty { try Element.add(self, asList: true) }
  }
}
