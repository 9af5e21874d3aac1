import ArgumentParser
import BlobStorage
import BlobStorageTrees
import Foundation

/// `hold`: protects states and keys.
struct HoldCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "hold",
    abstract: "Protects a state, a key or all keys of a prefix from delete, keep and gc.",
    usage: """
      blobtool hold NAME TARGET
      blobtool hold NAME --prefix-bytes PREFIX
      blobtool hold --release NAME
      """,
    discussion: """
      TARGET is a snapshot, else a key, else a prefix: the key PREFIX and the keys below it, PREFIX/. --kind decides. A delete of something that is held fails \
      and names the hold. What a put replaces is archived. `holds` lists all holds.
      """)

  @Argument(help: ArgumentHelp("The name of the hold, and what it protects.", valueName: "name target"))
  var words: [String] = []

  @Option(help: ArgumentHelp("End the hold of this name.", valueName: "name"))
  var release: String?

  @Option(help: ArgumentHelp("What TARGET is: state, key or prefix.", valueName: "kind"))
  var kind: TreeHold.Kind?

  @OptionGroup var prefixBytes: PrefixBytesOption

  @OptionGroup var shared: SharedOptions

  func validate() throws {
    let prefix = prefixBytes.value
    guard prefix == nil || kind == nil, prefix?.isAll != true else {
      throw ValidationError("--prefix-bytes names what to hold, and is not empty: give it without --kind")
    }
    guard words.count == (release != nil ? 0 : prefix != nil ? 1 : 2), prefix == nil || release == nil else {
      throw ValidationError("give a name and a target, or --release and a name")
    }
    guard kind == nil || release == nil else { throw ValidationError("--kind is for a new hold") }
    guard words.allSatisfy({ !$0.isEmpty }), release != "" else {
      throw ValidationError("a name or target is empty")
    }
  }

  func perform(on store: BlobStore) async throws {
    if let release {
      guard try await store.releaseHold(release) else {
        throw Failure(
          ExitStatus.notFound, "There is no hold “\(release.printable)”: `blobtool holds` lists them.")
      }
      if shared.json { return try JSONText.print(["released": release]) }
      return try StandardOutput.write("Released “\(release.printable)”.\n")
    }
    let name = words[0]
    let target: HoldTarget
    if let prefix = prefixBytes.value {
      target = .prefix(prefix)
    } else {
      target = try await self.target(words[1], in: store)
    }
    try await store.hold(target, as: name)
    if shared.json {
      let hold = try await store.treeHolds().first { $0.name.utf8.elementsEqual(name.utf8) }
      if let hold { try JSONText.print(hold) }
    } else {
      let shown =
        switch target {
        case .state(let state): "state \(state.text.printable)"
        case .key(let key): "“\(key.printable)”"
        case .prefix(let prefix): "each key that \(prefix.description)"
        }
      try StandardOutput.write("“\(name.printable)” holds \(shown).\n")
    }
  }

  private func target(_ text: String, in store: BlobStore) async throws -> HoldTarget {
    if kind == .prefix { return .prefix(.below(text)) }
    let isKnownState = try await store.states().contains {
      $0.isNamed(text) || text.count >= 4 && $0.id.description.hasPrefix(text)
    }
    if kind == .state || kind == nil && isKnownState, let found = StateArgument(argument: text) {
      return .state(try await found.state(in: store))
    }
    if try await store.currentVersion(of: text) != nil { return .key(text) }
    if kind == .key { throw Failure.noKey(text) }
    if try await !store.keys(prefix: text, limit: 1).isEmpty { return .prefix(.below(text)) }
    throw Failure(
      ExitStatus.notFound,
      "“\(text.printable)” is no snapshot and no key, and there is no key below it: --kind prefix holds keys that come later."
    )
  }
}

/// `holds`: lists holds.
struct HoldsCommand: StoreCommand {
  static let configuration = CommandConfiguration(
    commandName: "holds", abstract: "Lists all holds.", discussion: "Columns: since when, kind, target, name."
  )

  @OptionGroup var times: TimeOptions

  @OptionGroup var shared: SharedOptions

  var isReading: Bool { true }

  func perform(on store: BlobStore) async throws {
    try LineOutput.write(try await store.treeHolds(), json: shared.json) { hold in
      "\(times.text(hold.created))  \(hold.kind.rawValue.padding(toLength: 6, withPad: " ", startingAt: 0))"
        + "  \(hold.target.printable)  \(hold.name.printable)"
    }
    try LineOutput.write(try await store.holds(), json: shared.json) { hold in
      "\(times.text(hold.created))  blob    \(hold.digest)  \(hold.name.printable)"
    }
  }
}

extension TreeHold.Kind: ExpressibleByArgument {}
