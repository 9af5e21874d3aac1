import Foundation
import Testing

/// A disk that is really full: a file system of a few megabytes, mounted for as long as the test runs.
@Suite("A full disk", .serialized, .enabled(if: Mounting.isAllowed, "nothing may be mounted here"))
struct FullDiskTests {
  /// Fills `full/`, and says on each line that begins with `!` what is wrong. The mount ends with its namespace.
  private static let script = #"""
    export BLOBTOOL_STORE=$PWD/full/store
    wrong() { echo "! $*"; }
    $TOOL init > /dev/null || wrong init
    count=0
    for i in $(seq 1 40); do
      $TOOL put k$i f$i > /dev/null 2> err; status=$?
      [ $status = 0 ] || break
      count=$i
    done
    [ $status = 1 ] || wrong "the put that found no room ended with $status"
    grep -qi "space" err || wrong "no word about space: $(cat err)"
    [ $(wc -l < err) = 1 ] || wrong "not one sentence: $(cat err)"
    grep -q "was not stored; free space with .blobtool delete. and .blobtool gc." err || wrong "no way out: $(cat err)"
    $TOOL put json f$((count + 1)) --json > out 2> err
    [ ! -s out ] && head -1 err | grep -q '"code":"noSpace"' || wrong "no JSON of the error: $(cat out err)"
    [ $count -gt 5 ] || wrong "only $count puts"
    # A writer that died in the middle, whose pack the next opening has to take in without room. What it puts is in the
    # store and is not dropped below: it may have been done before it was killed.
    $TOOL put dead f5 > /dev/null 2>&1 & sleep 0.02; kill -KILL $! 2> /dev/null; wait $! 2> /dev/null
    dd if=/dev/zero of=full/filler bs=1k 2> /dev/null
    for i in 1 $count; do $TOOL get k$i | cmp -s - f$i || wrong "k$i reads as other bytes"; done
    $TOOL verify > /dev/null || wrong "verify on the full disk: $?"
    $TOOL put more f2 > /dev/null 2>&1 && wrong "a put went through on the full disk"
    $TOOL get k1 -o full/out > /dev/null 2> err; [ $? = 1 ] || wrong "get -o on the full disk: $(cat err)"
    [ -z "$(ls -A full | grep -E 'partial|^out$')" ] || wrong "get -o left something"
    [ -e full/store/reserve ] || wrong "the reserve went before the drop"
    $TOOL delete k1 k2 k3 > /dev/null || wrong "delete on the full disk: $?"
    dd if=/dev/zero of=full/filler2 bs=1k 2> /dev/null
    before=$(du -sk full/store/packs | cut -f 1)
    $TOOL gc > /dev/null || wrong "gc on the full disk: $?"
    after=$(du -sk full/store/packs | cut -f 1)
    [ $after -lt $((before - 500)) ] || wrong "gc freed nothing: $before, $after"
    rm full/filler*
    $TOOL put again f1 > /dev/null || wrong "put after the gc: $?"
    $TOOL get again | cmp -s - f1 || wrong "what was put again reads as other bytes"
    $TOOL gc > /dev/null || wrong "gc: $?"
    [ -e full/store/reserve ] || wrong "the reserve was not put back"
    $TOOL verify > /dev/null || wrong "verify: $?"
    $TOOL get k1 > /dev/null 2>&1 && wrong "k1 is there still"
    for i in $(seq 4 $count); do $TOOL get k$i | cmp -s - f$i || wrong "k$i reads as other bytes at the end"; done
    """#

  @Test(
    "ends a put with one clear sentence, can be read, dropped from and collected, and then puts go on",
    arguments: [
      "mount -t tmpfs -o size=4m none full",
      "truncate -s 5M image && mkfs.ext4 -q -F -O ^has_journal -m 0 image && mount -o loop image full",
    ])
  func full(_ mount: String) async throws {
    let workshop = try await Workshop(hasStore: false)
    for index in 1...40 {
      try workshop.write(noise(250_000, seed: UInt64(index)), to: "f\(index)")
    }
    try workshop.write(Data(Self.script.utf8), to: "script")
    let outcome = try await workshop.shell(
      "mkdir full; unshare -m bash -c '{ \(mount); } 2> /dev/null || exit 77; source ./script'")
    // A loop device is not to be had everywhere.
    if outcome.status == 77 { return print("skipped: \(mount)") }
    #expect(outcome.lines.filter { $0.hasPrefix("!") } == [], "\(mount): \(outcome.errors)")
  }
}

extension FullDiskTests {
  /// An import that is longer than the disk.
  private static let importing = #"""
    export BLOBTOOL_STORE=$PWD/full/store
    wrong() { echo "! $*"; }
    $TOOL init > /dev/null || wrong init
    $TOOL import tree --json > out 2> err; status=$?
    [ $status = 1 ] || wrong "the import ended with $status: $(cat err)"
    [ ! -s out ] || wrong "a result: $(cat out)"
    count=$($TOOL list | wc -l)
    [ $count -gt 0 ] || wrong "nothing was stored"
    head -1 err | grep -q "\"code\":\"noSpace\".*\"files\":$count[,}]" || wrong "JSON of the error, $count: $(cat err)"
    tail -1 err | grep -q ": $count files of this import, .* are in the store; free space" || wrong "$count: $(cat err)"
    [ $(wc -l < err) = 2 ] || wrong "more than that: $(cat err)"
    """#

  @Test("says how much of an import is in the store, and how to go on")
  func importing() async throws {
    let workshop = try await Workshop(hasStore: false)
    for index in 1...80 { try workshop.write(noise(250_000, seed: UInt64(index)), to: "tree/f\(index)") }
    try workshop.write(Data(Self.importing.utf8), to: "script")
    let outcome = try await workshop.shell(
      "mkdir full; unshare -m bash -c 'mount -t tmpfs -o size=14m none full; source ./script'")
    #expect(outcome.lines.filter { $0.hasPrefix("!") } == [], "\(outcome.errors)")
  }

  @Test("ends an export with a sentence that says how to go on")
  func exporting() async throws {
    let workshop = try await Workshop()
    for index in 1...8 { try workshop.write(noise(900_000, seed: UInt64(index)), to: "tree/f\(index)") }
    try await workshop.expect(0, ["import", "tree"])
    let outcome = try await workshop.shell(
      "mkdir full; unshare -m bash -c 'mount -t tmpfs -o size=3m none full; BLOBTOOL_STORE=$PWD/store $TOOL export full'"
    )
    #expect(outcome.status == 1)
    #expect(outcome.errors.contains("free space there, or export to another disk"), "\(outcome.errors)")
    #expect(outcome.errors.split(separator: "\n").count == 1)
  }

  /// A copy that is longer than the target's disk. It commits every 64 MB.
  private static let copying = #"""
    wrong() { echo "! $*"; }
    $TOOL import tree > /dev/null || wrong import
    $TOOL init --store full/store > /dev/null || wrong init
    $TOOL copy $BLOBTOOL_STORE full/store --prefix f10 > /dev/null || wrong "copy of one key"
    $TOOL copy $BLOBTOOL_STORE full/store --json > out 2> err; status=$?
    [ $status = 1 ] || wrong "the copy ended with $status: $(cat err)"
    [ ! -s out ] || wrong "a result: $(cat out)"
    count=$($TOOL list --store full/store | wc -l)
    [ $count -gt 1 ] && [ $count -lt 30 ] || wrong "$count keys were copied"
    head -1 err | grep -q "\"code\":\"noSpace\".*\"keys\":$count[,}]" || wrong "JSON of the error, $count: $(cat err)"
    tail -1 err | grep -q ": $count keys of this copy, .* are in .*full/store; free space" || wrong "$count: $(cat err)"
    tail -1 err | grep -q "start the copy again" || wrong "no way out: $(cat err)"
    [ $(wc -l < err) = 2 ] || wrong "more than that: $(cat err)"
    $TOOL verify --store full/store > /dev/null || wrong "verify: $?"
    """#

  @Test("says how much of a copy is in the target, and how to go on")
  func copying() async throws {
    let workshop = try await Workshop()
    for index in 10..<40 { try workshop.write(noise(3_000_000, seed: UInt64(index)), to: "tree/f\(index)") }
    try workshop.write(Data(Self.copying.utf8), to: "script")
    let outcome = try await workshop.shell(
      "mkdir full; unshare -m bash -c 'mount -t tmpfs -o size=80m none full; source ./script'")
    #expect(outcome.lines.filter { $0.hasPrefix("!") } == [], "\(outcome.errors)")
  }

  /// A store with many chunks for its size, half of them garbage in packs of their own. Its disk is filled up to `$LEFT`
  /// kB. The reserve is there if `$RESERVE` says so. A collection that was killed left its packs retired.
  private static let collection = #"""
    export BLOBTOOL_STORE=$PWD/full/store
    wrong() { echo "! $*"; }
    $TOOL init --chunk-size 1024 > /dev/null || wrong init
    for i in 1 2 3; do $TOOL put k$i f$i > /dev/null || wrong "put $i"; done
    $TOOL put kept f4 > /dev/null || wrong "put of what is kept"
    $TOOL delete k1 k2 k3 > /dev/null || wrong "delete: $?"
    if [ $RETIRED = yes ]; then
      # A collection that is killed once it has retired packs.
      $TOOL gc > /dev/null 2>&1 & until compgen -G 'full/store/packs/*.gone' > /dev/null || ! kill -0 $!; do :; done 2> /dev/null
      kill -KILL $! 2> /dev/null; wait $! 2> /dev/null
      # It was quicker.
      compgen -G 'full/store/packs/*.gone' > /dev/null || exit 77
    fi
    [ $RESERVE = yes ] || rm full/store/reserve
    # Filled but for what is left.
    dd if=/dev/zero of=full/left bs=1k count=$LEFT 2> /dev/null
    dd if=/dev/zero of=full/filler bs=1k 2> /dev/null
    rm full/left
    before=$(du -sk full/store/packs | cut -f 1)
    $TOOL gc > out 2> err || wrong "gc: $? $(cat out err)"
    after=$(du -sk full/store/packs | cut -f 1)
    [ $after -lt $((before / 2)) ] || wrong "gc freed too little: $before, $after"
    ls full/store/packs | grep -q gone && wrong "a retired pack is there still"
    $TOOL get kept | cmp -s - f4 || wrong "what was kept reads as other bytes"
    rm full/filler
    $TOOL verify > /dev/null || wrong "verify: $?"
    $TOOL gc > /dev/null || wrong "gc: $?"
    [ -e full/store/reserve ] || wrong "the reserve was not put back"
    """#

  @Test(
    "is collected when the catalog is not tiny: retired packs give their space back before anything else needs room",
    arguments: ["LEFT=100 RESERVE=yes RETIRED=no", "LEFT=0 RESERVE=no RETIRED=yes"])
  func collection(_ situation: String) async throws {
    let workshop = try await Workshop(hasStore: false)
    for index in 1...4 {
      try workshop.write(noise(700_000, seed: UInt64(index)), to: "f\(index)")
    }
    try workshop.write(Data(Self.collection.utf8), to: "script")
    let outcome = try await workshop.shell(
      "mkdir full; unshare -m bash -c 'mount -t tmpfs -o size=10m none full; \(situation); source ./script'")
    if outcome.status == 77 { return print("skipped: \(situation)") }
    #expect(outcome.lines.filter { $0.hasPrefix("!") } == [], "\(situation): \(outcome.errors)")
  }
}

/// No file may become longer than the catalog is, so that what was put cannot be settled.
@Suite("A full catalog")
struct FullCatalogTests {
  private static let script = #"""
    wrong() { echo "! $*"; }
    for i in 1 2 3; do $TOOL put k$i file > /dev/null || wrong "put $i"; done
    catalog=$(find store -name data.mdb)
    trap '' XFSZ
    put=3
    for i in $(seq 4 40); do
      (ulimit -f $(($(wc -c < $catalog) / 1024)); $TOOL put k$i file > /dev/null 2> err)
      status=$?
      (ulimit -f $(($(wc -c < $catalog) / 1024)); $TOOL get k$i > out 2> /dev/null)
      found=$?
      if [ $status = 0 ]; then
        put=$((put + 1))
        [ $found = 0 ] && cmp -s out file || wrong "what was put is not there: $found"
      else
        [ $found = 3 ] || wrong "what could not be put is there: $found"
      fi
    done
    [ $($TOOL list | wc -l) = $put ] || wrong "put $put, listed: $($TOOL list | wc -l)"
    $TOOL put more file > /dev/null || wrong "put with room"
    $TOOL get more | cmp -s - file || wrong "what was put with room reads as other bytes"
    [ $($TOOL list | wc -l) = $((put + 1)) ] || wrong "listed after a put with room: $($TOOL list | wc -l)"
    $TOOL verify > /dev/null || wrong "verify: $?"
    """#

  @Test("takes a put as a whole and keeps it, or refuses it and has nothing of it")
  func put() async throws {
    let workshop = try await Workshop()
    try workshop.write(noise(3_000, seed: 1), to: "file")
    let outcome = try await workshop.shell(Self.script)
    #expect(outcome.lines.filter { $0.hasPrefix("!") } == [], "\(outcome.errors)")
  }
}

/// Whether this process may mount file systems, tried once.
enum Mounting {
  static let isAllowed: Bool = {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/bin/bash")
    process.arguments = ["-c", "unshare -m mount -t tmpfs -o size=1m none /tmp 2> /dev/null"]
    do { try process.run() } catch { return false }
    process.waitUntilExit()
    return process.terminationStatus == 0
  }()
}
