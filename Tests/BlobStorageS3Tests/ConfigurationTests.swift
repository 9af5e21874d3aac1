import BlobStorage
import BlobStorageS3
import Foundation
import SystemPackage
import Testing

@Suite("A configuration")
struct ConfigurationTests {
  static let keys = ["AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "very-secret"]

  /// Without the files of the user who runs the tests.
  static func configuration(
    _ more: [String: String] = keys, location: String = "s3://bucket/a/b"
  ) throws -> S3Configuration {
    let nothing = ["AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"]
    return try S3Configuration(
      location: try S3Location(location), environment: nothing.merging(more) { $1 })
  }

  @Test(
    "takes a bucket and a prefix",
    arguments: [
      ("s3://bucket", "bucket", ""), ("s3://bucket/", "bucket", ""), ("s3://bucket/a", "bucket", "a"),
      ("s3://bucket/a/b/", "bucket", "a/b"), ("s3://My_bucket.x-1/ä b+c", "My_bucket.x-1", "ä b+c"),
    ])
  func locations(text: String, bucket: String, prefix: String) throws {
    let location = try S3Location(text)
    #expect(location.bucket == bucket)
    #expect(location.prefix == prefix)
    #expect(location.key("packs/x") == (prefix.isEmpty ? "packs/x" : "\(prefix)/packs/x"))
    #expect(try S3Location("\(location)") == location)
  }

  @Test(
    "repeats no key of what is no place in a bucket",
    arguments: ["s3://KEY:SECRET@bucket/x", "s4://KEY:SECRET@bucket/x", "s3://KEY:SECRET/y@bucket"])
  func keys(text: String) {
    let error = #expect(throws: BlobStorageError.self) { try S3Location(text) }
    #expect(error?.message.contains("SECRET") == false)
  }

  @Test(
    "refuses what is no place in a bucket",
    arguments: [
      "", "bucket", "/path", "http://bucket/a", "s3:/bucket", "s3://", "s3:///a", "s3://ab", "s3://.bucket",
      "s3://bucket//", "s3://bucket/a//b", "s3://bucket/./a", "s3://bucket/a/..", "s3://bucket/a\u{7}b",
      "s3://bucket/a\u{7F}", "s3://-bucket",
      "s3://user@bucket/a", "s3://" + String(repeating: "a", count: 64),
      "s3://bucket/" + String(repeating: "a", count: 513),
    ])
  func noLocations(text: String) {
    #expect { try S3Location(text) } throws: { ($0 as? BlobStorageError)?.code == .invalidArgument }
  }

  @Test("takes names and prefixes that are as short or as long as they may be")
  func lengths() throws {
    for count in [3, 63] {
      #expect(try S3Location("s3://" + String(repeating: "a", count: count)).bucket.utf8.count == count)
    }
    let prefix = String(repeating: "a", count: 512)
    #expect(try S3Location("s3://bucket/\(prefix)").prefix == prefix)
  }

  @Test(
    "takes the object store's address",
    arguments: [
      ("https://s3.example.com", "https://s3.example.com"),
      ("http://127.0.0.1:9000/", "http://127.0.0.1:9000"),
      ("HTTP://host:80", "http://host"), ("https://host:443", "https://host"),
      ("https://host:80", "https://host:80"), ("http://host:443", "http://host:443"),
      ("http://[::1]:9000", "http://[::1]:9000"), ("https://[fe80::1]", "https://[fe80::1]"),
    ])
  func endpoints(text: String, description: String) throws {
    #expect(try S3Endpoint(text).description == description)
  }

  @Test(
    "refuses what is no address, and repeats no password that stands in it",
    arguments: [
      "", "host", "ftp://host", "https://", "https://:80", "https://host:0", "https://host:65536",
      "https://host:x",
      "https://host/path", "https://user:very-secret@host", "https://[::1", "https://[::1]x", "https://a b",
      "https://host?x",
    ])
  func noEndpoints(text: String) {
    #expect { try S3Endpoint(text) } throws: { error in
      (error as? BlobStorageError)?.code == .invalidArgument && !"\(error)".contains("very-secret")
    }
  }

  @Test("is AWS's, by virtual host, unless an object store is named")
  func addressing() throws {
    let aws = try Self.configuration(Self.keys.merging(["AWS_REGION": "eu-central-1"]) { $1 })
    #expect(aws.authority == "bucket.s3.eu-central-1.amazonaws.com")
    #expect(aws.path(of: "packs/x y") == "/a/b/packs/x%20y")
    #expect(aws.path(of: nil) == "/")
    let own = try Self.configuration(Self.keys.merging(["AWS_ENDPOINT_URL": "http://127.0.0.1:9000"]) { $1 })
    #expect(own.authority == "127.0.0.1:9000")
    #expect(own.path(of: "packs/x") == "/bucket/a/b/packs/x")
    #expect(own.path(of: nil) == "/bucket")
    #expect(own.region == "us-east-1")
    #expect(try Self.configuration(location: "s3://with.dot").addressing == .path)
  }

