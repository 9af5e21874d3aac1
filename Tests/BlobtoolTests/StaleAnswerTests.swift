import BlobStorageTestSupport
import Foundation
import Testing

/// A file of a store may be damaged, missing or of an earlier day. No command then ends well with an answer that is not
/// the newest.
///
/// Every day a sample by a fixed seed; with `BLOB_STORAGE_SOAK_SECONDS` all of it, as far as the time allows, with
/// every question.
@Suite("Stale answers", .serialized)
struct StaleAnswerTests {
  private static let seconds = ProcessInfo.processInfo.environment["BLOB_STORAGE_SOAK_SECONDS"].flatMap(
    Double.init)
  /// A part of what a damage's description says: to try a few of them.
  private static let chosen = ProcessInfo.processInfo.environment["BLOB_STORAGE_SCENARIO"].flatMap {
    $0.isEmpty ? nil : $0
  }
  private static let seed = TestSeed.choose()

  @Test("of a store with sealed packs, and of one that a killed writer has left")
  func damages() async throws {
    print("stale answers with BLOB_STORAGE_SEED=\(Self.seed)")
    let history = try await StoreHistory()
    try await tryAll(history, history.sealed)
    try await tryAll(history, history.killed)
  }

  /// Tries damages, every day one of each kind.
  private func tryAll(_ history: StoreHistory, _ newest: URL) async throws {
    let examination = try await StoreExamination(history, newest, asksAll: Self.seconds != nil)
    var generator = SplitMix64(seed: Self.seed)
    let steps = history.steps.filter { $0 != newest && $0.path < newest.path }
    var damages = try StoreDamage.all(newest, before: steps).shuffled(using: &generator)
    if let chosen = Self.chosen {
      damages.removeAll { !$0.description.contains(chosen) }
    } else if Self.seconds == nil {
      damages = StoreDamage.Kind.allCases.flatMap { kind in damages.filter { $0.kind == kind }.prefix(1) }
    }
    let end = Self.seconds.map { Date().addingTimeInterval($0 / 2) }
    let width = min(4, ProcessInfo.processInfo.activeProcessorCount)
    let all = damages
    let count = try await withThrowingTaskGroup(of: Int.self) { group in
      for first in 0..<width {
        group.addTask {
          var count = 0
          for index in stride(from: first, to: all.count, by: width) {
            if let end, Date() > end { break }
            try await examination.examine(all[index], number: index)
            count += 1
          }
          return count
        }
      }
      return try await group.reduce(0, +)
    }
    #expect(count >= (Self.chosen == nil && Self.seconds == nil ? StoreDamage.Kind.allCases.count : 1))
    print("counts after stale answers: damaged stores asked \(count)")
  }
}

/// Asks damaged copies of a store, and compares with what the undamaged one says.
struct StoreExamination: Sendable {
  private let history: StoreHistory
  private let newest: URL
  private let asksAll: Bool
  /// What the store says while nothing is damaged, by the names of questions.
  private let truth: [String: StoreAnswer]

  /// Exit codes that the tool's manual page names, but for those of signals.
  private static let documented: Set<Int32> = [0, 1, 3, 4, 5, 64]

  init(_ history: StoreHistory, _ newest: URL, asksAll: Bool) async throws {
    self.history = history
    self.newest = newest
    self.asksAll = asksAll
    let workshop = try await Self.copy(newest)
    var truth: [String: StoreAnswer] = [:]
    func ask(_ moment: String) async throws {
      for question in StoreQuestion.all {
        let answer = try await question.answer(workshop, history)
        #expect(answer == truth[question.name] ?? answer, "\(question.name) \(moment)")
        truth[question.name] = answer
      }
    }
    try await ask("at first")
    // What is no damage, and no loss, changes none of it.
    for change in [["gc"], ["repair"], ["gc"]] { try await workshop.expect(0, change) }
    try await ask("after collections and a repair")
    #expect(truth["export"]?.content == StoreQuestion.tree(history.values))
    for (name, answer) in truth {
      let isAbsent = ["get deleted", "get deleted later", "get files/a", "get never", "versions deleted"]
        .contains(name)
      #expect(answer.status == (isAbsent ? 3 : 0), "\(name)")
    }
    self.truth = truth
  }

  private static func copy(_ store: URL) async throws -> Workshop {
    let workshop = try await Workshop(hasStore: false)
    try Workshop.copyStore(store, to: URL(fileURLWithPath: workshop.storePath))
    return workshop
  }

  /// Damages a copy and asks: at once, after a repair and after collections; or after changes.
  func examine(_ damage: StoreDamage, number: Int) async throws {
    if asksAll || !number.isMultiple(of: 3) {
      let workshop = try await Self.copy(newest)
      try damage.apply(URL(fileURLWithPath: workshop.storePath))
      let trial = Trial(history, workshop, truth, "\(damage)")
      var before = try await trial.ask(questions(number, isFirst: true), "at once")
      // A collection of what is damaged, or of what a repair has left.
      let changes = number.isMultiple(of: 2) ? ["gc", "repair", "gc", "gc"] : ["repair", "gc", "gc"]
      for (index, change) in changes.enumerated() {
        let outcome = try await workshop.run([change])
        trial.check(outcome.status, change)
        // The second of two collections removes what the first has retired.
        if changes.dropFirst(index + 1).first == change { continue }
        before = try await trial.ask(
          questions(number, isFirst: false), "after \(changes[...index])", since: before)
      }
    }
    if asksAll || number.isMultiple(of: 3) {
      let workshop = try await Self.copy(newest)
      try damage.apply(URL(fileURLWithPath: workshop.storePath))
      try await Trial(history, workshop, truth, "\(damage)").change(history.values)
    }
  }

