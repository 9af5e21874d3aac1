import BlobStorage
import Foundation

/// Measures the store inside one process, one piece of work a run, and prints a JSON object.
@main
enum StoreBench {
  static let usage = """
    usage: StoreBench images --list FILE --order FILE --store PATH [--durable] [--threads N]
           StoreBench range --store PATH --key KEY [--count N] [--length BYTES]
           StoreBench stream --store PATH --key KEY
           StoreBench import --store PATH --similarity on|off PATH
           StoreBench digest --file PATH --length BYTES
           StoreBench fill --store PATH --chunks N [--similarity on|off]
           StoreBench growth --store PATH

    """

  static func main() async {
    do {
      var arguments = try Arguments(CommandLine.arguments.dropFirst())
      let result: [String: Any]
      switch arguments.verb {
      case "images": result = try Images(&arguments).run()
      case "range": result = try await RangeReads(&arguments).run()
      case "stream": result = try await WholeRead(&arguments).run()
      case "import": result = try await Import(&arguments).run()
      case "digest": result = try DigestRate(&arguments).run()
      case "fill": result = try await GrowthFill(&arguments).run()
      case "growth": result = try await GrowthMeasure(&arguments).run()
      default: throw UsageError(reason: "there is no “\(arguments.verb)”")
      }
      let text = try JSONSerialization.data(withJSONObject: result, options: [.sortedKeys])
      FileHandle.standardOutput.write(text + Data("\n".utf8))
    } catch let error as UsageError {
      FileHandle.standardError.write(Data("StoreBench: \(error.reason)\n\(usage)".utf8))
      exit(64)
    } catch {
      FileHandle.standardError.write(Data("StoreBench: \(error)\n".utf8))
      exit(1)
    }
  }
}

struct UsageError: Error {
  var reason: String
}

/// The verb, the options as `--name value`, flags as `--name`, and what is left.
struct Arguments {
  let verb: String
  private var options: [String: String] = [:]
  private(set) var rest: [String] = []
  private static let flags: Set<String> = ["durable"]

  init(_ words: ArraySlice<String>) throws {
    guard let verb = words.first else { throw UsageError(reason: "what is to be measured?") }
    self.verb = verb
    var words = words.dropFirst()
    while let word = words.popFirst() {
      guard word.hasPrefix("--") else {
        rest.append(word)
        continue
      }
      let name = String(word.dropFirst(2))
      if Self.flags.contains(name) {
        options[name] = ""
      } else if let value = words.popFirst() {
        options[name] = value
      } else {
        throw UsageError(reason: "\(word) needs a value")
      }
    }
  }

  func text(_ name: String) throws -> String {
    guard let value = options[name] else { throw UsageError(reason: "--\(name) is missing") }
    return value
  }

  func number(_ name: String, default fallback: Int? = nil) throws -> Int {
    if options[name] == nil, let fallback { return fallback }
    guard let value = Int(try text(name)), value > 0 else {
      throw UsageError(reason: "--\(name) is not a number above 0")
    }
    return value
  }

  func has(_ name: String) -> Bool { options[name] != nil }
}
