import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

#if os(Linux)
  @Suite("Descriptors 0 to 2")
  struct StandardDescriptorTests {
    /// A process of its own, which loses them.
    @Test("never belong to a store, also while the program has closed them")
    func closed() async {
      await #expect(processExitsWith: .success) {
        for closed in 1..<8 { try Self.use(withoutDescriptors: (0..<3).filter { closed >> $0 & 1 == 1 }) }
      }
    }

    private static func use(withoutDescriptors numbers: [Int32]) throws {
      let place = try StorePlace()
      let folder = place.temporary.path
      for number in numbers { close(number) }
      let engine = try place.engine()
      let content = [UInt8](repeating: 7, count: 3_000_000)
      _ = try engine.put("k", content, PutOptions())
      #expect(try engine.data("k", nil) == Data(content))
      let opened = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
        Int32($0)
      }
      var ownCount = 0
      for number in opened {
        guard
          let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(number)"),
          target.hasPrefix(folder.string)
        else { continue }
        ownCount += 1
        #expect(number > 2, "\(target)")
        #expect(fcntl(number, F_GETFD) == FD_CLOEXEC, "\(target)")
      }
      #expect(ownCount > 5)
      // The placeholders are gone.
      for number in numbers { #expect(fcntl(number, F_GETFD) == -1) }
      try engine.close()
      for _ in numbers { _ = open("/dev/null", O_RDWR) }
    }

    @Test("stay free while threads open files beside each other")
    func threads() async {
      await #expect(processExitsWith: .success) {
        let folder = try TemporaryFolder()
        close(0)
        close(2)
        DispatchQueue.concurrentPerform(iterations: 4) { number in
          let path = folder.path.appending("\(number)")
          for round in 0..<3_000 {
            do {
              // By turns one to write and one to read.
              let file = try SystemFiles().open(path, round & 1 == 0 ? .openOrCreate : .read)
              keepingStandardDescriptors {
                let foreign = open("/dev/null", O_RDONLY)
                #expect(foreign > 2)
                close(foreign)
              }
              file.close()
            } catch {
              Issue.record(error)
            }
          }
        }
        #expect(fcntl(0, F_GETFD) == -1 && fcntl(2, F_GETFD) == -1)
      }
    }

    @Test("that a program opens beside a placeholder stay its own")
    func reused() async {
      await #expect(processExitsWith: .success) {
        close(2)
        keepingStandardDescriptors {
          #expect(fcntl(2, F_GETFD) >= 0)
          let mine = open("/dev/null", O_RDWR)
          #expect(mine > 2 && dup2(mine, 2) == 2)
        }
        #expect(fcntl(2, F_GETFD) >= 0)
        close(2)
        keepingStandardDescriptors {}
        #expect(fcntl(2, F_GETFD) == -1)
      }
    }
  }
#endif
