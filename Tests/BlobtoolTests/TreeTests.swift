import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

/// Trees of files that are imported and exported, compared by rsync, which knows more of a file than its bytes.
@Suite("Trees")
struct TreeTests {
  private struct StateLine: Decodable {
    var id: String
    var name: String?
    var files: Int
    var links: Int
    var folders: Int
    var failed: Int
  }

  /// What rsync would have to change so that the second tree is like the first. As root it sees owners and all extended
  /// attributes.
  private func differences(_ workshop: Workshop, _ one: String, _ other: String) async throws -> [String] {
    let options = geteuid() == 0 ? "-aHAX" : "-rlptHA"
    let outcome = try await workshop.shell(
      "rsync \(options) --delete --dry-run --itemize-changes \(one)/ \(other)/ | grep -v '^[.>]......... *$'; true"
    )
    #expect(outcome.status == 0, "\(outcome.errors)")
    return outcome.lines
  }

  /// Makes a tree with everything that is kept.
  private func makeTree(_ workshop: Workshop, _ name: String = "tree") async throws {
    let outcome = try await workshop.shell(
      """
      set -e; mkdir -p \(name)/a/b \(name)/empty \(name)/closed; cd \(name)
      echo x > a/x; echo y > a/b/y; ln a/x a/b/hard; ln a/x hard2; ln -s ../a/x a/link; ln -s /nowhere broken; ln broken broken2; ln -s a folder-link
      : > nothing; head -c 3000000 /dev/zero > zeros; head -c 5000000 /dev/urandom > long; chmod $([ $(id -u) = 0 ] && echo 4755 || echo 755) a/x; chmod 640 a/b/y
      setfattr -n user.note -v text a/b/y; setfattr -n user.empty a; setfattr -n user.long -v $(head -c 3000 /dev/zero | tr '\\0' q) a/b
      setfattr -n user.long -v $(head -c 3000 /dev/zero | tr '\\0' r) long
      setfacl -m u:1:rx,g:2:r a/x; setfacl -d -m u:3:rwx empty
      touch -d '1999-12-31 23:59:59.123456789' a/b/y; touch -h -d '2001-02-03 04:05:06.7' broken
      if [ $(id -u) = 0 ]; then
        chown 1:2 a/b/y; chown -h 3:4 a/link; chown 5 empty; cp /bin/true cap; setcap cap_net_raw+ep cap
      fi
      chmod 500 closed; touch -d '2010-01-01 00:00:00.5' empty closed a/b a .
      """)
    #expect(outcome.status == 0, "\(outcome.errors)")
  }

