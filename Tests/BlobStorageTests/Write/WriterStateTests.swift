import BlobStorage
import Foundation
import Testing

@Suite("What the threads of a session share")
struct WriterStateTests {
  private static func chunk(_ byte: UInt8) -> PackRecord.Content {
    let digest = BlobDigest.of(Data([byte]), by: .blake3)
    return .chunk(ChunkRecord(digest: digest, plainByteCount: 1, codecNumber: 0))
  }

  @Test("shows an attempt to commit what became visible since it began, and no later one")
  func attempts() {
    var state = WriterState()
    let first = state.beginAttempt()
    let second = state.beginAttempt()
    state.removePending([Self.chunk(1)])
    let third = state.beginAttempt()
    for attempt in [first, second] {
      #expect(state.has(Self.chunk(1), in: attempt))
      #expect(!state.has(Self.chunk(2), in: attempt))
    }
    // Its view shows the chunk, unless gc has condemned the chunk's pack: then it must not count on it (H2).
    #expect(!state.has(Self.chunk(1), in: third))
    #expect(!state.has(Self.chunk(1), in: .max))
    state.endAttempt(first)
    #expect(state.has(Self.chunk(1), in: second))
    state.endAttempt(second)
    state.endAttempt(third)
    #expect(!state.has(Self.chunk(1), in: second))
  }

  @Test("shows an old attempt what became visible when newer ones had ended")
  func oldAttempt() {
    var state = WriterState()
    let old = state.beginAttempt()
    for number in 0..<3 {
      let new = state.beginAttempt()
      state.removePending([Self.chunk(UInt8(number))])
      state.endAttempt(new)
    }
    for number in 0..<3 { #expect(state.has(Self.chunk(UInt8(number)), in: old)) }
  }

  @Test("forgets at the end of all attempts what it has shown them")
  func noAttempts() {
    var state = WriterState()
    state.removePending([Self.chunk(1)])
    let first = state.beginAttempt()
    #expect(!state.has(Self.chunk(1), in: first))
  }
}
