import Dispatch
import Foundation

// A program for the drop-in tests: what it does is its first argument. It ends with 0 if all went well.
setvbuf(stdout, nil, _IOLBF, 0)
let arguments = CommandLine.arguments
switch arguments.dropFirst().first {
case "examples":
  // Completions on the main queue arrive because it runs; nothing else waits for it.
  DispatchQueue.global().async {
    runExamples()
    exit(0)
  }
  dispatchMain()
case "wait": waitOnMainThread(root: arguments[2])
case "leave": leaveAtOnce(root: arguments[2])
case "fire": exit(fire(root: arguments[2]) ? 0 : 1)
case "write": write(root: arguments[2], key: arguments[3])
case "old": readOld(root: arguments[2], Array(arguments.dropFirst(3)))
case "save": save(from: Int(arguments[2]) ?? 0)
default: exit(2)
}
