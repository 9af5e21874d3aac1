import BlobStorageDropIn
import Dispatch
import Foundation

/// The main thread waits, so that its queue never runs.
func waitOnMainThread(root: String) {
  let archive = DataArchive(rootUrl: URL(fileURLWithPath: root))
  let done = DispatchSemaphore(value: 0)
  archive.set(key: "key", data: Data("value".utf8)) { _ in done.signal() }
  done.wait()
  var value: Data?
  archive.get(key: "key") { data, _ in
    value = data
    done.signal()
  }
  done.wait()
  exit(value == Data("value".utf8) ? 0 : 1)
}

/// Ends while writes are under way.
func leaveAtOnce(root: String) {
  let archive = DataArchive(rootUrl: URL(fileURLWithPath: root))
  for number in 0..<100 { archive.set(key: "key\(number % 10)", data: Data("\(number)".utf8)) }
  exit(0)
}

/// 1,000 operations on 50 keys from 8 threads, none waited for: in the order of the calls for each key?
func fire(root: String) -> Bool {
  final class Key {
    let name: String
    let lock = NSLock()
    var calls: [Int] = []
    var completions: [Int] = []
    var last: Int?
    var isWrong = false
    init(_ name: String) { self.name = name }
  }
  let archive = DataArchive(rootUrl: URL(fileURLWithPath: root))
  let keys = (0..<50).map { Key("key\($0)") }
  let group = DispatchGroup()
  DispatchQueue.concurrentPerform(iterations: 8) { thread in
    for index in 0..<125 {
      let number = thread * 125 + index
      let key = keys[(number * 7 + thread) % keys.count]
      // The call under the lock, so that the order of the calls is known.
      key.lock.lock()
      key.calls.append(number)
      group.enter()
      if index % 3 == 2 {
        let expected = key.last
        archive.get(key: key.name) { data, _ in
          key.lock.lock()
          key.completions.append(number)
          if data != expected.map({ Data("\($0)".utf8) }) { key.isWrong = true }
          key.lock.unlock()
          group.leave()
        }
      } else {
        key.last = number
        archive.set(key: key.name, data: Data("\(number)".utf8)) { result in
          key.lock.lock()
          key.completions.append(number)
          if !result.isSuccess { key.isWrong = true }
          key.lock.unlock()
          group.leave()
        }
      }
      key.lock.unlock()
    }
  }
  group.wait()
  for key in keys where key.isWrong || key.calls != key.completions {
    print("wrong: \(key.name): calls \(key.calls), completions \(key.completions)")
    return false
  }
  return true
}

/// Appends versions to a key and replaces another key's for ever, and says what has been promised.
func write(root: String, key: String) {
  let archive = DataArchive(rootUrl: URL(fileURLWithPath: root))
  let done = DispatchSemaphore(value: 0)
  var number = 0
  archive.get(key: key) { data, _ in
    number = data.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
    done.signal()
  }
  done.wait()
  while true {
    number += 1
    var isPromised = true
    let note: (DataArchiveResult) -> Void = {
      if !$0.isSuccess { isPromised = false }
      done.signal()
    }
    archive.archiveCurrent(key: key, andSetNewData: Data("\(number)".utf8), completionHandler: note)
    archive.set(key: key + "-single", data: Data("\(number)".utf8), completionHandler: note)
    done.wait()
    done.wait()
    if number % 4 == 0 {
      archive.keep(upTo: 3, archivesForKey: key, completionHandler: note)
      done.wait()
    }
    guard isPromised else { exit(1) }
    print(number)
  }
}

/// Says what each key has, after setting it (`+`) or deleting it (`-`), and what was left out of the old files.
func readOld(root: String, _ keys: [String]) {
  let archive = DataArchive(rootUrl: URL(fileURLWithPath: root))
  let done = DispatchSemaphore(value: 0)
  for key in keys {
    if key.hasPrefix("+") {
      archive.set(key: String(key.dropFirst()), data: Data("new".utf8)) { _ in done.signal() }
    } else if key.hasPrefix("-") {
      archive.delete(key: String(key.dropFirst())) { _ in done.signal() }
    } else {
      var current: Data?
      var isCurrentMissing = false
      archive.get(key: key) { data, result in
        current = data
        if case .fileNotFound = result { isCurrentMissing = true }
      }
      archive.getAll(key: key) { values, result in
        var isMissing = false
        if case .fileNotFound = result { isMissing = true }
        if current != values.first || isCurrentMissing != isMissing { print("\(key): get differs") }
        switch result {
        case .success:
          print("\(key): " + values.map { String(decoding: $0, as: UTF8.self) }.joined(separator: ","))
        case .fileNotFound: print("\(key): missing")
        default: print("\(key): failed")
        }
        done.signal()
      }
    }
    done.wait()
  }
  let folder = URL(fileURLWithPath: root).appendingPathComponent("data_archive").standardized.path + "/"
  let names = archive.oldFilesLeftOut.map { $0.standardized.path.replacingOccurrences(of: folder, with: "") }
  print("left out: " + names.sorted().joined(separator: " "))
  exit(0)
}
