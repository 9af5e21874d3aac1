import BlobStorage
import Foundation
import SystemPackage
import Testing

@Suite("A descriptor gate")
struct DescriptorGateTests {
  @Test("closes after the last call has left, not under it")
  func closesAfterLastCall() throws {
    let pipe = Pipe()
    let writer = pipe.fileHandleForWriting.fileDescriptor
    let gate = DescriptorGate(owning: dup(writer))
    try pipe.fileHandleForWriting.close()
    // The pipe's other end is at its end exactly when the gate has closed its own.
    func isClosed() -> Bool {
      var waiting = pollfd(fd: pipe.fileHandleForReading.fileDescriptor, events: 0, revents: 0)
      return poll(&waiting, 1, 0) == 1 && waiting.revents & Int16(POLLHUP) != 0
    }
    let seen = gate.enter { _ in
      gate.shutGate()
      let whenShut = isClosed()
      let isInside = gate.enter { _ in true }
      return (whenShut, isInside)
    }
    #expect(seen?.0 == false)
    #expect(seen?.1 == nil)
    #expect(isClosed())
  }
  #if DEBUG
    @Test("stops a debug build when its descriptor was closed behind its back")
    func closedTwice() async {
      await #expect(processExitsWith: .failure) {
        let descriptor = open("/dev/null", O_RDONLY)
        let gate = DescriptorGate(owning: descriptor)
        close(descriptor)
        gate.shutGate()
      }
    }
  #endif
}
