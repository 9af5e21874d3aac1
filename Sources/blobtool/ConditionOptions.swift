import ArgumentParser
import BlobStorage

/// `--if-version` and `--if-absent`: the conditions under which a command changes a key.
struct ConditionOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "Change the key only if this is its current version; else exit 5. The first digits of its ID are enough.",
      valueName: "id"
    ))
  var ifVersion: VersionArgument?

  @Flag(help: "Change the key only if it is not in the store; else exit 5.")
  var ifAbsent = false

  func validate() throws {
    guard ifVersion == nil || !ifAbsent else {
      throw ValidationError("give --if-version or --if-absent, not both")
    }
  }

  var hasCondition: Bool { ifVersion != nil || ifAbsent }

  func condition(for key: String, in store: BlobStore) async throws -> ChangeCondition {
    if let ifVersion { return .current(try await ifVersion.id(of: key, in: store)) }
    return ifAbsent ? .absent : .always
  }

  /// Runs a change. If the condition does not hold, prints the key and its current version with `--json`.
  func explaining<T>(json: Bool, _ body: () async throws -> T) async throws -> T {
    do { return try await body() } catch let error as BlobStorageError where error.code == .conditionFailed {
      if json { try JSONText.print(Output(key: error.key, current: error.currentVersion?.description)) }
      throw error
    }
  }

  private struct Output: Encodable {
    var key: String?
    var current: String?

    enum CodingKeys: CodingKey { case key, current }

    // A key that is absent has `null`, so that scripts always find the field.
    func encode(to encoder: any Encoder) throws {
      var container = encoder.container(keyedBy: CodingKeys.self)
      try container.encode(key, forKey: .key)
      try container.encode(current, forKey: .current)
    }
  }
}
