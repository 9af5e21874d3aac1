import Foundation
import Testing

/// Which keys and files a command is about: patterns, limits, lists, and what it would do with them.
@Suite struct SelectionTests {
  private func workshop(_ keys: [String]) async throws -> Workshop {
    let workshop = try await Workshop()
    for key in keys {
      try await workshop.expect(0, ["put", key], input: Data(key.utf8))
    }
    return workshop
  }

  private func keys(_ workshop: Workshop, _ options: [String] = []) async throws -> [String] {
    try await workshop.expect(0, ["list", "--json"] + options).json(ListLine.self).map(\.key)
  }

  @Test("list has patterns, a limit and keys that end in NUL")
  func listing() async throws {
    let workshop = try await workshop(["a/1.jpg", "a/2.png", "a/b/3.jpg", "a\n4.jpg", "b/5.jpg", "[x]"])
    #expect(try await keys(workshop, ["--glob", "a/*.jpg"]) == ["a/1.jpg", "a/b/3.jpg"])
    #expect(try await keys(workshop, ["--glob", "?/[1-2].*"]) == ["a/1.jpg", "a/2.png"])
    #expect(try await keys(workshop, ["--glob", "*.png", "--glob", "b/*"]) == ["a/2.png", "b/5.jpg"])
    #expect(try await keys(workshop, ["a/", "--glob", "*.jpg"]) == ["a/1.jpg", "a/b/3.jpg"])
    #expect(try await keys(workshop, ["b/", "--glob", "a/*"]) == [])
    #expect(try await keys(workshop, ["--glob", #"\[x]"#]) == ["[x]"])
    #expect(try await keys(workshop, ["--limit", "2"]).count == 2)
    #expect(try await keys(workshop, ["--limit", "0"]) == [])
    #expect(try await keys(workshop, ["--limit", "1", "--glob", "b*"]) == ["b/5.jpg"])
    let raw = try await workshop.expect(0, ["ls", "-0", "--prefix-bytes", "a"]).bytes
    #expect(raw == Data("a\n4.jpg\0a/1.jpg\0a/2.png\0a/b/3.jpg\0".utf8))
  }

  @Test("delete drops what a pattern matches, and a dry run only says it")
  func deleting() async throws {
    let workshop = try await workshop(["a/1.jpg", "a/2.png", "b/3.jpg", "c"])
    let planned = try await workshop.expect(0, ["delete", "--glob", "*.jpg", "-n", "-v"])
    #expect(planned.text == "Would drop 2 keys.\n")
    #expect(planned.errors == "blobtool: would drop “a/1.jpg”\nblobtool: would drop “b/3.jpg”\n")
    #expect(try await keys(workshop).count == 4)
    #expect(try await workshop.expect(0, ["delete", "--glob", "*.jpg"]).text == "Dropped 2 keys.\n")
    #expect(try await keys(workshop) == ["a/2.png", "c"])
    #expect(try await workshop.expect(3, ["delete", "--glob", "*.jpg"]).errors.contains("matches “*.jpg”"))
    let dropped = try await workshop.expect(0, ["delete", "--prefix", "a/", "c", "--verbose"])
    #expect(dropped.text == "Dropped 2 keys.\n")
    #expect(dropped.errors == "blobtool: dropped “a/2.png”\nblobtool: dropped “c”\n")
    #expect(try await keys(workshop) == [])
  }

  @Test(
    "delete with --verbose or a pattern does what it does without: a hold refuses all, and states go with all keys"
  )
  func namedDeletion() async throws {
    let workshop = try await Workshop()
    for number in 0..<1_100 { try workshop.write(Data("\(number)".utf8), to: "in/\(number)") }
    try await workshop.expect(0, ["import", "in"])
    // The last key.
    try await workshop.expect(0, ["hold", "h", "999"])
    for options in [["--all", "--verbose"], ["--glob", "*"]] {
      #expect(try await workshop.expect(1, ["delete"] + options).errors.contains("“h”"))
      #expect(try await keys(workshop).count == 1_100)
    }
    try await workshop.expect(0, ["hold", "--release", "h"])
    let dropped = try await workshop.expect(0, ["delete", "--all", "--verbose"])
    #expect(dropped.text == "Dropped 1,100 keys.\n" && dropped.errors.contains("dropped “999”"))
    #expect(try await workshop.expect(0, ["states"]).text == "")
  }

