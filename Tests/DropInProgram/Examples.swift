import BlobStorageDropIn
import Dispatch
import Foundation

// Uses of the four libraries as their own texts show them, written as programs of that time wrote them:
// captured variables that handlers change, no annotations. What a text leaves out ("do something") is a check
// here.

final class Pupil: Codable {
  let name: String
  let age: Int

  init(name: String, age: Int) {
    self.name = name
    self.age = age
  }
}

struct Visitor: Persistible, Codable, Hashable {
  var name: String
  var age: Int
  var school: String
}

func runExamples() {
  archiveExamples()
  dataStoreExamples()
  fileReaderExamples()
  persistibleExamples()
}

func check(_ condition: Bool, _ what: String) {
  guard !condition else { return }
  print("wrong: \(what)")
  exit(1)
}

private func archiveExamples() {
  let done = DispatchSemaphore(value: 0)
  let data = Data("my data".utf8)
  DataArchive.default.set(key: "myData", data: data)
  var result: DataArchiveResult?
  DataArchive.default.set(key: "myData", data: data) {
    result = $0
    done.signal()
  }
  done.wait()
  check(result?.isSuccess == true, "set")
  DataArchive.default.archiveCurrent(key: "myData", andSetNewData: Data("newer".utf8))
  DataArchive.default.get(key: "myData") { (data, result) in
    guard result.isSuccess else {
      print(result)
      return
    }
    check(data == Data("newer".utf8), "get")
    done.signal()
  }
  done.wait()
  DataArchive.default.getAll(key: "myData") { (dataArray, result) in
    check(result.isSuccess && dataArray == [Data("newer".utf8), data], "getAll")
    done.signal()
  }
  done.wait()
  var reader: DataArchiveLazyLockingReader?
  DataArchive.default.lazyLockingReader(key: "myData") { (_reader) in
    reader = _reader
    done.signal()
  }
  done.wait()
  reader?.getNext { (data, result) in
    check(data == Data("newer".utf8) && result.isSuccess, "getNext")
    done.signal()
  }
  done.wait()
  reader?.finish()
  check(reader?.isFinished == true, "finish")
  DataArchive.default.keep(upTo: 5, archivesForKey: "myData")
  DataArchive.default.delete(key: "myData") { _ in done.signal() }
  done.wait()
  check(DataArchive.default.keys.isEmpty, "keys")

  let pupil = Pupil(name: "Maxim", age: 38)
  let value = JSONValueConverter(value: pupil)
  DataArchive.default.set(key: "person", value: value)
  DataArchive.default.get(key: "person", converterType: JSONValueConverter<Pupil>.self) { (person, result) in
    guard result.isSuccess else {
      print(result)
      return
    }
    check(person?.name == "Maxim" && person?.age == 38, "get with a converter")
    done.signal()
  }
  done.wait()
  check(DataArchive.default.numberOfArchives(key: "person") == 0, "numberOfArchives")
}

private func dataStoreExamples() {
  let done = DispatchSemaphore(value: 0)
  guard let persistentStore = try? PersistentDataStore(name: "images") else { return check(false, "init") }
  let image = Data([0x89, 0x50, 0x4E, 0x47])
  var stored: PersistentDataStore.Identifier?
  persistentStore.storeData({ () -> (Data?) in
    return image
  }) { (result) in
    switch result {
    case .success(let identifier): stored = identifier
    case .noData: print("No data to store.")
    case .failed(let error): print("Failed storing data with error \(error)")
    }
    dispatchPrecondition(condition: .onQueue(.main))
    done.signal()
  }
  done.wait()
  persistentStore.loadData(forIdentifier: stored ?? "", dataTransformer: { [UInt8]($0) }) { (bytes) in
    guard let bytes = bytes else {
      print("Failed loading image.")
      return
    }
    check(bytes == [UInt8](image), "loadData")
    done.signal()
  }
  done.wait()
  persistentStore.removeData(forIdentifier: stored ?? "")
  persistentStore.removeAll()
  persistentStore.loadData(forIdentifier: stored ?? "", dataTransformer: { $0 }) { (data) in
    check(data == nil, "removeData")
    done.signal()
  }
  done.wait()
}

private func fileReaderExamples() {
  let done = DispatchSemaphore(value: 0)
  let fileURL = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
  try? Data(0..<200).write(to: fileURL)
  defer { try? FileManager.default.removeItem(at: fileURL) }
  let reader = FileReader(fileURL: fileURL)
  if reader.open() {
    reader.read(byteRange: 0..<20) { data in
      if let data = data {
        check(data.map({ UInt8($0) }) == Array(0..<20), "read")
        done.signal()
      } else {
        print("Failed to read")
      }
    }
    done.wait()
    reader.close()
  } else {
    check(false, "open")
  }
}

private func persistibleExamples() {
  check(Visitor.fileName == "Visitor", "fileName")
  let first = Visitor(name: "Ama", age: 7, school: "Accra")
  let second = Visitor(name: "Kofi", age: 8, school: "Accra")
  do {
    try first.saveToFile()
    check(try Visitor.loadFromFile() == first, "loadFromFile")
    try second.saveToFile()
    check(try Visitor.loadListFromFile() == [first, second], "loadListFromFile")
    try [second, Visitor(name: "Esi", age: 9, school: "Tema")].saveToFile()
    try Visitor.load { data in
      switch data {
      case .single(let val):
        print("\(val.name), \(val.age), \(val.school)")
        check(false, "load")
      case .array(let values):
        check(values.map { "\($0.name), \($0.age), \($0.school)" }.last == "Esi, 9, Tema", "load")
      }
    }
    Visitor.deleteFile()
  } catch {
    print(error.localizedDescription)
    check(false, "Persistible")
  }
}

/// Adds 20 visitors to their document, one at a time.
func save(from first: Int) {
  for age in first..<first + 20 {
    do { try Visitor(name: "Ama", age: age, school: "Accra").saveToFile() } catch {
      print(error)
      exit(1)
    }
  }
}
