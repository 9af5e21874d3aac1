import BlobStorage
import BlobStorageS3
import Testing

@Suite("What is written in requests and answers")
struct TextTests {
  @Test(
    "encodes all but the unreserved characters, and comes back",
    arguments: [
      ("", ""), ("azAZ09-._~", "azAZ09-._~"), ("a b+c", "a%20b%2Bc"), ("a/b", "a%2Fb"),
      ("ä€", "%C3%A4%E2%82%AC"),
      ("%41&=?#", "%2541%26%3D%3F%23"),
    ])
  func encoding(plain: String, encoded: String) {
    #expect(PercentEncoding.encode(plain) == encoded)
    #expect(PercentEncoding.decode(encoded) == plain)
  }

  @Test("keeps the slashes of a path, takes a plus for a space, and refuses what spells nothing")
  func encodingOddities() {
    #expect(PercentEncoding.encode("a/b c", keepingSlashes: true) == "a/b%20c")
    #expect(PercentEncoding.decode("a+b%2bc") == "a b+c")
    #expect(PercentEncoding.decode("a+b%2bc", isForm: false) == "a+b+c")
    for text in ["%", "%4", "%zz", "%C3", "a%"] { #expect(PercentEncoding.decode(text) == nil, "\(text)") }
  }

  @Test(
    "tells a second in UTC in all its ways",
    arguments: [
      (0, "Thu, 01 Jan 1970 00:00:00 GMT", "19700101T000000Z"),
      (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT", "19941106T084937Z"),
      (1_709_208_000, "Thu, 29 Feb 2024 12:00:00 GMT", "20240229T120000Z"),
      (4_102_444_799, "Thu, 31 Dec 2099 23:59:59 GMT", "20991231T235959Z"),
    ] as [(Int64, String, String)])
  func times(seconds: Int64, httpDate: String, basic: String) {
    #expect(UTCTime(httpDate: httpDate)?.secondsSince1970 == seconds)
    #expect(UTCTime(secondsSince1970: seconds).basicText == basic)
    #expect(UTCTime(secondsSince1970: seconds).day == String(basic.prefix(8)))
  }

  @Test(
    "takes no other date for one",
    arguments: [
      "", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "Sun, 06 Nov 1994 08:49:37",
      "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 32 Nov 1994 08:49:37 GMT", "Sun, 06 Foo 1994 08:49:37 GMT",
      "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 Nov 1994 8:49:37 GMT", "Sun, -6 Nov 1994 08:49:37 GMT",
      "Sun, 00 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:60:37 GMT", "Sun, 06 Nov 1994 08:49:61 GMT",
      "Thu, 06 Nov 1969 08:49:37 GMT", "Sun, 06 Nov 1994 08:49 GMT", "Sun,  06 Nov 1994 08:49:37 GMT",
    ])
  func noDates(text: String) { #expect(UTCTime(httpDate: text) == nil) }

  @Test("reads elements, text, characters by name and number, and what is quoted whole")
  func markup() throws {
    let text = """
      \u{FEFF}<?xml version="1.0"?>
      <!-- a note -->
      <Root xmlns='urn:x' a = "&lt;"><A>1 &lt;&amp;&gt;&quot;&apos; &#65;&#x20AC;</A><B/><C k="v" /><!-- x -->
      <D><![CDATA[<&]]>e</D><A>2</A></Root>

      """
    let root = try #require(Markup(Array(text.utf8)))
    #expect(root.name == "Root")
    #expect(root.children.map(\.name) == ["A", "B", "C", "D", "A"])
    #expect(root["A"] == "1 <&>\"' A€")
    #expect(root["B"] == "")
    #expect(root["D"] == "<&e")
    #expect(root["E"] == nil)
  }

  @Test(
    "takes nothing for an answer that is none",
    arguments: [
      "", " ", "text", "<a>", "</a>", "<a></b>", "<a><b></a></b>", "<a/><b/>", "<a/>x", "x<a/>", "<a b></a>",
      "<a b=c/>", "<a b=\"c/>", "<a b='1'c='2'/>", "<a>&x;</a>", "<a>&#0;</a>", "<a>&#xD800;</a>",
      "<a>&amp</a>",
      "<!DOCTYPE a><a/>", "<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>", "<a><![CDATA[</a>", "<a><!-- </a>",
      "<?xml",
      "<a", "<a>text", "<>", "< a/>",
      String(repeating: "<a>", count: 17) + String(repeating: "</a>", count: 17),
    ])
  func noMarkup(text: String) { #expect(Markup(Array(text.utf8)) == nil) }

  @Test("takes no markup that is not UTF-8, and none that is cut anywhere")
  func cutMarkup() {
    #expect(Markup(Array("<a>".utf8) + [0xC3] + Array("</a>".utf8)) == nil)
    let whole = Array("<?xml version='1.0'?><a b='c'><d>&amp;<![CDATA[x]]></d><!-- --><e/></a>".utf8)
    #expect(Markup(whole) != nil)
    for count in 0..<whole.count { #expect(Markup(Array(whole.prefix(count))) == nil, "\(count) bytes") }
  }
}