  @Test("prefers variables to files, one profile to another, and one address to the other")
  func precedence() throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "profiles-\(UUID())")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    try """
    # credentials
    [default]
    aws_access_key_id = DEFAULT
    aws_secret_access_key = default-secret

    [ other ]
    aws_access_key_id=OTHER
    aws_secret_access_key=other-secret # not part of it
    aws_session_token = other-token#part
    """.write(to: folder.appending(path: "credentials"), atomically: true, encoding: .utf8)
    try """
    [default]
    region = eu-west-1
    [profile other]
    region = eu-north-1
    ca_bundle = /etc/ssl/own.pem
    endpoint_url = http://service:1
    s3 =
      addressing_style = virtual
      max_queue_size = 3
    output = json
    """.write(to: folder.appending(path: "config"), atomically: true, encoding: .utf8)
    let files = [
      "AWS_SHARED_CREDENTIALS_FILE": folder.appending(path: "credentials").path,
      "AWS_CONFIG_FILE": folder.appending(path: "config").path,
    ]
    let byDefault = try Self.configuration(files)
    #expect(byDefault.credentials.accessKey == "DEFAULT")
    #expect(byDefault.credentials.sessionToken == nil)
    #expect(byDefault.region == "eu-west-1")

    let other = try Self.configuration(files.merging(["AWS_PROFILE": "other"]) { $1 })
    #expect(
      other.credentials
        == S3Credentials(
          accessKey: "OTHER", secretKey: S3Secret("other-secret"), sessionToken: S3Secret("other-token#part"))
    )
    #expect(other.region == "eu-north-1")
    #expect(other.certificates == "/etc/ssl/own.pem")
    #expect(other.authority == "bucket.service:1")

    let variables = [
      "AWS_PROFILE": "other", "AWS_REGION": "x", "AWS_DEFAULT_REGION": "y", "AWS_ENDPOINT_URL": "http://a",
      "AWS_ENDPOINT_URL_S3": "http://b", "AWS_CA_BUNDLE": "/c", "AWS_SESSION_TOKEN": "t",
    ]
    let all = try Self.configuration(files.merging(Self.keys) { $1 }.merging(variables) { $1 })
    #expect(all.credentials.accessKey == "AKIDEXAMPLE")
    #expect(all.credentials.sessionToken == S3Secret("t"))
    #expect(all.region == "x")
    #expect(all.endpoint.host == "b")
    #expect(all.certificates == "/c")

    #expect(throws: BlobStorageError.self) {
      try Self.configuration(files.merging(["AWS_PROFILE": "missing"]) { $1 })
    }
  }

  @Test("takes all parts of a key from one place, and takes a variable that is empty for none")
  func parts() throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "profiles-\(UUID())")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    try """
    [default]
    aws_access_key_id = PROFILE
    aws_secret_access_key = profile-secret
    aws_session_token = profile=token==
    region = eu-west-1
    """.write(to: folder.appending(path: "credentials"), atomically: true, encoding: .utf8)
    try """
    [default]
    aws_access_key_id = OTHER
    region = eu-west-2
    s3 =
      addressing_style = path
    """.write(to: folder.appending(path: "config"), atomically: true, encoding: .utf8)
    let files = [
      "AWS_SHARED_CREDENTIALS_FILE": folder.appending(path: "credentials").path,
      "AWS_CONFIG_FILE": folder.appending(path: "config").path,
    ]
    let half = try Self.configuration(
      files.merging(["AWS_ACCESS_KEY_ID": "HALF", "AWS_REGION": "", "AWS_DEFAULT_REGION": ""]) { $1 })
    #expect(
      half.credentials
        == S3Credentials(
          accessKey: "PROFILE", secretKey: S3Secret("profile-secret"),
          sessionToken: S3Secret("profile=token==")))
    // The file of credentials goes first.
    #expect(half.region == "eu-west-1")
    #expect(half.addressing == .path)
    let whole = try Self.configuration(
      files.merging(Self.keys) { $1 }.merging(["AWS_DEFAULT_REGION": "eu-north-1"]) { $1 })
    #expect(whole.credentials == S3Credentials(accessKey: "AKIDEXAMPLE", secretKey: S3Secret("very-secret")))
    #expect(whole.region == "eu-north-1")
  }

  @Test("is looked for in the user's own files where no others are named, and in no profile of an empty name")
  func ownFiles() throws {
    let home = FileManager.default.temporaryDirectory.appending(path: "home-\(UUID())")
    let folder = home.appending(path: ".aws")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: home) }
    try """
    ; credentials
    [default]
    \taws_access_key_id = NOBODY
    AWS_ACCESS_KEY_ID = OWN ; not part of it
    aws_secret_access_key = own;secret
    no setting
    """.write(to: folder.appending(path: "credentials"), atomically: true, encoding: .utf8)
    try """
    region = outside
    [profile  other]
    region = eu-north-1
    [default]
    region = eu-west-1
      addressing_style = virtual
    s3 =
    \taddressing_style = path
    """.write(to: folder.appending(path: "config"), atomically: true, encoding: .utf8)
    func read(_ more: [String: String]) throws -> S3Configuration {
      try S3Configuration(
        location: try S3Location("s3://bucket/a"), environment: ["HOME": home.path].merging(more) { $1 })
    }
    let own = try read(["AWS_PROFILE": ""])
    #expect(own.credentials == S3Credentials(accessKey: "OWN", secretKey: S3Secret("own;secret")))
    #expect(own.region == "eu-west-1")
    #expect(own.addressing == .path)
    #expect(own.endpoint.description == "https://s3.eu-west-1.amazonaws.com")
    #expect(try read(Self.keys.merging(["AWS_PROFILE": "other"]) { $1 }).region == "eu-north-1")
  }

  @Test("refuses a region that would not stay in its place", arguments: ["a/b", "a.b", "a b", "ä", "a?b"])
  func regions(_ region: String) {
    let failure = FaultTests.failure {
      _ = try Self.configuration(Self.keys.merging(["AWS_REGION": region]) { $1 })
    }
    #expect(failure?.code == .invalidArgument)
  }

  @Test("says what to set when there are no credentials")
  func noCredentials() {
    for environment in [
      [:], ["AWS_ACCESS_KEY_ID": "x"], ["AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "x"],
    ] {
      #expect { try Self.configuration(environment) } throws: { error in
        (error as? BlobStorageError)?.code == .permissionDenied && "\(error)".contains("AWS_ACCESS_KEY_ID")
      }
    }
  }

  @Test(
    "goes by the proxy that is set for its scheme, unless the host is excepted",
    arguments: [
      ("https://e.example.com", ["HTTPS_PROXY": "http://p:8"], "p:8"),
      ("https://e.example.com", ["HTTPS_PROXY": "http://p:8", "https_proxy": "q:9/"], "q:9"),
      ("https://e.example.com", ["HTTP_PROXY": "http://p:8", "http_proxy": "http://p:8"], nil),
      ("http://e.example.com", ["HTTP_PROXY": "http://p:8"], nil),
      ("http://e.example.com", ["http_proxy": "http://p"], "p:80"),
      ("https://e.example.com", ["HTTPS_PROXY": "http://p:8", "NO_PROXY": "x,example.com"], nil),
      ("https://e.example.com", ["HTTPS_PROXY": "http://p:8", "NO_PROXY": " .Example.com "], nil),
      ("https://e.example.com", ["HTTPS_PROXY": "http://p:8", "NO_PROXY": "ample.com, e"], "p:8"),
      ("https://e.example.com", ["HTTPS_PROXY": "http://p:8", "NO_PROXY": "*"], nil),
      (
        "https://e.example.com",
        ["HTTPS_PROXY": "http://p:8", "no_proxy": "example.com", "NO_PROXY": "other"], nil
      ),
      ("https://e.example.com", ["HTTPS_PROXY": "http://p:8", "no_proxy": "EXAMPLE.com"], nil),
    ] as [(String, [String: String], String?)])
  func proxies(endpoint: String, environment: [String: String], proxy: String?) throws {
    let configuration = try Self.configuration(
      Self.keys.merging(["AWS_ENDPOINT_URL": endpoint]) { $1 }.merging(environment) { $1 })
    #expect(configuration.proxy.map { "\($0.host):\($0.port)" } == proxy)
  }

  @Test(
    "takes a proxy's user and password as an address spells them",
    arguments: [
      ("http://us%40er:p%3A%40:w@proxy:8", "us@er", "p:@:w"), ("http://user:a+b%2Bc@proxy", "user", "a+b+c"),
      ("user:p@ss@proxy:8/", "user", "p@ss"), ("http://user@proxy:8", "user", nil),
      ("http://proxy:8", nil, nil),
    ] as [(String, String?, String?)])
  func proxyUsers(text: String, user: String?, password: String?) throws {
    let proxy = try #require(try Self.configuration(Self.keys.merging(["HTTPS_PROXY": text]) { $1 }).proxy)
    #expect(proxy.host == "proxy")
    #expect(proxy.user == user)
    #expect(proxy.password == password.map { S3Secret($0) })
  }

  @Test("shows no secret, however it is printed")
  func secrets() throws {
    let configuration = try Self.configuration([
      "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "very-secret",
      "AWS_SESSION_TOKEN": "very-secret-2",
      "HTTPS_PROXY": "http://user:very-secret-3@proxy:8",
    ])
    #expect(configuration.proxy?.password == S3Secret("very-secret-3"))
    var dumped = ""
    dump(configuration, to: &dumped)
    let texts = [
      "\(configuration)", String(reflecting: configuration), dumped, "\(configuration.credentials)",
    ]
    for text in texts {
      #expect(text.contains("AKIDEXAMPLE"))
      #expect(!text.contains("very-secret"))
    }
  }

  @Test("refuses a proxy that is none, and repeats no password that stands in it")
  func noProxies() {
    for text in [
      "https://p:8", "socks5://p:8", "http://u:very-secret@", "http://u:very-secret@p:x", "http://",
    ] {
      #expect { try Self.configuration(Self.keys.merging(["HTTPS_PROXY": text]) { $1 }) } throws: { error in
        (error as? BlobStorageError)?.code == .invalidArgument && !"\(error)".contains("very-secret")
      }
    }
  }
}
