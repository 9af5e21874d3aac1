import BlobStorage
import Foundation

/// A repository of another backup program. The program must be installed, because it reads the repository.
public struct SnapshotRepository: Sendable, Hashable {
  public enum Program: String, Sendable, Hashable, CaseIterable {
    case restic, borg
  }

  public var program: Program
  /// The program's name for the repository.
  public var place: String

  public init(_ program: Program, at place: String) {
    self.program = program
    self.place = place
  }

  /// A repository as `restic:PLACE` or `borg:PLACE`; nil for any other text.
  public init?(_ text: String) {
    let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
    guard parts.count == 2, !parts[1].isEmpty, let program = Program(rawValue: String(parts[0])) else {
      return nil
    }
    self.init(program, at: String(parts[1]))
  }

  /// A snapshot of restic or an archive of borg.
  public struct Snapshot: Sendable, Hashable, Codable {
    /// The program's name for it.
    public var id: String
    public var created: Date
    /// The name of the state that it becomes.
    public var stateName: String
    /// The machine that it was made on; nil if the program does not say.
    public var host: String?
    /// The paths that it has; empty if the program does not say.
    public var paths: [String] = []
    /// What tells its series from others of the host: the paths for restic, and for borg the user and the archive's name
    /// up to its date or number.
    var identity: [String] = []
    /// Details for a person: the host and tags of restic, or the host and name of borg's archive.
    public var notes: [String]

    /// Whether a state of that name is this snapshot, whole or in part. The name has a number if it was taken.
    func names(_ state: String, isWhole: Bool) -> Bool {
      let name = isWhole ? stateName : partialName
      guard state.hasPrefix(name) else { return false }
      let rest = state.dropFirst(name.count)
      return rest.isEmpty || rest.wholeMatch(of: /-\d+/) != nil
    }

    /// The name of a state that has a part of it, because the program could not write all.
    var partialName: String { stateName + "-partial" }
  }

  /// All snapshots, oldest first.
  ///
  /// - Throws: `sourceFailed` with the program's message, or if it is not installed.
  public func snapshots() throws(BlobStorageError) -> [Snapshot] {
    let found: [Snapshot]
    switch program {
    case .restic:
      let output = try run(["-r", place, "--no-lock", "snapshots", "--json"]).output
      found = try decoded([ResticSnapshot].self, output).map { snapshot in
        var notes = ["host \(snapshot.hostname ?? "unknown")"]
        if let tags = snapshot.tags, !tags.isEmpty { notes.append("tags \(tags.joined(separator: ", "))") }
        let paths = snapshot.paths ?? []
        return Snapshot(
          id: snapshot.id, created: Self.date(snapshot.time), stateName: "restic-\(snapshot.id.prefix(8))",
          host: snapshot.hostname, paths: paths, identity: paths, notes: notes)
      }
    case .borg:
      let output = try run(["list", "--json", "--format", "{hostname}{username}", place]).output
      found = try decoded(BorgList.self, output).archives.map { archive in
        let series = archive.name.firstMatch(of: /[-_.:@ ]*(?:\d{4}-?\d{2}|[-_.:@ ]\d)/).map {
          String(archive.name[..<$0.range.lowerBound])
        }
        return Snapshot(
          id: archive.name, created: Self.date(archive.start ?? archive.time),
          stateName: "borg-\(archive.id.prefix(8))", host: archive.hostname,
          identity: ["user \(archive.username ?? "")", "archive \(series ?? archive.name)"],
          notes: (archive.hostname.map { ["host \($0)"] } ?? []) + ["archive “\(archive.name)”"])
      }
    }
    return found.sorted { ($0.created, $0.id) < ($1.created, $1.id) }
  }

  /// Writes all files of a snapshot into an empty folder.
  ///
  /// - Returns: the program's warnings; nil if it gave none.
  /// - Throws: `sourceFailed` if it may not have written all files. restic does not tell that from a warning.
  func extract(_ snapshot: Snapshot, to folder: URL) throws(BlobStorageError) -> String? {
    switch program {
    case .restic:
      return try run(["-r", place, "--no-lock", "restore", snapshot.id, "--target", folder.path]).warnings
    case .borg:
      // A relative place is relative to the caller's folder.
      let isRemote = place.contains(":") || place.hasPrefix("/")
      let whole = isRemote ? place : URL(fileURLWithPath: place).path
      return try run(["extract", "--numeric-ids", "\(whole)::\(snapshot.id)"], in: folder, warns: true)
        .warnings
    }
  }

  private struct ResticSnapshot: Decodable {
    var id: String
    var time: String
    var hostname: String?
    var tags: [String]?
    var paths: [String]?
  }

  private struct BorgList: Decodable {
    struct Archive: Decodable {
      var id: String
      var name: String
      var start: String?
      var time: String
      var hostname: String?
      var username: String?
    }