  @Test("a dry run of keep has the numbers of keep, and drops nothing")
  func keeping() async throws {
    let workshop = try await Workshop()
    for (key, count) in [("a/1", 4), ("a/2", 1), ("b", 3)] {
      for version in 0..<count {
        try await workshop.expect(0, ["put", key, "--archive"], input: Data("\(key) \(version)".utf8))
      }
    }
    for scope in [["a/1", "a/2"], ["a/1", "a/2", "a/1"], ["--prefix", "a/"], ["--all"]] {
      let planned = try await workshop.expect(0, ["keep", "--up-to", "1", "-n", "--json"] + scope).text
      #expect(
        planned
          == #"{"dryRun":true,"keys":\#(scope == ["--all"] ? 3 : 2),"versionsDropped":\#(scope == ["--all"] ? 3 : 2)}"#
          + "\n")
    }
    #expect(
      try await workshop.expect(0, ["keep", "--up-to", "1", "--all", "-n"]).text
        == "Would drop 3 versions of 3 keys.\n")
    #expect(try await workshop.expect(0, ["versions", "a/1"]).lines.count == 4)
    try await workshop.expect(3, ["keep", "--up-to", "1", "-n", "none"])
    // A held key counts in neither, even if it has nothing to drop.
    try await workshop.expect(0, ["put", "held"], input: Data("x".utf8))
    try await workshop.expect(0, ["hold", "h", "held"])
    #expect(
      try await workshop.expect(0, ["keep", "--up-to", "1", "--all", "-n"]).text
        == "Would drop 3 versions of 3 keys.\n")
    #expect(
      try await workshop.expect(0, ["keep", "--up-to", "1", "--all"]).text
        == "Dropped 3 versions of 3 keys.\n")
  }

  @Test("files of a list get their paths as keys")
  func lists() async throws {
    let workshop = try await Workshop()
    for name in ["t/a.txt", "t/u/a.txt", "t/new\nline", "t/x.log"] {
      try workshop.write(Data(name.utf8), to: name)
    }
    _ = try await workshop.shell("ln t/a.txt t/hard; ln -s a.txt t/link")
    let list = "./t/a.txt\n\nt//u/a.txt\nt/link\nt/hard\nt/a.txt\n"
    try await workshop.expect(
      0, ["import", "--files-from", "-", "--prefix", "p"], input: Data(list.utf8))
    #expect(try await keys(workshop) == ["p/t/a.txt", "p/t/hard", "p/t/link", "p/t/u/a.txt"])
    #expect(try await workshop.expect(0, ["get", "p/t/u/a.txt"]).text == "t/u/a.txt")
    // No state has attributes of the folders, so that none wait for theirs.
    #expect(
      try await workshop.shell("$TOOL export p/ out -q > /dev/null; stat -c %a out out/p out/p/t").lines
        .dropFirst()
        == ["700", "700"])
    try await workshop.expect(0, ["delete", "--all"])

    let found = try await workshop.shell(
      "find t -type f -print0 | $TOOL import --files-from - --null --exclude '*.log'")
    #expect(found.status == 0, "\(found.errors)")
    #expect(try await keys(workshop) == ["t/a.txt", "t/hard", "t/new\nline", "t/u/a.txt"])
    try await workshop.expect(0, ["delete", "--all"])

    // An absolute path has no / in front, and one that leads up is refused.
    let absolute = workshop.path("t/a.txt")
    try workshop.write(Data("\(absolute)\n../up\nnone\n".utf8), to: "list")
    let mixed = try await workshop.expect(1, ["import", "--files-from", "list"])
    #expect(mixed.errors.contains("skipped none: there is no such file"))
    #expect(mixed.errors.contains("2 files could not be imported"))
    #expect(try await keys(workshop) == [String(absolute.dropFirst())])
    try workshop.write(Data("x".utf8), to: String(absolute.dropFirst()))
    try workshop.write(Data("\(absolute)\n\(absolute.dropFirst())\n".utf8), to: "list")
    #expect(
      try await workshop.expect(64, ["import", "--files-from", "list"]).errors.contains("would be the key of")
    )
    #expect(
      try await workshop.expect(1, ["import", "--files-from", "nothing"]).errors.contains(
        "Cannot read nothing"))
    #expect(try await workshop.shell(#"printf '\xff\n' | $TOOL import --files-from -"#).status == 1)
  }

  @Test("patterns of a file leave out what they match")
  func exclusions() async throws {
    let workshop = try await Workshop()
    for name in ["a.log", "b.txt", "#c", "d e", "sub/f.log", "sub/g"] {
      try workshop.write(Data(name.utf8), to: "tree/\(name)")
    }
    try workshop.write(Data("# comment\n\n*.log\r\nd e\n".utf8), to: "patterns")
    try workshop.write(Data("sub/g".utf8), to: "more")
    try await workshop.expect(0, ["import", "tree", "--exclude-from", "patterns", "--exclude", "b*"])
    #expect(try await keys(workshop) == ["#c", "sub/g"])
    try await workshop.expect(0, ["delete", "--all"])
    try await workshop.expect(0, ["import", "tree", "--exclude-from", "patterns", "--exclude-from", "more"])
    #expect(try await keys(workshop) == ["#c", "b.txt"])
    try await workshop.expect(1, ["import", "tree", "--exclude-from", "nothing"])
  }

  @Test("a prefix means a key and the keys below it, in each command", arguments: ["web", "2024", "é", "w-"])
  func prefixes(_ prefix: String) async throws {
    let workshop = try await Workshop()
    try workshop.write(Data("f".utf8), to: "tree/f")
    try await workshop.expect(0, ["import", "tree", "--prefix", prefix])
    try await workshop.expect(0, ["import", "tree/f", "--prefix", prefix + "/named"])
    try await workshop.expect(0, ["import", "tree", "--prefix-bytes", prefix + "-archive."])
    for key in [prefix, prefix + "site"] {
      try await workshop.expect(0, ["put", key], input: Data("own".utf8))
    }
    let below = ["\(prefix)/f", "\(prefix)/named/f"]
    let others = ["\(prefix)-archive.f", "\(prefix)site"]
    func listed(_ arguments: [String]) async throws -> [String] {
      try await workshop.expect(0, ["list", "-0"] + arguments).text.split(separator: "\0").map(String.init)
    }
    #expect(try await listed([prefix]) == [prefix] + below)
    #expect(try await listed([prefix + "/"]) == below)
    #expect(try await listed(["--prefix-bytes", prefix]).sorted() == ([prefix] + below + others).sorted())
    #expect(try await listed([prefix, "--glob", "\(prefix)*f"]) == below)
    #expect(try await workshop.expect(0, ["states", prefix]).lines.count == 2)
    // Without the slash, the option removes it nevertheless.
    try await workshop.expect(0, ["export", prefix + "/", "out", "--strip", prefix])
    #expect(try await workshop.shell("cd out; find . -type f | sort").lines == ["./f", "./named/f"])
    // One path cannot be both a file and a folder.
    try await workshop.expect(1, ["export", prefix, "both"])
    #expect(
      try await workshop.shell("cd both; find . | sort").lines.count == 2, "the key itself has the path")
    try await workshop.expect(0, ["init", "--store", workshop.path("copy")])
    try await workshop.expect(0, ["copy", workshop.storePath, workshop.path("copy"), "--prefix", prefix])
    #expect(try await listed(["--store", workshop.path("copy")]) == [prefix] + below)
    // A hold, a retention and a deletion leave the other keys alone.
    try await workshop.expect(0, ["hold", "mine", prefix, "--kind", "prefix"])
    for key in [prefix, below[0]] { try await workshop.expect(1, ["delete", key]) }
    try await workshop.expect(0, ["delete", others[1]])
    try await workshop.expect(0, ["hold", "--release", "mine"])
    try await workshop.expect(0, ["hold", "bytes", "--prefix-bytes", prefix + "-a"])
    try await workshop.expect(1, ["delete", others[0]])
    try await workshop.expect(0, ["hold", "--release", "bytes"])
    try await workshop.expect(0, ["keep", "--last", "0", "--prefix", prefix])
    #expect(try await workshop.expect(0, ["states"]).lines.count == 1)
    try await workshop.expect(0, ["delete", "--prefix", prefix])
    #expect(try await listed([]) == [others[0]])
    #expect(try await workshop.expect(3, ["delete", "--prefix", prefix]).errors.contains("“\(prefix)/”"))
    try await workshop.expect(0, ["delete", "--prefix-bytes", prefix])
    for wrong in [
      ["delete", "--prefix", "x", "--prefix-bytes", "x"], ["list", "x", "--prefix-bytes", "x"],
      ["delete", "--prefix-bytes", ""], ["keep", "--last", "1", "--prefix-bytes", ""],
    ] { try await workshop.expect(64, wrong) }
  }
}
