import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

/// The store as files. Real mounts, read by this process and by others.
@Suite(
  "A mounted store", .serialized, .enabled(if: MountedStore.isPossible, MountedStore.obstacle),
  .timeLimit(.minutes(5)))
struct MountTests {
  private static let names = [
    "plain", "with space", "new\nline", "ünïcödé", "e\u{301}", "é", "%", "100%", "%empty", "%folder-x", "-",
    "*",
    "\u{1b}[0m", "😀", ".hidden", "a.b.c", String(repeating: "n", count: 255), "%long-0123456789abcdef-x",
  ]

  /// Files of many names and lengths, below `tree`.
  private static func writeTree(_ workshop: Workshop) throws {
    for (index, name) in names.enumerated() {
      // Names that begin with % and a word get one more %.
      try workshop.write(noise(index * 700, seed: UInt64(index)), to: "tree/odd/\(name)")
      try workshop.write(Data("in a folder".utf8), to: "tree/\(name)/\(name)")
    }
    for index in 0..<400 {
      let bytes =
        index % 2 == 0
        ? noise(index * 41, seed: UInt64(index)) : Data(repeating: UInt8(index & 7), count: index * 97)
      try workshop.write(bytes, to: "tree/many/\(index % 7)/f\(index)")
    }
    try workshop.write(noise(3_000_000, seed: 77), to: "tree/large/noise")
    try workshop.write(Data(repeating: 65, count: 5_000_000), to: "tree/large/same")
    try workshop.write(Data((0..<900_000).flatMap { "\($0)\n".utf8 }), to: "tree/large/text")
  }

