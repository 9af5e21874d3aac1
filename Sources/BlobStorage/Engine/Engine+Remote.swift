import Dispatch
import Foundation
import Logging
import Synchronization

/// A store whose packs are objects: what is done when it is opened, and at intervals.
extension Engine {
  /// Where the packs of a store are when they are objects, and how this machine uses them.
  package struct Remote: Sendable {
    package var objects: any ObjectStore
    package var configuration: RemoteConfiguration
    /// What the object `store` says behind the header.
    var extra: [UInt8] = []

    package init(objects: any ObjectStore, configuration: RemoteConfiguration = RemoteConfiguration()) {
      self.objects = objects
      self.configuration = configuration
    }

    /// The only machine that collects garbage; nil if every machine may.
    func maintainer() throws(BlobStorageError) -> Maintainer? { extra.isEmpty ? nil : try Maintainer(extra) }
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

  /// Makes an empty store of objects that keeps puts of one name not apart: garbage is collected from this state folder
  /// only.
  package static func create(
    in objects: any ObjectStore, maintainedFrom state: String, options: StoreOptions,
    environment: Environment = Environment()
  ) throws(BlobStorageError) {
    let identity = withUnsafeBytes(of: (environment.randomNumber(), environment.randomNumber())) { Array($0) }
    let maintainer = Maintainer(identity: identity, machine: ProcessInfo.processInfo.hostName)
    try create(in: objects, options: options, extra: maintainer.encoded(), environment: environment)
    let folder = StateFolder(StoreFolder(try absolute(state), files: environment.files), objects)
    try folder.prepare()
    try folder.note(maintainer)
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
      if hasLeftSpool.load(ordering: .relaxed), let failure = try adoptSpool() { throw failure }
    } else if let watermark = try writer.commit(on: [], { _ in }).watermark {
      try writer.synchronize(watermark)
    }
  }

  /// Publishes what dead processes have left here, and says what kept some of it from being published: it stays, and
  /// reading does not wait for it.
  @discardableResult
  func adoptSpool() throws(BlobStorageError) -> BlobStorageError? {
    guard let backend = backend as? RemoteBackend else { return nil }
    var adoption = SpoolAdoption(self, backend)
    try adoption.run()
    hasLeftSpool.store(adoption.failure != nil, ordering: .relaxed)
    return adoption.failure
  }

  /// The periodic work of an open store: publishes what was written, applies what others published, and tells
  /// collectors that this writer lives and what it has acknowledged.
  package func beat() {
    do throws(BlobStorageError) {
      try checkOpen()
      var failure: BlobStorageError?
      // Who cannot publish any more still reads.
      do throws(BlobStorageError) { try writer.rollOver() } catch { failure = error }
      try publishedPacks?.run()
      // Who never will need not be waited for. Who cannot at the moment lives, and passes nothing.
      if let failure, writer.isEnded { throw failure }
      if failure == nil { try writer.renewIfFenced() }
      try writer.member?.signLife()
      if let failure { throw failure }
      try passCollections()
      if hasLeftSpool.load(ordering: .relaxed) { try adoptSpool() }
    } catch {
      if error.code == .closed { return }
      logger.warning(
        "The store was not brought up to date.", metadata: ["reason": "\(error.message)"])
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
