/// A certificate and its key, for a server of these tests alone.
struct ServerCertificate {
  var chain: String
  var key: String

  /// Signed by itself, for `localhost` and no address, until 2120.
  static let localhost = ServerCertificate(
    chain: """
      -----BEGIN CERTIFICATE-----
      MIIBVTCB+6ADAgECAhQeJWvbk5e8lz8iIVlIcbtjRXAKfDAKBggqhkjOPQQDAjAU
      MRIwEAYDVQQDDAlsb2NhbGhvc3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEw
      MDAwMDBaMBQxEjAQBgNVBAMMCWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49
      AwEHA0IABASlhBarW16yWaM726G9VRk9qTcXfK/s8PJW7Fpy/Ewa9/T1moY0RvLf
      +aZtPzgGMgJgW/nfZWaQ3niXlT+SLSWjKTAnMA8GA1UdEwEB/wQFMAMBAf8wFAYD
      VR0RBA0wC4IJbG9jYWxob3N0MAoGCCqGSM49BAMCA0kAMEYCIQClahqIRbzRhHuK
      O1pQLFY6qYI6Oh+0IYjyWVUcJeMFBgIhAMAM5wbr/Oa4bfh8aC10VvLakspMnWI5
      /Zdu1dzn+/TK
      -----END CERTIFICATE-----
      """,
    key: """
      -----BEGIN PRIVATE KEY-----
      MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRlAju+fSkdi0m8gc
      bW9aDLMLMEHqGjK4cGvt3oteEaChRANCAAQEpYQWq1teslmjO9uhvVUZPak3F3yv
      7PDyVuxacvxMGvf09ZqGNEby3/mmbT84BjICYFv532VmkN54l5U/ki0l
      -----END PRIVATE KEY-----
      """)
}
