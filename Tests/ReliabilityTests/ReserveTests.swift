import BlobStorage
import BlobStorageTestSupport
import BlobStorageTrees
import Foundation
import SystemPackage
import Testing

/// A caller that only drops wants to free room, and must not need any.
@Suite("Several changes on a full disk")
struct ReserveTests {
  private static let reserve = FilePath("\(Lab.storePath)/reserve")

  /// Leaves no byte free on the disk.
  static func fill(_ lab: Lab) throws {
    let all: Int64 = 1 << 40
    lab.disk.limit(byteCount: Int(all))
    let free = try lab.disk.availableByteCount(at: FilePath(Lab.storePath))
    lab.disk.limit(byteCount: Int(all - free))
  }

  @Test(
    "find room in the reserve when all of them are deletions, and do not take it when something is put",
    arguments: [Durability.durable, .relaxed])
  func changes(_ durability: Durability) throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 600)), ("b", noise(2, 600)), ("c", noise(3, 600))]) }
    let engine = try lab.open()
    let version = try #require(try engine.version("b", nil)).id
    try Self.fill(lab)
    for replacement in [Replacement.replaceCurrent, .archiveCurrent] {
      // The bytes are there already: all that has to be written is a record.
      let item = PutItem(key: "c", data: noise(1, 600))
      let error = #expect(throws: BlobStorageError.self) {
        try engine.change([.delete("a"), .put(item, replacement: replacement)], durability)
      }
      #expect(error?.code == .noSpace)
      let (data, reserve) = (try engine.data("a", nil), try lab.disk.status(of: Self.reserve))
      #expect(data == noise(1, 600) && reserve != nil, "\(replacement)")
    }
    let results = try engine.change([.delete("a"), .delete("b", if: .current(version))], durability)
    #expect(results.count == 2 && results.allSatisfy { $0 == nil })
    let reserve = try lab.disk.status(of: Self.reserve)
    #expect(reserve == nil, "there was room in any case")
    func check(_ engine: Engine) throws {
      let (keys, data) = (try engine.keys("", after: nil, limit: 9).map(\.key), try engine.data("c", nil))
      #expect(keys == ["c"] && data == noise(3, 600))
    }
    try check(engine)
    if durability == .durable { try lab.afterPowerCut { $0.powerCut() }.session(check) }
    lab.disk.limit(byteCount: nil)
    try engine.close()
    try lab.forgetCatalog()
    try lab.session(check)
  }

  @Test("find room in the reserve when a state is dropped that another builds on")
  func states() throws {
    let lab = try Lab()
    var states: [TreeState] = []
    try lab.session { engine in
      for number in 0..<2 {
        let version = try engine.put("\(number)", .data(noise(UInt64(number), 600)), PutOptions()).version
        let recorder = try StateRecorder(
          engine, prefix: "", name: nil, origin: TreeOrigin([]),
          created: Date(timeIntervalSince1970: Double(number)))
        recorder.add(Array("\(number)".utf8), version.id)
        states.append(try recorder.finish())
      }
    }
    let engine = try lab.open()
    try Self.fill(lab)
    let file = StateFile(engine)
    try file.drop([states[0]])
    #expect(try file.states().map(\.id) == [states[1].id])
    lab.disk.limit(byteCount: nil)
    let walk = try file.walk(states[1])
    defer { walk.close() }
    let key = try walk.next()?.key
    #expect(key == Array("1".utf8))
    try engine.close()
  }
}
