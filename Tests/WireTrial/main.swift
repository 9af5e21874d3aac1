// What `tools/bench machines` measures from inside a process; prints a line of JSON.
//   WireTrial objects s3://BUCKET/PREFIX COUNT BYTES WIDTH   puts, reads and deletes objects of a pack's length
//   WireTrial ranges s3://BUCKET/PREFIX STATE KEY COUNT      random 64 KiB of a blob, one after the other
//   WireTrial fill s3://BUCKET/PREFIX STATE CHUNKS           makes a store of so many chunks of 1 KiB
import BlobStorage
import BlobStorageS3
import Foundation
import SystemPackage

func fail(_ text: String, status: Int32 = 1) -> Never {
  FileHandle.standardError.write(Data("WireTrial: \(text)\n".utf8))
  exit(status)
}

func say(_ result: [(name: String, value: String)]) {
  let text = result.map { "\"\($0.name)\":\($0.value)" }.joined(separator: ",")
  FileHandle.standardOutput.write(Data("{\(text)}\n".utf8))
}

func randomData(_ byteCount: Int) -> Data {
  var generator = SystemRandomNumberGenerator()
  return Data((0..<byteCount / 8).flatMap { _ in withUnsafeBytes(of: generator.next()) { Array($0) } })
}

let arguments = Array(CommandLine.arguments.dropFirst())
guard arguments.count >= 4 else { fail("too few arguments", status: 64) }
let place = try S3Configuration(location: try S3Location(arguments[1]))
switch (arguments[0], arguments.count) {
case ("objects", 5):
  guard let count = Int(arguments[2]), let byteCount = Int(arguments[3]), let width = Int(arguments[4]) else {
    fail("COUNT, BYTES and WIDTH are numbers", status: 64)
  }
  try ObjectTrial(place: place, count: count, byteCount: byteCount, width: width).run()
case ("ranges", 5):
  guard let count = Int(arguments[4]), count > 0 else { fail("COUNT is a number", status: 64) }
  try await StoreTrial(place: place, state: arguments[2]).readRanges(of: arguments[3], count: count)
case ("fill", 4):
  guard let count = Int(arguments[3]) else { fail("CHUNKS is a number", status: 64) }
  try await StoreTrial(place: place, state: arguments[2]).fill(chunkCount: count)
default: fail("there is no such trial", status: 64)
}
