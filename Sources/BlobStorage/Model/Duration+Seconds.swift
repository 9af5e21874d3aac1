import Foundation

extension Duration {
  package var seconds: Double { self / .seconds(1) }
}

// Reports encode a duration as a number of seconds, to the millisecond. Their synthesized conformances use these
// methods.

extension KeyedEncodingContainer {
  package mutating func encode(_ duration: Duration, forKey key: Key) throws {
    try encode((duration.seconds * 1_000).rounded() / 1_000, forKey: key)
  }

  package mutating func encodeIfPresent(_ duration: Duration?, forKey key: Key) throws {
    if let duration { try encode(duration, forKey: key) }
  }
}

extension KeyedDecodingContainer {
  package func decode(_ type: Duration.Type, forKey key: Key) throws -> Duration {
    let seconds = try decode(Double.self, forKey: key)
    guard abs(seconds) < 1e12 else {
      throw DecodingError.dataCorruptedError(forKey: key, in: self, debugDescription: "too many seconds")
    }
    return .seconds(seconds)
  }

  package func decodeIfPresent(_ type: Duration.Type, forKey key: Key) throws -> Duration? {
    guard contains(key), try !decodeNil(forKey: key) else { return nil }
    return try decode(Duration.self, forKey: key)
  }
}
