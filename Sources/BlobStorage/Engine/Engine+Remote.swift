import Dispatch
import Logging

/// A store whose packs are objects: what is done when it is opened, and at intervals.
extension Engine {
  /// Where the packs of a store are when they are objects, and how this machine uses them.
  package struct Remote: Sendable {
    package var objects: any ObjectStore
    package var configuration: RemoteConfiguration

    package init(objects: any ObjectStore, configuration: RemoteConfiguration = RemoteConfiguration()) {
      self.objects = objects
      self.configuration = configuration
    }
  }

  /// Makes an empty store of objects.
  ///
  /// - Parameter extra: what its object `store` says behind the header.
  package static func create(
    in objects: any ObjectStore, options: StoreOptions, extra: [UInt8] = [],
    environment: Environment = Environment()
  ) throws(BlobStorageError) {
    try StateFolder.create(try newHeader(options, environment), extra: extra, in: objects)
  }

  /// Brings this machine up to what all machines have published; nothing to do for a store in a folder.
  @discardableResult
  package func catchUp() throws(BlobStorageError) -> CatchUp.Report {
    try checkOpen()
    return try publishedPacks?.run() ?? CatchUp.Report()
  }

  /// Makes all durable that was committed here: on the medium, and published where packs are.
  package func synchronize() throws(BlobStorageError) {
    try checkOpen()
    if writer.publisher != nil {
      try writer.rollOver()
    } else if let watermark = try writer.commit({ _ in }).watermark {
      try writer.synchronize(watermark)
    }
  }

  /// Publishes what dead processes have left in the spool, in the order of each writer.
  ///
  /// What cannot be published for good is set aside, and the catalog made anew without it. What cannot be published now
  /// stays.
  func adoptSpool() throws(BlobStorageError) {
    guard let backend = backend as? any PublishingBackend else { return }
    var isRebuildDue = false
    let names = Dictionary(grouping: try backend.localPackNames().live, by: \.writer)
    for writer in names.keys.sorted() {
      var isEnded = false
      for name in (names[writer] ?? []).sorted() {
        // A living writer publishes its own packs.
        guard let file = try backend.adoptPack(name) else { break }
        defer { file.close() }
        let row = try catalog.read { (transaction) throws(BlobStorageError) -> PackRow? in
          guard let number = try transaction.packNumber(name) else { return nil }
          return try transaction.packRow(number)
        }
        if let row, row.durableByteCount > 0 {
          try backend.settle(name)
          continue
        }
        if !isEnded {
          // Without room for its footer it waits for the next opening.
          guard let row, row.isSealed else { break }
          isEnded = row.isDamaged
          if !isEnded { isEnded = try !isWhole(name, file) }
          if !isEnded { isEnded = try !publishAdopted(name, file, backend) }
        }
        if isEnded {
          let place = try backend.setAsidePack(name)
          logger.warning(
            "Pack \(name) cannot be published and was set aside.", metadata: ["place": "\(place)"])
          isRebuildDue = true
        }
      }
    }
    if isRebuildDue { try catalog.rebuild(because: nil) }
  }

  /// Whether a sealed pack is all there: it was not forced to the medium, and a power cut leaves holes.
  private func isWhole(_ name: PackName, _ file: any File) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      let scanner = try PackScanner(file: file, name: name, codecs: codecs)
      let listed = try scanner.scan { _ in }
      let found = try scanner.scan(verifiesPayloads: true) { _ in }
      guard listed.isSealed, found.isSealed, found.gaps.isEmpty else { return false }
      return listed.recordCount == found.recordCount
    } catch {
      guard error.code == .corrupted else { throw error }
      return false
    }
  }

  /// False when it never can be.
  private func publishAdopted(
    _ name: PackName, _ file: any File, _ backend: any PublishingBackend
  ) throws(BlobStorageError) -> Bool {
    let byteCount = try file.status().byteCount
    guard try backend.publish(name, file, byteCount: byteCount) == .published else { return false }
    try catalog.write { (transaction) throws(BlobStorageError) in
      try CatalogBuilder.notePublished(name, byteCount: byteCount, in: transaction)
    }
    try backend.settle(name)
    return true
  }

  /// What is done every so often, while the store is open.
  func beat() {
    do throws(BlobStorageError) {
      try writer.rollOver()
      try publishedPacks?.run()
      try writer.member?.signLife()
      try passCollections()
    } catch {
      logger.warning(
        "The store's other machines cannot be reached.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Has ``beat()`` done at intervals for as long as the engine lives.
  func startBeating(seconds: Double) -> any DispatchSourceTimer {
    let timer = DispatchSource.makeTimerSource(queue: .global(qos: .utility))
    timer.schedule(deadline: .now() + seconds, repeating: seconds, leeway: .seconds(1))
    timer.setEventHandler { [weak self] in self?.beat() }
    timer.resume()
    return timer
  }
}
