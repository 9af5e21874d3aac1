import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

@Suite("A writer that holds a collection up")
struct RemoteFenceTests {
  private let machines: SharedMachines

  init() throws { machines = try SharedMachines() }

  /// What happens while a stream of `engine` hangs between its two parts.
  private func hang(
    _ engine: Engine, _ bytes: [UInt8], _ body: @escaping @Sendable () throws -> Void
  ) throws {
    let reads = CallCount()
    let content = BlobContent.stream {
      switch reads.next() {
      case 1: return Data(bytes.prefix(2 << 20))
      case 2:
        try body()
        return Data(bytes.suffix(1 << 20))
      default: return nil
      }
    }
    _ = try engine.put("hung", content, PutOptions())
  }

  /// Collects while the writer of `living` shows that it lives, which must be named then. Returns its number.
  private func busyWriter(_ one: Engine, _ living: Engine) throws -> String {
    let error = try #require(
      failure {
        _ = try one.collectGarbage(SharedMachines.everything) { progress in
          guard progress.phase == "waiting" else { return }
          living.runPeriodicWork()
          living.renewRegistrations()
        }
      })
    #expect(error.code == .busy)
    let process = ProcessInfo.processInfo
    let program = WriterProcess.command(process.arguments)
    #expect(
      error.message.hasPrefix(
        "\(process.hostName) (process \(process.processIdentifier), \(program), since 20"), "\(error.message)"
    )
    let writer = Hex.text(living.writer.writerID)
    #expect(error.message.contains("`gc --fence \(writer)`"))
    return writer
  }

  @Test("is named, with its process, and can be ended: it notices, and what it had published stays")
  func forced() throws {
    var random = SplitMix64.announced()
    let (one, two) = (try machines.engine("one"), try machines.engine("two", silence: .infinity))
    let bytes = random.bytes(3 << 20)
    _ = try one.put("old", bytes, PutOptions())
    try two.extend()
    _ = try two.put("durable", Array("text".utf8), PutOptions())
    let machines = machines
    let error = try #require(
      failure {
        do {
          try hang(two, bytes) {
            _ = try one.delete(["old"], .durable)
            let writer = try busyWriter(one, two)
            var options = SharedMachines.everything
            options.fencedWriters = [writer]
            let report = try one.collectGarbage(options)
            #expect(report.deletedPackCount == 1 && report.obstacles == [])
            #expect(machines.names("writers/") == [SharedNames.writer(one.writer.writerID)])
          }
        } catch let error as BlobStorageError { throw error } catch { Issue.record(error) }
      })
    #expect(error.code == .fenced)
    #expect(error.message.contains("has fenced this writer"))
    // It publishes nothing more, and shows no life.
    #expect(failure { _ = try two.put("late", Array("late".utf8), PutOptions()) }?.code == .fenced)
    two.renewRegistrations()
    #expect(machines.names("writers/") == [SharedNames.writer(one.writer.writerID)])
    #expect(failure { try two.close() }?.code == .fenced)
    try one.close()
    try machines.check(["durable": Array("text".utf8)], "after the fence")
    // A process that opens the folder anew goes on.
    let next = try machines.engine("two")
    _ = try next.put("hung", bytes, PutOptions())
    try next.close()
    try machines.check(["durable": Array("text".utf8), "hung": bytes], "when it was done again")
  }

  @Test("keeps the next collection from condemning more")
  func condemnsNoMore() throws {
    var random = SplitMix64.announced()
    let (one, two) = (try machines.engine("one"), try machines.engine("two"))
    let bytes = random.bytes(3 << 20)
    _ = try one.put("old", bytes, PutOptions())
    try two.extend()
    let machines = machines
    try hang(two, bytes) {
      _ = try one.delete(["old"], .durable)
      _ = try busyWriter(one, two)
      let log = CollectionLog(machines.store, storeID: one.header.storeID)
      let condemned = try log.read(after: Collections()).condemned
      #expect(condemned.count == 1)
      _ = try one.put("more", Array("garbage".utf8), PutOptions())
      _ = try one.delete(["more"], .durable)
      _ = try busyWriter(one, two)
      #expect(try log.read(after: Collections()).condemned == condemned)
    }
    two.runPeriodicWork()
    // The first finishes, and the next removes the rest.
    for _ in 0..<2 { #expect(try one.collectGarbage(SharedMachines.everything).obstacles == []) }
    #expect(
      try CollectionLog(machines.store, storeID: one.header.storeID).read(after: Collections()).condemned
        == [])
    try machines.check(["hung": bytes], "afterwards")
  }

  /// Fails if a gc that cannot tell whether the writer lives ends it.
  @Test("is not ended by a gc that does not wait, which says so, and neither is another collector")
  func unwaited() throws {
    var random = SplitMix64.announced()
    let (one, two) = (try machines.engine("one", fencePatience: 180), try machines.engine("two"))
    let bytes = random.bytes(3 << 20)
    let text = Data("kept".utf8)
    let items = [PutItem(key: "old", data: Data(bytes)), PutItem(key: "kept", data: text)]
    _ = try one.put(items, PutOptions())
    try two.extend()
    try hang(two, bytes) {
      _ = try one.delete(["old"], .durable)
      for _ in 0..<2 {
        let error = try #require(failure { _ = try one.collectGarbage(SharedMachines.everything) })
        #expect(error.code == .busy && error.message.contains("wait for longer"), "\(error)")
      }
      // What is condemned and needed is copied before it goes.
      #expect(try VersionChanges(one).put(nil, of: "kept", as: "copy", PutOptions()) != nil)
      // That collection stands, and its collector shows no sign of life.
      let other = try machines.engine("other", fencePatience: 180)
      let error = failure { _ = try other.collectGarbage(SharedMachines.everything) }
      #expect(error?.code == .busy && error?.message.contains("wait for longer") == true, "\(error as Any)")
      try other.close()
    }
    let report = try one.collectGarbage(SharedMachines.everything) { progress in
      if progress.phase == "waiting" { two.runPeriodicWork() }
    }
    #expect(report.obstacles == [])
    try machines.check(["hung": bytes, "kept": Array(text), "copy": Array(text)], "afterwards")
  }

  @Test("is ended only under the number of one that is registered")
  func unknown() throws {
    let one = try machines.engine("one")
    _ = try one.put("a", Array("text".utf8), PutOptions())
    for name in ["", "7", "00000000000000007", "000000000000000G", "0000000000000007"] {
      var options = SharedMachines.everything
      options.fencedWriters = [name]
      let error = failure { _ = try one.collectGarbage(options) }
      #expect(error?.code == .invalidArgument, "\(name)")
    }
    #expect(try one.put("b", Array("text".utf8), PutOptions()).newByteCount == 0)
  }

  @Test("says its program and its command, and no other argument")
  func command() {
    #expect(WriterProcess.command(["/usr/bin/blobtool", "import", "secret"]) == "blobtool import")
    #expect(WriterProcess.command(["blobtool", "--token=secret"]) == "blobtool")
    #expect(WriterProcess.command(["server", "/private/folder"]) == "server")
    #expect(WriterProcess.command(["server", ""]) == "server")
    #expect(WriterProcess.command([]) == "")
    let process = WriterProcess(machine: "atlas", number: 4711, command: "tool put", began: 1_700_000_000_123)
    #expect(process.text == "atlas (process 4711, tool put, since 2023-11-14T22:13:20Z)")
    #expect(WriterProcess(machine: "atlas").text == "atlas")
  }
}
