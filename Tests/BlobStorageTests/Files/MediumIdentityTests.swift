import BlobStorage
import Foundation
import SystemPackage
import Testing

/// What was written without a sync is believed only where it is certain to be there still.
@Suite("The identity of a medium")
struct MediumIdentityTests {
  typealias Mark = MediumIdentity.Mark

  private static let here = MediumIdentity(boot: "b1", mount: "m1")

  @Test(
    "trusts what was written in this start of the machine through this mount",
    arguments: [
      (Mark(boot: "b1", mounts: ["m1"]), true, true), (Mark(boot: "b1", mounts: ["m2", "m1"]), true, true),
      (Mark(boot: "b1", mounts: ["m2"]), true, false), (Mark(boot: "b1", mounts: []), true, false),
      (Mark(boot: "b2", mounts: ["m1"]), false, false), (Mark(boot: "unknown", mounts: ["m1"]), false, false),
    ] as [(Mark, Bool, Bool)])
  func trusts(mark: Mark, isOfThisBoot: Bool, isTrusted: Bool) {
    #expect(Self.here.isOfThisBoot(mark) == isOfThisBoot)
    #expect(Self.here.trusts(mark) == isTrusted)
    #expect(Mark(mark.text[...]) == mark)
  }

  #if os(Linux)
    /// Other processes know the identity, and rely on what belongs to it.
    @Test("is not unknown only because its process may open no more files")
    func noDescriptors() async {
      await #expect(processExitsWith: .success) {
        var before = rlimit()
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        #expect(getrlimit(resource, &before) == 0)
        var none = before
        none.rlim_cur = 0
        #expect(setrlimit(resource, &none) == 0)
        let error = #expect(throws: BlobStorageError.self) { try BootIdentity.current() }
        #expect(setrlimit(resource, &before) == 0)
        #expect(error?.errno == Errno.tooManyOpenFiles.rawValue)
        let known = try BootIdentity.current()
        #expect(!known.isEmpty)
      }
    }
  #endif

  @Test("trusts nothing where the system does not tell the start")
  func unknownBoot() {
    let unknown = MediumIdentity(boot: "", mount: "m1")
    #expect(unknown.text.isEmpty)
    #expect(!unknown.trusts(unknown.mark) && !unknown.isOfThisBoot(unknown.mark))
    let read = Mark(unknown.mark.text[...])
    #expect(!unknown.trusts(read) && !Self.here.trusts(read))
  }

  @Test("is added to a mark of the same start, and takes the place of any other")
  func mark() {
    let here = Self.here
    #expect(here.text == "b1/m1")
    #expect(here.mark == Mark(boot: "b1", mounts: ["m1"]))
    #expect(here.mark(with: Mark(boot: "b2", mounts: ["m2"])) == here.mark)
    #expect(here.mark(with: Mark(boot: "b1", mounts: ["m2", "m1", "m3"])).text == "b1/m1/m2/m3")
    let many = Mark(boot: "b1", mounts: (2...20).map { "m\($0)" })
    #expect(here.mark(with: many) == Mark(boot: "b1", mounts: (1...8).map { "m\($0)" }))
  }
}