  @Test("has the files that were imported, with their names, bytes, lengths and times")
  func same() async throws {
    let workshop = try await Workshop()
    try Self.writeTree(workshop)
    _ = try await workshop.shell(
      "touch -d '2001-02-03 04:05:06.789' tree/plain/plain; touch -d 1960-01-01 tree/-/-")
    try await workshop.expect(0, ["import", "tree"])
    try await workshop.expect(0, ["put", "one", "-", "--archive"], input: Data("1".utf8))
    try await workshop.expect(0, ["put", "one", "-", "--archive"], input: Data("22".utf8))
    try await workshop.expect(0, ["put", "one/two"], input: Data("below a file".utf8))
    let mounted = try await MountedStore(workshop)
    let outcome = try await workshop.shell(
      """
      facts() { (cd "$1" && find . -type f -printf '%P %s %T@ %m\\0' | sed -z 's/ [0-7]*$//' | sort -z); }
      # As the names of the tree are shown.
      mkdir shown && cp -a tree/. shown && cd shown && for name in '%empty' '%folder-x' '%long-0123456789abcdef-x'; do
        mv "odd/$name" "odd/%$name"; mv "$name/$name" "$name/%$name"; mv "$name" "%$name"; done; cd ..
      rm -rf rest && mkdir rest
      facts shown > expected
      facts m/current | grep -zv -e '^one ' -e '^%folder-one/' > found
      cmp expected found && echo facts
      diff -r shown m/current | grep -v '^Only in m/current'; echo "diff ${PIPESTATUS[0]}"
      cat m/current/one m/current/%folder-one/two; echo
      for f in m/versions/one/2*; do cat "$f"; echo; done
      [ "$(ls m/versions/one | sort)" = "$(ls -U m/versions/one)" ] && ls m/versions/one | wc -l
      touch m/current/new 2>&1 | grep -o 'Read-only'; rm m/current/one 2>&1 | grep -o 'Read-only'
      stat -c '%a %h' m/current m/current/one
      ls m/current/none 2>&1 | grep -o 'No such file'
      find m/versions -type f -printf x | wc -c; find m/current -type f -printf x | wc -c
      """)
    let keyCount = try await workshop.expect(0, ["list", "--json"]).lines.count
    #expect(
      outcome.lines == [
        "facts", "diff 1", "22below a file", "1", "22", "3", "Read-only", "Read-only", "555 1", "444 1",
        "No such file", "\(keyCount + 1)", "\(keyCount)",
      ], "\(outcome.text) \(outcome.errors)")
    // Copies of other programs are the same.
    let copied = try await workshop.shell(
      "cp -a m/current/large copy && cmp copy/noise tree/large/noise && cmp copy/text tree/large/text")
    #expect(copied.status == 0, "\(copied.errors)")
    #expect(try await mounted.end().errors.contains("blobtool: interrupted."))
  }

  @Test("has the trees of states, with links, modes, times, owners, attributes, empty folders and odd names")
  func states() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell(
      """
      mkdir -p tree/d/e tree/empty; echo 1 > tree/a; echo 2 > tree/d/b; ln -s ../a tree/d/link; ln -s /nowhere tree/broken
      chmod 4750 tree/a; chmod 700 tree/d/e; setfattr -n user.note -v text tree/d/b; setfattr -n user.of -v folder tree/d
      for i in $(seq 700); do echo $i > tree/d/e/$i; done; printf x > $'tree/na\\xffme'; printf y > $'tree/d/\\xef\\xbf\\xbd'
      [ $(id -u) != 0 ] || chown 1:2 tree/d/b; touch -h -d 2001-02-03 tree/broken; touch -d '1999-12-31 23:59:59.5' tree/empty tree/d tree
      """)
    try await workshop.expect(0, ["import", "tree", "--prefix", "p/t", "--name", "one"])
    _ = try await workshop.shell("cp -a tree before; rm -r tree/d/e tree/a; echo new > tree/new")
    try await workshop.expect(0, ["import", "tree", "--prefix", "p/t", "--name", "two"])
    let mounted = try await MountedStore(workshop)
    for (state, tree) in [("one", "before"), ("two", "tree")] {
      // Before and after everything was looked at.
      for _ in 0..<2 {
        let outcome = try await workshop.shell(
          "rsync -aX --delete --checksum --dry-run --itemize-changes \(tree)/ m/states/\(state)/; ls m/states"
        )
        #expect(outcome.lines == ["one", "two"], "\(outcome.text) \(outcome.errors)")
      }
      let copied = try await workshop.shell(
        "rsync -aX m/states/\(state)/ copy-\(state)/ && rsync -aX --delete -n -i \(tree)/ copy-\(state)/")
      #expect(copied.status == 0 && copied.lines == [], "\(copied.text) \(copied.errors)")
    }
    #expect(
      try await workshop.shell(
        "cat m/states/one/a m/states/one/d/e/700; ls m/states/one/none m/states/none; readlink m/current/p/t/broken"
      )
      .lines == ["1", "700", "/nowhere"])
    // A file that was deleted since is not shown.
    try await workshop.expect(0, ["delete", "p/t/d/e/1"])
    _ = try await mounted.end()
    let again = try await MountedStore(workshop)
    #expect(
      try await workshop.shell("ls m/states/one/d/e | wc -l; ls m/states/two/d").lines == [
        "699", "b", "link", "\u{FFFD}",
      ])
    _ = try await again.end()
  }

  @Test("random reads by several threads and processes are right beside imports, deletions and gc")
  func random() async throws {
    let workshop = try await Workshop()
    let contents: [Data] = (0..<12).map { index in
      let bytes = noise(1 + index * index * 40_000, seed: UInt64(index))
      guard index % 3 == 0 else { return bytes }
      return Data(bytes.flatMap { [$0 & 1, $0 & 2, $0 & 3, 0] })
    }
    for (index, content) in contents.enumerated() { try workshop.write(content, to: "tree/f\(index)") }
    for index in 0..<60 {
      try workshop.write(noise(30_000, seed: UInt64(index + 500)), to: "other/g\(index)")
    }
    try await workshop.expect(0, ["import", "tree", "--prefix", "t/"])
    let mounted = try await MountedStore(workshop)
    let beside = try await workshop.start(
      [
        "-c",
        """
        while [ ! -e stop ]; do
          "$TOOL" import other --prefix o/ --force && "$TOOL" delete --prefix o/ && "$TOOL" gc || exit 1
          "$TOOL" import tree --prefix t/ --force && "$TOOL" gc || exit 1
          echo round >> rounds
        done
        """,
      ], environment: ["TOOL": Workshop.tool], program: "/bin/bash")
    let processes = try await (0..<3).asyncMap { _ in
      try await workshop.start(
        [
          "-c",
          "while [ ! -e stop ]; do for f in tree/*; do cmp $f m/current/t/${f#tree/} || exit 1; done; done",
        ],
        program: "/bin/bash")
    }
    let end = Date(timeIntervalSinceNow: 20)
    let wrong = try await withThrowingTaskGroup(of: (count: Int, wrong: [String]).self) { group in
      for thread in 0..<4 {
        group.addTask {
          var random = SplitMix64(seed: UInt64(thread) &+ 1_000)
          var wrong: [String] = []
          var count = 0
          while count < 2_500, Date() < end {
            let index = Int.random(in: contents.indices, using: &random)
            let file = try UncachedFile(mounted.path("current/t/f\(index)"))
            for _ in 0..<25 {
              let start = Int.random(in: 0...contents[index].count, using: &random)
              let length = Int.random(in: 1...(1 << Int.random(in: 0...18, using: &random)), using: &random)
              let stop = min(start + length, contents[index].count)
              let expected = contents[index].subdata(in: start..<stop)
              if file.read(start..<start + length) != expected {
                wrong.append("f\(index) \(start) \(length)")
              }
              count += 1
            }
            await Task.yield()
          }
          return (count, wrong)
        }
      }
      return try await group.reduce(into: (0, [])) { $0 = ($0.0 + $1.count, $0.1 + $1.wrong) }
    }
    try workshop.write(Data(), to: "stop")
    #expect(wrong.1.prefix(5) == [])
    print("random reads through the mount: \(wrong.0)")
    for process in processes + [beside] {
      let outcome = try await process.outcome()
      #expect(outcome.status == 0, "\(outcome.text) \(outcome.errors)")
    }
    #expect(try await workshop.shell("test -s rounds").status == 0)
    _ = try await mounted.end()
    try await workshop.expect(0, ["verify"])
  }

  @Test("a key that is replaced again and again reads as one of its versions, never as parts of two")
  func replaced() async throws {
    let workshop = try await Workshop()
    let contents = (0..<8).map { noise(150_000 + Int($0) * 70_001, seed: UInt64($0)) }
    for (index, content) in contents.enumerated() { try workshop.write(content, to: "c\(index)") }
    try await workshop.expect(0, ["put", "k", "c0"])
    let mounted = try await MountedStore(workshop)
    let writer = try await workshop.start(
      ["-c", "for i in {1..40}; do $TOOL put k c$((i % 8)) || exit 1; done; touch stop"],
      environment: ["TOOL": Workshop.tool], program: "/bin/bash")
    let known = Set(contents)
    var counts: [Data: Int] = [:]
    var failures: [String] = []
    while workshop.contents("stop") == nil, writer.isRunning, failures.count < 5 {
      do {
        // Another open file of the version before, read meanwhile, must not leave its bytes behind.
        let before = try UncachedFile(mounted.path("current/k"))
        _ = before.read(0..<100_000)
        let data = try UncachedFile(mounted.path("current/k")).read(0..<1_000_000)
        if let data, known.contains(data) {
          counts[data, default: 0] += 1
        } else {
          failures.append("\(data?.count ?? -1) bytes")
        }
        _ = before.read(0..<600_000)
      } catch { failures.append("\(error)") }
    }
    #expect(try await writer.outcome().status == 0)
    #expect(failures == [])
    #expect(counts.count > 1)
    try await Task.sleep(for: .seconds(1.1))
    #expect(try Data(contentsOf: URL(filePath: mounted.path("current/k"))) == contents[0])
    _ = try await mounted.end()
  }

  @Test("an open file stays readable after its key is deleted and collected; the name goes within a second")
  func lease() async throws {
    let workshop = try await Workshop()
    let content = noise(2_000_000, seed: 3)
    try await workshop.expect(0, ["put", "k"], input: content)
    let mounted = try await MountedStore(workshop)
    let file = try UncachedFile(mounted.path("current/k"))
    #expect(file.read(0..<10) == content.prefix(10))
    try await workshop.expect(0, ["delete", "k"])
    for _ in 0..<3 { try await workshop.expect(0, ["gc"]) }
    #expect(file.read(0..<2_000_000) == content)
    try await Task.sleep(for: .seconds(1.1))
    #expect(!FileManager.default.fileExists(atPath: mounted.path("current/k")))
    #expect(file.read(1_000_000..<2_000_000) == content[1_000_000...])
    _ = try await mounted.end()
    struct Collected: Decodable { var freedByteCount: Int }
    let collected = try await workshop.expect(0, ["gc", "--json"]).json(Collected.self)
    #expect(collected.first?.freedByteCount ?? 0 > 1_900_000, "the lease kept the blob until then")
  }

  @Test("a read of damaged bytes fails, the tool names the digest, and the rest can be read")
  func damaged() async throws {
    let workshop = try await Workshop()
    let content = noise(3_000_000, seed: 12)
    try await workshop.expect(0, ["put", "k"], input: content)
    try await workshop.expect(0, ["put", "good"], input: Data("good".utf8))
    _ = try await workshop.shell(
      """
      pack=$(ls -S store/packs/*.pack | head -1)
      printf '\\377\\000\\377\\000' | dd of=$pack bs=1 seek=2000000 conv=notrunc status=none
      """)
    let mounted = try await MountedStore(workshop)
    let outcome = try await workshop.shell("cat m/current/k > out; cat m/current/good")
    #expect(outcome.errors.contains("Input/output error") && outcome.text == "good")
    let out = try #require(workshop.contents("out"))
    #expect(out.count < content.count && content.starts(with: out))
    let file = try UncachedFile(mounted.path("current/k"))
    let parts = stride(from: 0, to: content.count, by: 4_096).map { start in
      (file.read(start..<start + 4_096), content[start..<min(start + 4_096, content.count)])
    }
    #expect(parts.allSatisfy { $0 == nil || $0 == $1 })
    #expect(parts.count { $0.0 == nil } > 0 && parts.count { $0.0 != nil } > parts.count / 2)
    let errors = try await mounted.end().errors
    #expect(errors.contains(/blake3:[0-9a-f]{64}/))
    #expect(errors.split(separator: "\n").count <= 4, "\(errors)")
  }

  @Test("that has lost a pack warns at once, and ends with 4 when it is unmounted")
  func lost() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "a"], input: Data("version one".utf8))
    try await workshop.expect(0, ["put", "a"], input: Data("version two".utf8))
    _ = try await workshop.shell("rm $(grep -l 'version two' store/packs/*.pack); rm -r store/catalog")
    let mounted = try await MountedStore(workshop)
    // An older version has come back.
    let outcome = try await workshop.shell("cat m/current/a && umount m")
    try #require(outcome.status == 0, "\(outcome.errors)")
    #expect(outcome.text == "version one")
    let ended = try await mounted.running.outcome()
    #expect(ended.status == 4)
    #expect(ended.errors.contains("blobtool repair --accept-loss"))
  }

  @Test(
    "ends with a signal, even while files are open",
    arguments: [(SIGINT, 130), (SIGTERM, 143)] as [(Int32, Int32)])
  func signals(_ signal: Int32, _ status: Int32) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: noise(500_000, seed: 1))
    for isBusy in [false, true] {
      let mounted = try await MountedStore(workshop)
      let file = isBusy ? try UncachedFile(mounted.path("current/k")) : nil
      let outcome = try await mounted.end(signal)
      #expect(outcome.status == status, "\(outcome.errors)")
      #expect(!mounted.isMounted)
      #expect(try FileManager.default.contentsOfDirectory(atPath: workshop.path("m")) == [])
      #expect(file?.read(0..<10) == nil)
    }
  }

  @Test(
    "ends with 0 when another program unmounts it",
    arguments: ["umount m", "fusermount3 -u m", "umount -l m"])
  func unmounted(_ command: String) async throws {
    let workshop = try await Workshop()
    let mounted = try await MountedStore(workshop)
    let outcome = try await workshop.shell("ls m && \(command)")
    try #require(outcome.status == 0, "\(outcome.errors)")
    #expect(outcome.lines == ["current", "states", "versions"])
    let ended = try await mounted.running.outcome()
    #expect(ended.status == 0)
    struct Line: Decodable { var folder: String }
    #expect(try ended.json(Line.self).first?.folder.hasSuffix("/m") == true)
  }

  @Test("that was killed leaves a mount without a process, which the tool refuses and umount removes")
  func killed() async throws {
    let workshop = try await Workshop()
    let mounted = try await MountedStore(workshop)
    _ = try await mounted.end(SIGKILL)
    #expect(mounted.isMounted)
    let again = try await workshop.expect(1, ["mount", "m"])
    #expect(again.errors.contains("whose process has ended: unmount it with"))
    #expect(try await workshop.shell("umount -l m").status == 0)
    _ = try await MountedStore(workshop).end()
  }

  @Test("is refused on a folder that is missing, not empty, no folder or the store's own")
  func refused() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data(), to: "full/file")
    try FileManager.default.createDirectory(
      atPath: workshop.path("store/in"), withIntermediateDirectories: false)
    for (folder, sentence) in [
      ("none", "There is no folder none: create it"), ("full", "full is not empty"),
      ("full/file", "full/file is not a folder"), ("store", "is the store's own folder, or in it"),
      ("store/in", "is the store's own folder, or in it"),
    ] {
      let errors = try await workshop.expect(1, ["mount", folder]).errors
      #expect(errors.contains(sentence) && errors.split(separator: "\n").count == 1, "\(errors)")
    }
    try await workshop.expect(64, ["mount", ""])
    try await workshop.expect(64, ["mount"])
  }

  @Test(
    "says what to do where the system has no FUSE, and shows a store that cannot be written",
    .enabled(if: Mounting.isAllowed, "nothing may be mounted here"))
  func namespaces() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: Data("bytes".utf8))
    try workshop.write(
      Data(
        """
        mkdir n; (unshare -m bash -c 'mount -t tmpfs none /dev && exec $TOOL mount n'); echo $?
        mount --bind store store && mount -o remount,bind,ro store && { touch store/x 2> /dev/null && exit 1; }
        $TOOL mount n 2> log & tool=$!
        until grep -q mounted log; do kill -0 $tool || exit 1; done
        cat n/current/k; echo; cat n/versions/k/*; echo; kill -INT $tool; wait $tool; echo $?
        """.utf8), to: "script")
    let outcome = try await workshop.shell("unshare -m bash ./script")
    #expect(outcome.lines == ["1", "bytes", "bytes", "130"], "\(outcome.errors)")
    #expect(outcome.errors.contains("has no /dev/fuse: load the kernel's module with `modprobe fuse`"))
  }
}

extension Sequence {
  fileprivate func asyncMap<T>(_ transform: (Element) async throws -> T) async rethrows -> [T] {
    var results: [T] = []
    for element in self { results.append(try await transform(element)) }
    return results
  }
}
