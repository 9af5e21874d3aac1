import Foundation
import Testing

/// Names, links and permissions that may have been chosen to do harm.
@Suite struct OddNameTests {
  @Test("file names of every byte come back as they were, also those that are no UTF-8")
  func everyByte() async throws {
    let workshop = try await Workshop()
    try FileManager.default.createDirectory(atPath: workshop.path("tree"), withIntermediateDirectories: true)
    for byte in UInt8(1)...255 where byte != UInt8(ascii: "/") {
      for tail in [[], [byte], [UInt8(ascii: "x")]] as [[UInt8]] {
        let name = [byte] + tail
        guard name != Array(".".utf8), name != Array("..".utf8) else { continue }
        let path = Array((workshop.path("tree") + "/").utf8) + name + [0]
        let file = path.map(CChar.init(bitPattern:)).withUnsafeBufferPointer { fopen($0.baseAddress!, "w") }
        let opened = try #require(file)
        fputs("\(name)", opened)
        fclose(opened)
      }
    }
    let line = try #require(
      try await workshop.expect(0, ["import", "tree", "--json"]).json(ImportLine.self).first)
    #expect(line.skipped.isEmpty)
    let keys = try await workshop.expect(0, ["list", "--json"]).json(ListLine.self).map(\.key)
    #expect(keys.count == line.files)
    #expect(Set(keys).isSuperset(of: ["\n", "\u{1b}", "\\", "\"\"", ".x", "~", "*", "-", "\u{7f}x"]))
    try await workshop.expect(0, ["export", "out"])
    #expect(try await workshop.shell("diff -r tree out").bytes.isEmpty)
    // As arguments, too.
    for key in ["\n", "\u{1b}", "*", "\\"] {
      let bytes = try await workshop.expect(0, ["get", "--", key]).bytes
      #expect(bytes == Data("[\(Array(key.utf8)[0])]".utf8), "\(key.debugDescription)")
    }
    let text = try await workshop.expect(0, ["list"]).text
    #expect(!text.unicodeScalars.contains { $0.value < 32 && $0 != "\n" }, "a terminal would obey it")
  }

  @Test(
    "new files are 0600 and new folders 0700, whatever the umask would allow beyond",
    arguments: ["000", "077"])
  func permissions(_ umask: String) async throws {
    let workshop = try await Workshop(hasStore: false)
    let outcome = try await workshop.shell(
      """
      umask \(umask); mkdir parent; chmod 1777 parent; export BLOBTOOL_STORE=$PWD/parent/store
      $TOOL init && head -c 500000 /dev/zero | $TOOL put zeros && echo 1 | $TOOL put k/one || exit 1
      $TOOL delete k/one && $TOOL gc && echo 1 | $TOOL put k/one && $TOOL export out || exit 1
      find parent/store out -type f ! -perm 600; find parent/store out/k -type d ! -perm 700
      """)
    #expect(outcome.status == 0, "\(outcome.errors)")
    #expect(outcome.lines.filter { $0.hasPrefix("parent/") || $0.hasPrefix("out/") } == [])
  }

  @Test("an umask that allows less is obeyed")
  func narrowUmask() async throws {
    let workshop = try await Workshop(hasStore: false)
    let outcome = try await workshop.shell(
      "umask 0277; $TOOL init > /dev/null 2>&1; stat -c %a $BLOBTOOL_STORE")
    #expect(outcome.lines == ["500"])
    _ = try await workshop.shell("chmod -R u+w $BLOBTOOL_STORE")
  }

  @Test(
    "a symbolic link in a store is refused, or replaced, and nothing is written behind it",
    arguments: [
      "packs", "leases", "catalog", "store", "gc.lock", "reserve", "catalog/lock", "catalog/state.new",
      "catalog/g*",
      "catalog/g*/data.mdb", "catalog/g*/lock.mdb", "set-aside", "packs/*.pack",
    ])
  func linksInStore(_ name: String) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: noise(10_000, seed: 1))
    let outcome = try await workshop.shell(
      """
      cd $BLOBTOOL_STORE; mkdir -p ../outside/folder; echo untouched > ../outside/file
      place=$(ls -d \(name) 2> /dev/null || echo \(name))
      target=file; [ -d $place ] && target=folder; [ $place = set-aside ] && target=folder
      # What is behind the link is what was there, so that only the link is to be seen.
      [ -d $place ] && cp -a $place/. ../outside/folder; [ -f $place ] && cp -a $place ../outside/file
      rm -rf $place; ln -s $(realpath ../outside)/$target $place
      (cd ../outside && find . -type f -exec md5sum {} + | sort; find .) > ../before
      echo new | $TOOL put other; echo "put $?"; $TOOL delete k; $TOOL gc; $TOOL repair
      (cd ../outside && find . -type f -exec md5sum {} + | sort; find .) > ../after
      diff ../before ../after > ../changes || echo changed
      """)
    #expect(!outcome.text.contains("changed"), "\(name): \(outcome.errors)")
    #expect(outcome.lines.contains { ["put 0", "put 1", "put 4"].contains($0) }, "\(name): \(outcome.text)")
  }

  @Test(
    "symbolic links in an export's folder are not followed, for folders, files and temporary names; --overwrite replaces them"
  )
  func linksInExport() async throws {
    let workshop = try await Workshop()
    for key in ["a/b", "file", "c/d/e"] {
      try await workshop.expect(0, ["put", key], input: Data("new".utf8))
    }
    let outcome = try await workshop.shell(
      """
      mkdir -p outside out/c; echo untouched > outside/file
      ln -s $PWD/outside out/a; ln -s $PWD/outside/file out/file; ln -s $PWD/outside out/c/d
      $TOOL export out -q > /dev/null 2>&1; echo $?; ls -A outside; test -L out/a && test -L out/c/d && test -L out/file && echo links
      $TOOL export out --overwrite -q > /dev/null; echo $?
      cat out/file out/a/b out/c/d/e; echo; cat outside/file; ls -A outside
      """)
    #expect(
      outcome.text == "1\nfile\nlinks\n0\nnewnewnew\nuntouched\nfile\n", "\(outcome.text) \(outcome.errors)")
  }

  @Test("symbolic links in what is imported are not followed, and the tree may hang on one")
  func linksInImport() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell(
      """
      mkdir -p secret real/sub; echo secret > secret/file; echo fine > real/sub/fine
      ln -s ../secret real/folder; ln -s ../secret/file real/file; ln -s . real/loop; ln -s real tree
      """)
    let outcome = try await workshop.expect(0, ["import", "tree", "--json", "--no-attributes"])
    #expect(try outcome.json(ImportLine.self).first?.skipped.count == 3)
    #expect(try await workshop.expect(0, ["list", "--json"]).json(ListLine.self).map(\.key) == ["sub/fine"])
    try await workshop.expect(0, ["import", "tree"])
    let keys = try await workshop.expect(0, ["list", "--json"]).json(ListLine.self).map(\.key)
    #expect(keys == ["file", "folder", "loop", "sub/fine"])
    #expect(try await workshop.expect(0, ["get", "file"]).text == "../secret/file")
  }

  @Test("names that differ in bytes alone are two names: of files in lists, states, holds and patterns")
  func alike() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(
      #"""
      one=$'caf\xc3\xa9'; two=$'cafe\xcc\x81'; here=$PWD; mkdir tree; echo 1 > tree/$one; echo 2 > tree/$two
      import() { $TOOL import "$@" -q > /dev/null 2>> "$here/errors"; echo $?; }
      { printf '%s/tree/%s\0' "$here" $one; cd /; printf '%s/tree/%s\0' "${here#/}" $two; } > list; cd "$here"
      cd /; import --files-from "$here/list" -0 --prefix l/; cd "$here"; $TOOL list l/ -0 | tr '\0' '\n' | wc -l
      cd tree; printf '%s\0%s\0' $one $two > ../list; import --files-from ../list -0 --prefix m/; cd ..; $TOOL list m/ -0 | tr '\0' '\n' | wc -l
      import tree --prefix n/ --exclude $two --name $one; $TOOL list n/ --at $one -0 | tr '\0' '\n' | grep -c caf
      import tree --prefix n/ --name $two; $TOOL list n/ --at $two -0 | tr '\0' '\n' | grep -c caf
      import tree --prefix n/ --name $'a/\xcc\x81'; grep -c 'no slash' errors
      $TOOL hold $two $one --json | grep -c '"state"'; $TOOL hold $one $two --json | grep -c $one; $TOOL holds | wc -l
      mkdir -p marks/d; echo 3 > marks/d/$'\xcc\x81x'; import marks --prefix o/; $TOOL find $'\xcc\x81x' | wc -l; $TOOL find $'*/\xcc\x81x' | wc -l
      """#)
    #expect(
      outcome.lines == [
        "0", "2", "0", "2", "0", "1", "0", "2", "1", "1", "1", "1", "2", "0", "1", "1",
      ], "\(outcome.text) \(outcome.errors)")
  }
}