  @Test("names of one file stay links when the first of them cannot be written")
  func linksWithoutFirst() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(
      """
      mkdir tree out; echo 1 > tree/a; ln tree/a tree/b; ln tree/a tree/c; ln tree/a tree/d; echo old > out/a
      $TOOL import tree > /dev/null; $TOOL export out; echo $?; [ out/b -ef out/c ] && [ out/c -ef out/d ]
      """)
    #expect(outcome.status == 0 && outcome.lines.last == "1", "\(outcome.errors)")
    #expect(workshop.contents("out/a") == Data("old\n".utf8))
    // A name that was there is not the first one, if that could be written.
    let other = try await workshop.shell(
      "mkdir own; echo 1 > own/b; $TOOL export own -q > /dev/null; [ own/a -ef own/c ] && ! [ own/a -ef own/b ]"
    )
    #expect(other.status == 0, "\(other.errors)")
  }

  @Test("come back with links, hard links, modes, times, owners, ACLs and attributes, as of each import")
  func everything() async throws {
    let workshop = try await Workshop()
    try await makeTree(workshop)
    try await workshop.expect(0, ["import", "tree", "--prefix", "t", "--name", "first"])
    _ = try await workshop.shell("cp -a tree before")
    let change = try await workshop.shell(
      "cd tree; rm broken broken2 hard2; rm -r empty; echo more >> a/b/y; chmod 600 nothing; mkdir new; echo n > new/n; ln -s n new/l"
    )
    #expect(change.status == 0)
    try await workshop.expect(0, ["import", "tree", "--prefix", "t"])
    for (state, tree) in [("first", "before"), ("latest", "tree")] {
      try await workshop.expect(0, ["export", "t/", "out-\(state)", "--strip", "t/", "--at", state])
      #expect(try await differences(workshop, tree, "out-\(state)") == [])
    }
    // rsync finds what is not kept.
    for change in [
      "chmod 711 out-first/a/b", "ln -sf /elsewhere out-first/broken", "rm -r out-first/empty",
      "setfattr -n user.note -v other out-first/a/b/y", "setfacl -b out-first/a/x", "touch out-first/nothing",
    ] {
      let before = try await differences(workshop, "before", "out-first")
      _ = try await workshop.shell(change)
      #expect(try await differences(workshop, "before", "out-first") != before, "\(change)")
    }
    let states = try await workshop.expect(0, ["states", "--json"]).json(StateLine.self)
    #expect(states.map(\.name) == ["first", nil] && states.allSatisfy { $0.failed == 0 })
    #expect(states.map(\.links) == [4, 3] && states.map(\.folders) == [5, 5])
    try await workshop.expect(0, ["verify"])
    try await workshop.expect(0, ["gc"])
    // Of the bytes alone.
    try await workshop.expect(0, ["export", "t/", "plain", "--strip", "t/", "--no-attributes"])
    #expect(try await workshop.shell("stat -c %a plain/a/x; cat plain/a/link").lines == ["600", "../a/x"])
    // A copy has all of it.
    try await workshop.expect(0, ["init", "--store", workshop.path("copy")])
    try await workshop.expect(0, ["copy", workshop.storePath, workshop.path("copy")])
    try await workshop.expect(
      0, ["export", "t/", "out-copy", "--strip", "t/", "--at", "first", "--store", workshop.path("copy")])
    #expect(try await differences(workshop, "before", "out-copy") == [])
  }

  @Test("that changed are told apart by diff, find, list and restore")
  func states() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell("mkdir -p tree/d; echo 1 > tree/a; echo 1 > tree/d/b; echo 1 > tree/c")
    try await workshop.expect(0, ["import", "tree", "--prefix", "t", "--name", "one"])
    _ = try await workshop.shell("rm tree/a; echo 22 > tree/d/b; echo 1 > tree/e")
    try await workshop.expect(0, ["import", "tree", "--prefix", "t", "--name", "two"])
    let diff = try await workshop.expect(0, ["diff", "one", "two"]).lines
    #expect(diff.filter { !$0.hasSuffix("/") } == ["- t/a", "M t/d/b", "+ t/e"])
    #expect(
      try await workshop.expect(0, ["list", "t/", "--at", "one", "-0"]).text == "t/\0t/a\0t/c\0t/d/\0t/d/b\0")
    #expect(try await workshop.expect(0, ["list", "t/d/b", "--at", "two"]).lines.count == 1)
    // What an import has replaced is no version of the key's history, and neither keep nor gc takes it from the state.
    #expect(try await workshop.expect(0, ["versions", "t/d/b"]).lines.count == 1)
    try await workshop.expect(0, ["gc", "--keep", "0"])
    // The key of a deleted file stays, and its version is found.
    #expect(try await workshop.expect(0, ["find", "a"]).text.contains("one..one  t/a"))
    #expect(try await workshop.expect(0, ["find", "*/b"]).lines.count == 2)
    try await workshop.expect(3, ["find", "zzz"])
    try await workshop.expect(0, ["restore", "t/d/b", "--at", "one"])
    #expect(try await workshop.expect(0, ["get", "t/d/b"]).text == "1\n")
    try await workshop.expect(3, ["restore", "t/a", "--at", "two"])
    try await workshop.expect(3, ["list", "--at", "1999-01-01"])
    try await workshop.expect(3, ["list", "--at", "nonsense"])
    try await workshop.expect(1, ["import", "tree", "--name", "two"])
    try await workshop.expect(1, ["import", "tree", "--name", "two", "--dry-run"])
    for wrong in ["2026-13-45", "2026-02-30", "2026-01-01T25:00", "2026-1-1", "2026-01-01T١٢:٠٠"] {
      for command in [["list", "--at", wrong], ["diff", "one", wrong], ["restore", "t/a", "--at", wrong]] {
        #expect(try await workshop.expect(64, command).errors.contains("is no time"))
      }
      try await workshop.expect(64, ["export", "out", "--at", wrong])
      try await workshop.expect(64, ["hold", "h", wrong, "--kind", "state"])
    }
    // A version that is gone is named, and no other one stands in for it.
    try await workshop.expect(0, ["delete", "t/c"])
    let list = try await workshop.expect(1, ["list", "t/", "--at", "one"])
    #expect(list.errors.contains("t/c") && !list.text.contains("t/c"))
    #expect(try await workshop.expect(0, ["find", "t/c"]).text.hasSuffix("  t/c  deleted\n"))
    #expect(try await workshop.expect(0, ["find", "t/c", "--json"]).text.contains(#""deleted":true"#))
    #expect(!(try await workshop.expect(0, ["find", "a"]).text.contains("deleted")))
    let export = try await workshop.expect(1, ["export", "t/", "out", "--strip", "t/", "--at", "one"])
    #expect(export.errors.contains("t/c"))
    #expect(
      try await workshop.shell("cd out; find . -type f | sort; cat d/b").lines == ["./a", "./d/b", "1"])
    // What keep says is what it does.
    let plan = try await workshop.expect(0, ["keep", "--last", "1", "--all", "--dry-run"])
    #expect(plan.lines.contains { $0.contains("state one") && $0.hasSuffix("drop") })
    #expect(plan.lines.contains { $0.contains("state two") && $0.hasSuffix("keep  (last)") })
    try await workshop.expect(0, ["hold", "mine", "one"])
    #expect(try await workshop.expect(5, ["hold", "mine", "two"]).errors.contains("mine"))
    try await workshop.expect(3, ["keep", "--last", "1", "none"])
    for options in [[], ["-n"], ["-v"]] {
      #expect(try await workshop.expect(1, ["delete", "t/d/b"] + options).errors.contains("“mine”"))
    }
    #expect(try await workshop.expect(1, ["delete", "-n", "--prefix", "t/"]).errors.contains("“mine”"))
    #expect(try await workshop.expect(1, ["keep", "--up-to", "0", "-n", "t/d/b"]).errors.contains("“mine”"))
    try await workshop.expect(0, ["keep", "--last", "1", "--all"])
    #expect(try await workshop.expect(0, ["states"]).lines.count == 2)
    let released = try await workshop.expect(0, ["hold", "--release", "mine", "--json"])
    #expect(try released.json([String: String].self) == [["released": "mine"]])
    try await workshop.expect(3, ["hold", "--release", "mine"])
    try await workshop.expect(0, ["keep", "--last", "1", "--all"])
    #expect(try await workshop.expect(0, ["states"]).lines.count == 1)
    // A state that is gone does not become a prefix.
    try await workshop.expect(0, ["put", "one-more"], input: Data("x".utf8))
    #expect(try await workshop.expect(3, ["hold", "h", "one"]).errors.contains("--kind prefix"))
    try await workshop.expect(0, ["hold", "h", "t/"])
    try await workshop.expect(0, ["hold", "--release", "h"])
    try await workshop.expect(0, ["keep", "--last", "0", "--all"])
    #expect(try await workshop.expect(0, ["states"]).lines.isEmpty)
    for wrong in [
      ["keep", "--all"], ["keep", "--up-to", "1", "--daily", "1", "--all"],
      ["keep", "--daily", "1", "--prefix", ""], ["hold", "x"], ["hold", "--release", "x", "y"],
      ["import", "tree", "--no-state", "--name", "x"], ["export", "out", "--owners", "--no-attributes"],
    ] { try await workshop.expect(64, wrong) }
    try await workshop.expect(0, ["verify"])
  }

  @Test("are left out where the options say so")
  func choice() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell(
      """
      mkdir -p tree/cache/deep tree/other; echo 1 > tree/cache/deep/x; echo 2 > tree/other/CACHEDIR.TAG; echo 3 > tree/other/y
      printf 'Signature: 8a477f597d28d172789f06886806bc55\\n# more' > tree/cache/CACHEDIR.TAG; mkfifo tree/pipe
      """)
    let outcome = try await workshop.expect(0, ["import", "tree", "--exclude-caches"])
    #expect(outcome.errors.contains("pipe"))
    #expect(
      try await workshop.expect(0, ["list", "-0"]).text == "cache/CACHEDIR.TAG\0other/CACHEDIR.TAG\0other/y\0"
    )
    try await workshop.expect(0, ["import", "tree", "--no-state", "--force"])
    #expect(try await workshop.expect(0, ["states"]).lines.count == 1)
    #expect(try await workshop.expect(0, ["versions", "other/y"]).lines.count == 1)
  }

  @Test("are never written outside the target, whatever links stand there or were imported")
  func links() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell(
      "mkdir -p outside tree out; ln -s ../outside tree/l; echo 1 > tree/f; echo safe > outside/f; ln -s ../outside out/d"
    )
    try await workshop.expect(0, ["import", "tree"])
    // A key below a link, and one below a folder that is a link by now.
    try await workshop.expect(0, ["put", "l/f"], input: Data("harm".utf8))
    try await workshop.expect(0, ["put", "d/f"], input: Data("harm".utf8))
    for options in [[], ["--overwrite"]] {
      try await workshop.expect(1, ["export", "out"] + options)
      #expect(try await workshop.shell("cat outside/f; ls outside").lines == ["safe", "f"])
    }
  }

  @Test("that are imported and exported by processes that are killed end as if nothing had happened")
  func kills() async throws {
    let workshop = try await Workshop(options: ["--chunk-size", "4096"])
    var random = SplitMix64.init(seed: TestSeed.choose())
    _ = try await workshop.shell(
      """
      mkdir tree; cd tree; for d in $(seq 12); do mkdir $d; for f in $(seq 40); do echo $d $f > $d/$f; ln -s $f $d/l$f; done
      ln $d/1 $d/hard; chmod 750 $d; touch -d 2005-05-$d $d; head -c 200000 /dev/urandom > $d/long; done
      """)
    func runKilled(_ arguments: [String]) async throws {
      for _ in 0..<12 {
        let process = try await workshop.start(arguments)
        process.signal(SIGKILL, inSeconds: Double.random(in: 0.01...0.4, using: &random))
        let outcome = try await process.outcome()
        if outcome.status == 0 { return }
      }
      try await workshop.expect(0, arguments)
    }
    try await runKilled(["import", "tree", "--prefix", "t"])
    try await runKilled(["export", "t/", "out", "--strip", "t/"])
    #expect(try await differences(workshop, "tree", "out") == [])
    #expect(try await workshop.shell("ls -A out | grep -c partial").lines == ["0"])
    _ = try await workshop.shell("rm -r tree/3; echo new > tree/4/4")
    try await runKilled(["import", "tree", "--prefix", "t"])
    try await runKilled(["export", "t/", "out2", "--strip", "t/", "--at", "latest"])
    #expect(try await differences(workshop, "tree", "out2") == [])
    try await workshop.expect(0, ["verify"])
  }

  @Test("stay whole beside gc and keep, whatever imports replace meanwhile")
  func besideCollection() async throws {
    let workshop = try await Workshop(options: ["--chunk-size", "4096"])
    let outcome = try await workshop.shell(
      """
      mkdir tree; for f in $(seq 60); do head -c 9000 /dev/urandom > tree/$f; done
      (while [ ! -e end ]; do $TOOL gc -q > /dev/null || touch failed; $TOOL keep --last 4 --all -q > /dev/null || touch failed; done) &
      for round in $(seq 8); do
        for f in $(shuf -i 1-60 -n 25); do head -c 9000 /dev/urandom > tree/$f; done
        cp -a tree copy-$round; $TOOL import tree --prefix t --name r$round -q > /dev/null || touch failed
      done; touch end; wait; ls failed 2> /dev/null; $TOOL gc -q > /dev/null; $TOOL gc -q > /dev/null
      for round in 5 6 7 8; do
        $TOOL export t/ out-$round --strip t/ --at r$round -q > /dev/null; rsync -a --delete --checksum -n -i copy-$round/ out-$round/
      done; $TOOL verify -q > /dev/null; echo status $?
      """)
    #expect(outcome.lines == ["status 0"], "\(outcome.text) \(outcome.errors)")
  }

  @Test("are written whole by several threads that enter the same folders")
  func threads() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(
      """
      for d in $(seq 40); do mkdir -p tree/$d; for f in $(seq 30); do echo $d $f > tree/$d/$f; ln -s $f tree/$d/l$f; done; done
      $TOOL import tree --prefix t -q > /dev/null
      for i in $(seq 6); do $TOOL export t/ out-$i --strip t/ -q > /dev/null && diff -r tree out-$i && echo same; done
      """)
    #expect(outcome.lines == [String](repeating: "same", count: 6), "\(outcome.text) \(outcome.errors)")
  }

  @Test("have hard links of the files that they had, and of no others")
  func hardLinks() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(
      """
      mkdir a out; echo right > a/1; ln a/1 a/2; ln a/1 a/3; $TOOL import a --prefix a -q > /dev/null
      echo wrong > out/1; $TOOL export a/ out --strip a/ -q > /dev/null 2>&1; cat out/1 out/2 out/3
      # The same bytes and, as file systems number files, the same inode as a file that is gone.
      mkdir e; echo same > e/a; ln e/a e/b; chmod 600 e/a; $TOOL import e --prefix e -q > /dev/null; rm e/a e/b
      echo same > e/c; ln e/c e/d; chmod 644 e/c; touch -d 2005-05-05 e/c; $TOOL import e --prefix e -q > /dev/null
      $TOOL export e/ both --strip e/ -q > /dev/null; stat -c '%a %h' both/a both/c
      """)
    #expect(
      outcome.lines == ["wrong", "right", "right", "600 2", "644 2"], "\(outcome.text) \(outcome.errors)")
  }

  /// Runs shell text as a user that is not root, in a folder of that user's.
  private func shellOfUser(_ workshop: Workshop, _ text: String) async throws -> Outcome {
    try workshop.write(
      Data("cd own; export BLOBTOOL_STORE=$PWD/store; $TOOL init -q > /dev/null; \(text)".utf8), to: "script")
    return try await workshop.shell(
      """
      chmod 755 .; mkdir own; run=; if [ $(id -u) = 0 ]; then chown 65534 own; run="setpriv --reuid 65534 --regid 65534 --clear-groups"; fi
      $run bash script; chmod -R u+w own
      """)
  }

  @Test("are written into read-only folders of one's own, which are read-only again afterwards")
  func readOnlyFolders() async throws {
    let workshop = try await Workshop()
    let outcome = try await shellOfUser(
      workshop,
      """
      mkdir -p tree/ro/deep; echo 1 > tree/ro/a; echo 1 > tree/ro/deep/b; chmod 555 tree/ro/deep tree/ro
      $TOOL import tree --prefix t -q > /dev/null; $TOOL export t/ out --strip t/ -q > /dev/null || echo failed
      chmod 755 tree/ro; echo 22 > tree/ro/a; echo n > tree/ro/n; ln -s a tree/ro/l; ln tree/ro/n tree/ro/m; mkdir tree/ro/new
      chmod 555 tree/ro; $TOOL import tree --prefix t -q > /dev/null
      $TOOL export t/ out --strip t/ --overwrite -q > /dev/null || echo failed
      rsync -rlptH --delete -n -i tree/ out/; stat -c %a out/ro out/ro/deep; ls -A out/ro | tr '\\n' ' '
      # Of keys that no state has.
      mkdir -p other/k; chmod 555 other/k; echo v | $TOOL put k/x -q > /dev/null
      $TOOL export k/ other -q > /dev/null || echo failed
      stat -c %a other/k; ls -A other/k
      # What an export has left there that was killed.
      chmod 755 other/k; : > other/k/.blobstorage-mode-555.partial; echo v | $TOOL put k/y -q > /dev/null
      $TOOL export k/ other -q > /dev/null || echo failed
      stat -c %a other/k; ls -A other/k
      """)
    #expect(
      outcome.lines == ["555", "555", "a deep l m n new 555", "x", "555", "x", "y"],
      "\(outcome.text) \(outcome.errors)")
  }

  @Test("behind a named link are a failure if they cannot be read, and the link is imported")
  func closedBehindLink() async throws {
    let workshop = try await Workshop()
    let outcome = try await shellOfUser(
      workshop,
      """
      mkdir real; echo 1 > real/f; ln -s real l; ln -s nowhere m; ln -s $(head -c 300 /dev/zero | tr '\\0' x) n; chmod 000 real
      $TOOL import l m n -q > /dev/null 2> errors; echo $?; grep -c 'skipped .: ' errors; grep -c 'skipped l: ' errors
      $TOOL list -0 | tr '\\0' ' '; echo
      $TOOL import l m n --no-attributes -q > /dev/null 2> errors; echo $?; grep -c 'skipped l: ' errors; chmod 700 real
      """)
    #expect(outcome.lines == ["1", "1", "1", "l m n ", "1", "1"], "\(outcome.text) \(outcome.errors)")
  }

  @Test(
    "with too many extended attributes lack the file or the attributes, which are named, and have all else")
  func tooManyAttributes() async throws {
    let workshop = try await Workshop()
    // Most file systems on a disk have no room for so many.
    let outcome = try await workshop.shell(
      """
      tree=$(mktemp -d -p /dev/shm) || exit 9; trap "rm -rf $tree" EXIT; mkdir $tree/d; echo 1 > $tree/a; echo 2 > $tree/d/z
      value=$(head -c 60000 /dev/zero | tr '\\0' q)
      for i in $(seq 285); do setfattr -n user.$i -v $value $tree/a $tree/d 2> /dev/null || exit 9; done
      $TOOL import $tree --prefix t -q > /dev/null 2> errors; echo $?
      grep -c "$tree/a: its extended attributes have more than 16 MiB" errors; grep -c "$tree/d: its" errors
      $TOOL list t/ --at latest -0 | tr '\\0' ' '
      """)
    if outcome.status == 9 { return }
    #expect(outcome.lines == ["1", "1", "1", "t/ t/d/ t/d/z "], "\(outcome.text) \(outcome.errors)")
  }

  @Test(
    "leave the attributes of folders that were there, unless with --overwrite, and go on where an export ended"
  )
  func existingFolders() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(
      """
      mkdir -p tree/d/new tree/e; echo 1 > tree/d/new/f; echo 2 > tree/d/g; chmod 755 tree tree/d tree/e; chmod 750 tree/d/new
      setfattr -n user.note -v tree tree/d; touch -d 2001-01-01 tree/d/new tree/d tree/e tree; $TOOL import tree --prefix t -q > /dev/null
      export() { $TOOL export t/ "$@" --strip t/ -q > /dev/null; echo $?; }
      mkdir -p out/d out/e; chmod 700 out out/d; chmod 1777 out/e; setfattr -n user.mine -v x out/d; export out; export out
      stat -c %a out out/d out/e out/d/new; getfattr out/d | grep ^user
      export out --overwrite; stat -c %a out out/d out/e; getfattr out/d | grep ^user
      mkdir empty; chmod 711 empty; export empty; stat -c %a empty
      # What an export has left that was killed.
      mkdir -p half/d; chmod 1700 half half/d; export half; stat -c %a half half/d
      # Folders of an export that has not known their attributes.
      export late --glob t/d/g; stat -c %a late late/d; export late; stat -c %a late late/d
      """)
    #expect(
      outcome.lines == [
        "0", "0", "700", "700", "1777", "750", "user.mine", "0", "755", "755", "755", "user.note", "0", "755",
        "0", "755", "755", "0", "1700", "1700", "0", "755", "755",
      ], "\(outcome.text) \(outcome.errors)")
    for folder in ["out", "empty", "half", "late"] {
      #expect(try await differences(workshop, "tree", folder) == [])
    }
  }

  @Test("lose what a killed export has left in the folder to export to")
  func leftovers() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(
      """
      mkdir -p tree out; echo 1 > tree/a; $TOOL import tree --prefix t -q > /dev/null
      echo part > out/.blobstorage-x-1.partial; chmod 755 out; : > out/.blobstorage-mode-555.partial
      $TOOL export t/ out --strip t/ -q > /dev/null; ls -A out; stat -c %a out; chmod 755 out
      """)
    #expect(outcome.lines == ["a", "555"], "\(outcome.text) \(outcome.errors)")
  }

  @Test("replace files by folders and empty folders by files with --overwrite, and nothing outside")
  func otherKinds() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell(
      """
      mkdir -p tree/dir tree/empty outside; echo f > tree/file; echo x > tree/dir/x; ln -s dir tree/link; echo safe > outside/s
      mkdir -p out/file out/link; echo o > out/dir; ln -s ../outside out/empty
      """)
    try await workshop.expect(0, ["import", "tree", "--prefix", "t"])
    let export = ["export", "t/", "out", "--strip", "t/"]
    try await workshop.expect(1, export)
    #expect(try await workshop.shell("cat out/dir; ls -l out/file out/link | wc -l").lines.first == "o")
    try await workshop.expect(0, export + ["--overwrite"])
    #expect(try await differences(workshop, "tree", "out") == [])
    // A folder that is not empty stays.
    _ = try await workshop.shell(
      "rm out/file; mkdir out/file; echo mine > out/file/mine; rm -r out/dir; ln -s ../outside out/dir")
    let planned = try await workshop.expect(1, export + ["--overwrite", "-n"])
    let outcome = try await workshop.expect(1, export + ["--overwrite"])
    #expect(planned.errors == outcome.errors)
    #expect(outcome.errors.contains("not empty") && outcome.errors.contains("t/file"))
    #expect(
      try await workshop.shell("cat out/file/mine; test -L out/dir || cat out/dir/x; ls -R outside").lines
        == ["mine", "x", "outside:", "s"])
    // What the export itself has written is not replaced: keys of a file that has become a folder.
    _ = try await workshop.shell("rm -r out tree/file; mkdir tree/file; echo y > tree/file/y")
    try await workshop.expect(0, ["import", "tree", "--prefix", "t"])
    let double = try await workshop.expect(1, export + ["--overwrite"])
    #expect(double.errors.contains("t/file/y"))
    #expect(try await workshop.shell("cat out/file").lines == ["f"])
    try await workshop.expect(0, export + ["--overwrite", "--at", "latest"])
    #expect(try await differences(workshop, "tree", "out") == [])
  }

  @Test("have paths that are not UTF-8, as arguments and in lists")
  func rawPaths() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(
      #"""
      mkdir $'r\xff'; echo 1 > $'r\xff/a'; echo 2 > $'n\xfe'; echo 3 > $'r\xff/s\xfd'; echo 4 > $'r\xff/t\xfc'
      printf 't\xfc\n' > patterns
      $TOOL import $'r\xff' $'n\xfe' --prefix p/ --exclude=$'s\xfd' --exclude-from patterns -q > /dev/null; echo $?
      printf 'n\xfe\0./r\xff/s\xfd\0' | $TOOL import --files-from - -0 --prefix q/ -q > /dev/null; echo $?
      $TOOL export p/ $'out\xff' --strip p/ -q > /dev/null; echo $?; cat $'out\xff/a' $'out\xff/n\xfe'; ls $'out\xff' | wc -l
      $TOOL export q/ out --strip q/ -q > /dev/null; echo $?; cat $'out/n\xfe' $'out/r\xff/s\xfd'
      mkdir other; echo 5 > $'other/n\xfe'; $TOOL import $'n\xfe' other -q > /dev/null 2>&1; echo $?
      for wrong in "put" "export --strip" "import --prefix"; do $TOOL $wrong $'\xff' $'n\xfe' 2> /dev/null; echo $?; done
      """#)
    #expect(
      outcome.lines == ["0", "0", "0", "1", "2", "2", "0", "2", "3", "64", "64", "64", "64"],
      "\(outcome.text) \(outcome.errors)")
  }

  @Test("have links with extended attributes, which only root can set")
  func attributesOfLinks() async throws {
    guard geteuid() == 0 else { return }
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(
      """
      mkdir tree; ln -s nowhere tree/l; ln -s nowhere tree/m; setfattr -h -n trusted.note -v text tree/l || exit 9
      setfattr -h -n trusted.long -v $(head -c 3000 /dev/zero | tr '\\0' q) tree/m
      """)
    if outcome.status == 9 { return }
    try await workshop.expect(0, ["import", "tree"])
    try await workshop.expect(0, ["export", "out"])
    #expect(
      try await workshop.shell("getfattr -h -n trusted.note --only-values out/l").text == "text")
    #expect(try await differences(workshop, "tree", "out") == [])
  }

  @Test(
    "that cannot be read are named by find, states and keep, which go on with the others, and by an export")
  func unreadable() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell("mkdir tree; echo 1 > tree/a")
    for (prefix, name) in [("t", "t1"), ("t", "t2"), ("u", "u1"), ("u", "u2")] {
      _ = try await workshop.shell("echo \(name) > tree/a")
      try await workshop.expect(0, ["import", "tree", "--prefix", prefix, "--name", name])
    }
    func change(_ text: String, _ data: Data, _ metadata: [UInt8]?) async throws {
      let store = try await BlobStore.open(at: workshop.storePath)
      let key = InternalKey.Purpose.state.key(Array(text.utf8))
      let known = try store.engine.internalVersions(key).first?.row.metadata
      try store.engine.putInternal(key, .data(data), metadata: metadata ?? known ?? [])
      try await store.close()
    }
    let states = try await workshop.expect(0, ["states", "--json"]).json(StateLine.self)
    try await change(try #require(states.first { $0.name == "t2" }).id, Data([9, 9]), nil)
    let find = try await workshop.expect(1, ["find", "a"])
    #expect(find.lines.count == 3 && find.errors.contains("State t2"))
    let export = try await workshop.expect(4, ["export", "t/", "out", "--strip", "t/"])
    #expect(export.errors.contains("t2") && workshop.contents("out/a") == Data("t2\n".utf8))
    try await workshop.expect(4, ["list", "t/", "--at", "t2"])
    let keep = try await workshop.expect(1, ["keep", "--last", "1", "--all"])
    #expect(
      keep.errors.contains("State t2") && keep.lines == ["Dropped 1 state and 1 version; 3 states stay."])
    // The next import builds on nothing that cannot be read.
    try await workshop.expect(0, ["import", "tree", "--prefix", "t", "--name", "t3"])
    try await workshop.expect(0, ["list", "t/", "--at", "t3"])
    // One of a later build.
    try await change("00000000000000ff", Data(), Array("STA9".utf8))
    #expect(try await workshop.expect(1, ["states"]).lines.count == 4)
    #expect(
      try await workshop.expect(0, ["list", "t/", "--at", "latest"]).errors.contains("00000000000000ff"))
    #expect(
      try await workshop.expect(1, ["keep", "--last", "1", "--all"]).lines
        == ["Dropped 2 states and 0 versions; 2 states stay."])
  }

  @Test("of several prefixes are not taken for each other, and a hold on one of all keys stops no retention")
  func prefixes() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell("mkdir -p e/sub e/empty; echo x > e/x; echo y > e/sub/y; chmod 711 e/empty")
    try await workshop.expect(0, ["import", "e", "--prefix", "docs"])
    try await workshop.expect(0, ["import", "e/sub", "--prefix", "docs/sub"])
    try await workshop.expect(0, ["import", "e/sub", "--prefix", "other"])
    #expect(
      try await workshop.expect(0, ["list", "docs/", "--at", "latest", "-0"]).text.contains("docs/x\0"))
    #expect(
      try await workshop.expect(0, ["list", "docs/sub/", "--at", "latest", "-0"]).text.hasPrefix(
        "docs/sub/\0"))
    #expect(try await workshop.expect(64, ["list", "--at", "latest"]).errors.contains("give a prefix"))
    try await workshop.expect(0, ["export", "docs/", "out", "--strip", "docs/"])
    #expect(try await differences(workshop, "e", "out") == [])
    _ = try await workshop.shell("echo z > e/z")
    try await workshop.expect(0, ["import", "e", "--name", "all"])
    try await workshop.expect(0, ["hold", "h", "all"])
    try await workshop.expect(0, ["keep", "--last", "0", "--all"])
    #expect(try await workshop.expect(0, ["states"]).lines.count == 1)
    for name in ["latest", "2026-01-01"] {
      #expect(
        try await workshop.expect(1, ["import", "e", "--name", name]).errors.contains(
          "name the state differently"))
    }
    // Over an older export, attributes too.
    _ = try await workshop.shell("setfattr -n user.x -v 1 e/x")
    try await workshop.expect(0, ["import", "e", "--prefix", "docs"])
    try await workshop.expect(0, ["export", "docs/", "out", "--strip", "docs/", "--overwrite"])
    #expect(try await differences(workshop, "e", "out") == [])
  }

  @Test(
    "without a prefix are not taken for later ones of other prefixes, and keys that were put are restored by time"
  )
  func withoutPrefix() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell("mkdir src docs; echo a > src/a; echo d > docs/d")
    try await workshop.expect(0, ["put", "own"], input: Data("1".utf8))
    try await workshop.expect(0, ["import", "src", "--name", "root"])
    #expect(try await workshop.expect(0, ["list", "--at", "latest", "-0"]).text == "\0a\0")
    try await workshop.expect(0, ["import", "docs", "--prefix", "docs", "--name", "one"])
    for time in ["latest", "2999-01-01"] {
      let errors = try await workshop.expect(64, ["list", "--at", time]).errors
      #expect(errors.contains("of “docs/” from") && errors.contains("without a prefix from"))
    }
    #expect(try await workshop.expect(0, ["list", "docs/", "--at", "latest", "-0"]).text.contains("docs/d"))
    _ = try await workshop.shell("echo b > src/b; echo e > docs/e")
    try await workshop.expect(0, ["import", "docs", "--prefix", "docs"])
    try await workshop.expect(0, ["import", "src"])
    #expect(try await workshop.expect(0, ["list", "--at", "latest", "-0"]).text == "\0a\0b\0")
    // Of two states, of the same prefix.
    #expect(try await workshop.expect(0, ["diff", "one", "latest"]).lines == ["M docs/", "+ docs/e"])
    #expect(try await workshop.expect(0, ["diff", "latest", "one"]).lines == ["M docs/", "- docs/e"])
    #expect(try await workshop.expect(0, ["diff", "root", "latest"]).lines == ["M ", "+ b"])
    // No import knows it.
    try await workshop.expect(0, ["restore", "own", "--at", "2999-01-01"])
    try await workshop.expect(3, ["restore", "own", "--at", "1999-01-01"])
    try await workshop.expect(3, ["restore", "own", "--at", "root"])
    try await workshop.expect(0, ["restore", "a", "--at", "2999-01-01"])
    // The last state has nothing of these.
    for time in ["latest", "2999-01-01"] {
      try await workshop.expect(0, ["restore", "docs/d", "--at", time])
      #expect(try await workshop.expect(0, ["list", "docs/", "--at", time, "-0"]).text.contains("docs/d"))
    }
  }
}