  /// Every day a few of the questions, each time others: the first command that meets a damage may mend it.
  private func questions(_ number: Int, isFirst: Bool) -> [StoreQuestion] {
    let all = StoreQuestion.all
    if !asksAll, !isFirst { return StoreQuestion.short }
    let start = number * 5 % all.count
    return Array((all[start...] + all[..<start]).prefix(asksAll ? all.count : 5))
  }

  /// One damaged store.
  private struct Trial: Sendable {
    let history: StoreHistory
    let workshop: Workshop
    let truth: [String: StoreAnswer]
    let damage: String

    init(_ history: StoreHistory, _ workshop: Workshop, _ truth: [String: StoreAnswer], _ damage: String) {
      self.history = history
      self.workshop = workshop
      self.truth = truth
      self.damage = damage
    }

    func check(_ status: Int32, _ command: String) {
      #expect(documented.contains(status), "\(damage): \(command) ended with \(status)")
    }

    /// Asks, and compares with the truth and with what was answered before.
    func ask(_ questions: [StoreQuestion], _ moment: String, since before: [String: StoreAnswer] = [:])
      async throws -> [String:
      StoreAnswer]
    {
      var answers: [String: StoreAnswer] = [:]
      var isVerified = false
      for question in questions {
        let answer = try await question.answer(workshop, history)
        let name = question.name
        answers[name] = answer
        check(answer.status, "\(moment): \(name)")
        // That there is no such key is an answer, too.
        if answer.status == 0 || answer.status == 3 {
          #expect(answer == truth[name], "\(damage): \(moment): \(name)")
        } else {
          #expect(
            !isVerified,
            "\(damage): \(moment): \(name) ended with \(answer.status) after verify found nothing")
        }
        if name == "verify", answer.status == 0 { isVerified = true }
        // What was right may be told to be uncertain by now, and is still there. Sums leave out what is lost, and say so.
        let isSum = ["stats", "report"].contains(name) && answer.status != 0
        // What `info` says of a blob is right only as long as the blob can be read: it does not read it.
        let basis = name == "info replaced" ? "get replaced" : name
        if name != "verify", !isSum, let truth = truth[name], truth.status == 0,
          before[name]?.content == truth.content, before[basis]?.content == self.truth[basis]?.content
        {
          #expect(answer.content == truth.content, "\(damage): \(moment): \(name) was right before")
        }
      }
      return answers
    }

    /// Puts, deletes and imports, and asks for that: what a command says is done counts whatever was damaged.
    func change(_ values: [String: Data]) async throws {
      var values = values
      var uncertain: Set<String> = []
      func run(_ words: [String], input: Data = Data(), _ after: [String: Data?]) async throws {
        let status = try await workshop.run(words, input: input).status
        check(status, "\(words)")
        for (key, value) in after {
          if status == 0 { values[key] = value } else { uncertain.insert(key) }
        }
      }
      let fresh = noise(700, seed: 99)
      try await run(["put", "replaced"], input: fresh, ["replaced": fresh])
      // The same bytes as what is there, in chunks that may be damaged.
      let long = values["long"] ?? Data()
      try await run(["put", "long again"], input: long, ["long again": long])
      try await run(["delete", "archived"], ["archived": nil])
      for name in ["b", "folder/c"] { try workshop.write(Data("imported \(name)".utf8), to: "tree/\(name)") }
      try await run(
        ["import", "tree", "--prefix", "files/"],
        ["files/b": Data("imported b".utf8), "files/folder/c": Data("imported folder/c".utf8)])
      for moment in ["at once", "after gc"] {
        let tree = try await StoreQuestion.export.answer(workshop, history)
        check(tree.status, "export")
        if tree.status == 0, uncertain.isEmpty {
          #expect(tree.content == StoreQuestion.tree(values), "\(damage): changed, \(moment): export")
        }
        for key in ["replaced", "long again", "archived", "files/b"] where !uncertain.contains(key) {
          let answer = try await StoreQuestion.get(key).answer(workshop, history)
          check(answer.status, "get \(key)")
          // What is new is there even if something else is lost; what was deleted is not.
          let isFresh = key == "replaced" || key == "files/b"
          if answer.status == 0 || answer.status == 3 || isFresh {
            #expect(answer.content == values[key] ?? Data(), "\(damage): changed, \(moment): get \(key)")
            #expect(answer.status != 3 || values[key] == nil, "\(damage): changed, \(moment): get \(key)")
            #expect(answer.status != 0 || values[key] != nil, "\(damage): changed, \(moment): get \(key)")
          }
        }
        if moment == "at once" { for _ in 0..<2 { check(try await workshop.run(["gc"]).status, "gc") } }
      }
    }
  }
}
