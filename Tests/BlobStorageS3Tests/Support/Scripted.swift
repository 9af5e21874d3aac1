import BlobStorage
import BlobStorageS3
import BlobStorageSharing
import Synchronization
import SystemPackage

/// An object store whose service is a scripted server, with a clock that the test sets and pauses that take no time.
struct Scripted {
  static let credentials = S3Credentials(
    accessKey: "AKIDEXAMPLE", secretKey: S3Secret("very-secret"), sessionToken: S3Secret("secret-token"))

  let store: S3ObjectStore
  private let pauseLog: PauseLog

  /// - Parameter chance: What is drawn for every pause.
  init(
    _ service: String, certificates: FilePath? = nil, proxy: S3Proxy? = nil,
    policy: RetryPolicy = RetryPolicy(),
    silence: Duration = .seconds(20), now: Int64 = 1_369_353_600, chance: Double = 0.5,
    whilePausing: @escaping @Sendable () -> Void = {}
  ) throws {
    let log = PauseLog()
    pauseLog = log
    let configuration = S3Configuration(
      location: try S3Location("s3://bucket/p"), endpoint: try S3Endpoint(service),
      credentials: Self.credentials,
      certificates: certificates, proxy: proxy)
    store = S3ObjectStore(
      try S3Client(
        configuration, policy: policy, patience: .init(connecting: .seconds(20), silence: silence),
        surroundings: S3Surroundings(
          now: { now },
          sleep: { pause in
            log.pauses.withLock { $0.append(pause) }
            whilePausing()
          }, chance: { chance })))
  }

  init(_ server: ScriptedServer, policy: RetryPolicy = RetryPolicy(), silence: Duration = .seconds(20)) throws
  {
    try self.init("http://127.0.0.1:\(server.port)", policy: policy, silence: silence)
  }

  /// The pauses made so far.
  var pauses: [Duration] { pauseLog.pauses.withLock { $0 } }
}

private final class PauseLog: Sendable {
  let pauses = Mutex<[Duration]>([])
}