    var archives: [Archive]
  }

  /// Parses a time of restic, with a zone, or of borg, without one.
  static func date(_ text: String) -> Date {
    let match = text.firstMatch(
      of: /(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(\.\d+)?(Z|[+-]\d{2}:\d{2})?/)
    guard let match else { return .distantPast }
    var calendar = Calendar(identifier: .gregorian)
    if let zone = match.8 {
      let digits = zone.filter(\.isNumber)
      let minutes = (Int(digits.prefix(2)) ?? 0) * 60 + (Int(digits.dropFirst(2)) ?? 0)
      calendar.timeZone = TimeZone(secondsFromGMT: (zone.hasPrefix("-") ? -60 : 60) * minutes) ?? .gmt
    }
    let components = DateComponents(
      year: Int(match.1), month: Int(match.2), day: Int(match.3), hour: Int(match.4), minute: Int(match.5),
      second: Int(match.6))
    return (calendar.date(from: components) ?? .distantPast).addingTimeInterval(
      match.7.flatMap { Double("0" + $0) } ?? 0)
  }

  private func decoded<Value: Decodable>(
    _ type: Value.Type, _ output: Data
  ) throws(BlobStorageError) -> Value {
    do { return try JSONDecoder().decode(type, from: output) } catch {
      throw BlobStorageError(
        .sourceFailed, "What \(program.rawValue) says of \(place) cannot be read: is it another version?",
        underlying: error)
    }
  }

  /// What the program has written to its end.
  private struct Output {
    var result: Data?
    var errors: Data?
  }

  /// Options of `env`: what this process ignores, as the tool does while it handles signals, the program would ignore,
  /// too. Empty where `env` does not have them, as before GNU coreutils 8.31 and in BusyBox.
  private static let defaultSignals: [String] = {
    let options = ["--default-signal=INT,TERM"]
    let trial = Process()
    trial.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    trial.arguments = options + ["true"]
    trial.standardError = FileHandle.nullDevice
    do { try trial.run() } catch { return [] }
    trial.waitUntilExit()
    return trial.terminationStatus == 0 ? options : []
  }()

  /// Runs the program to its end, or ends it if the task is cancelled.
  ///
  /// - Parameter warns: whether status 1 means that it has done its work, if all that it warns of are extended
  ///   attributes.
  private func run(
    _ arguments: [String], in folder: URL? = nil, warns: Bool = false
  ) throws(BlobStorageError) -> (output: Data, warnings: String?) {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = Self.defaultSignals + [program.rawValue] + arguments
    if let folder { process.currentDirectoryURL = folder }
    let (result, errors) = keepingStandardDescriptors { (Pipe(), Pipe()) }
    (process.standardOutput, process.standardError) = (result, errors)
    do { try process.run() } catch {
      throw BlobStorageError(.sourceFailed, "\(program.rawValue) cannot be started.", underlying: error)
    }
    let output = Monitor(Output())
    Thread.start(named: "blob-migration-output") {
      let data = result.fileHandleForReading.readDataToEndOfFile()
      output.withLock { $0.result = data }
      output.wakeAll()
    }
    Thread.start(named: "blob-migration-errors") {
      let data = errors.fileHandleForReading.readDataToEndOfFile()
      output.withLock { $0.errors = data }
      output.wakeAll()
    }
    let text: Data
    do throws(BlobStorageError) {
      text = try output.withLockUnlessCancelled(when: { $0.result != nil }) { $0.result ?? Data() }
    } catch {
      // On Linux, Foundation gives it a process group, which has its children, too.
      if kill(-process.processIdentifier, SIGTERM) != 0 { process.terminate() }
      process.waitUntilExit()
      throw error
    }
    process.waitUntilExit()
    if process.terminationStatus == 0 { return (text, nil) }
    if process.terminationStatus == 127 {
      throw BlobStorageError(
        .sourceFailed, "\(program.rawValue) is not installed: install it, and import again.")
    }
    // Only now: a process that outlives the program, such as one of ssh, may keep the pipe open.
    let errorText = try output.withLockUnlessCancelled(when: { $0.errors != nil }) { $0.errors ?? Data() }
    let lines = String(decoding: errorText, as: UTF8.self).split(whereSeparator: \.isNewline)
    let lastLines = lines.suffix(3).joined(separator: " ")
    // borg warns also of files that it could not write whole. A signal's number is no status.
    let isHarmless = lines.allSatisfy { $0.contains("extended attribute") }
    if warns, isHarmless, process.terminationReason == .exit, process.terminationStatus == 1 {
      return (text, "\(program.rawValue) warns of \(place): \(lastLines)")
    }
    throw BlobStorageError(.sourceFailed, "\(program.rawValue) failed on \(place): \(lastLines)")
  }
}
