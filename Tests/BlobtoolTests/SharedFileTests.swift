import Foundation
import Testing

/// A copy of a store that shares its files by hard links is a store of its own: neither changes the other.
@Suite("A copy that shares files")
struct SharedFileTests {
  /// Changes a store and its copy in turn. Says on each line that begins with `!` what is wrong.
  private static let script = #"""
    wrong() { echo "! $*"; }
    in_store() { store=$1; shift; BLOBTOOL_STORE=$PWD/$store $TOOL "$@"; }
    # All bytes of a store, but for those that only running programs need.
    sums() { (cd $1 && find . -type f | sort | xargs sha256sum); }
    for i in 1 2 3; do in_store store put k$i f$i || wrong "put $i"; done
    in_store store hold add held --key k1 > /dev/null 2>&1
    COPY || wrong "the copy"
    for i in 1 2 3; do in_store copy get k$i | cmp -s - f$i || wrong "k$i of the copy"; done
    sums copy > before
    in_store store put new f4 || wrong "put new"
    in_store store delete k2 || wrong "delete k2"
    in_store store verify --max-age 1h > /dev/null || wrong "verify of the store"
    in_store store gc > /dev/null || wrong "gc of the store"
    sums copy | diff before - > changed || wrong "the store has changed the copy: $(cat changed)"
    in_store copy get new > /dev/null 2>&1; [ $? = 3 ] || wrong "new is in the copy"
    in_store copy verify > out 2>&1 || wrong "verify of the copy: $(cat out)"
    sums store > before
    in_store copy put other f5 || wrong "put other"
    in_store copy delete k1 k3 || wrong "delete in the copy"
    in_store copy repair --accept-loss > out 2>&1 || wrong "repair of the copy: $(cat out)"
    in_store copy gc > out || wrong "gc of the copy: $(cat out)"
    in_store copy verify > out 2>&1 || wrong "verify of the copy at the end: $(cat out)"
    sums store | diff before - > changed || wrong "the copy has changed the store: $(cat changed)"
    in_store store verify > out 2>&1 || wrong "verify of the store at the end: $(cat out)"
    in_store store repair > out 2>&1 || wrong "repair of the store: $(cat out)"
    [ "$(in_store store list | awk '{print $NF}' | sort | xargs)" = "k1 k3 new" ] || wrong "the store has $(in_store store list)"
    [ "$(in_store copy list | awk '{print $NF}' | sort | xargs)" = "k2 other" ] || wrong "the copy has $(in_store copy list)"
    in_store store get new | cmp -s - f4 || wrong "new reads as other bytes"
    in_store copy get k2 | cmp -s - f2 || wrong "k2 of the copy reads as other bytes"
    """#

  @Test(
    "stays as it is while the store is changed, and the store while the copy is",
    arguments: [
      "cp -al store copy", "rsync -a --link-dest=$PWD/store/ store/ copy/",
      // The copy takes the store's place.
      "cp -al store copy && mv store was && mv copy store && mv was copy",
      // A copy that was put back beside its links.
      "cp -al store kept && rm -r store && cp -al kept store && mv kept copy",
      // One copy of each kind: the links of the second lead to the first.
      "cp -a store first && rsync -a --link-dest=$PWD/first/ store/ copy/ && rm -r store && mv first store",
    ])
  func eachFromOther(_ copy: String) async throws {
    let workshop = try await Workshop()
    if copy.contains("rsync"), try await workshop.shell("command -v rsync").status != 0 {
      return print("skipped: there is no rsync")
    }
    for index in 1...5 { try workshop.write(noise(100_000, seed: UInt64(index)), to: "f\(index)") }
    let script = Self.script.replacingOccurrences(of: "COPY", with: "{ \(copy); }")
    let outcome = try await workshop.shell(script)
    #expect(outcome.lines.filter { $0.hasPrefix("!") } == [], "\(copy): \(outcome.errors)")
    #expect(outcome.status == 0)
  }
}

/// A store below an overlay, where the system refuses to rename folders, and a file gets another inode with its first
/// change.
@Suite("A store below an overlay", .enabled(if: Mounting.isAllowed, "nothing may be mounted here"))
struct OverlayTests {
  private static let script = #"""
    wrong() { echo "! $*"; }
    export BLOBTOOL_STORE=$PWD/merged/store
    for round in 1 2 3; do
      for i in 1 2; do $TOOL get k$i | cmp -s - f$i || wrong "get k$i in round $round"; done
      $TOOL put new$round f3 || wrong "put in round $round"
      $TOOL get new$round | cmp -s - f3 || wrong "get new$round"
      $TOOL verify > out 2>&1 || wrong "verify in round $round: $(cat out)"
      if [ $round = 2 ]; then
        rm -r merged/store/catalog/state
        $TOOL delete k2 > out 2>&1 || wrong "delete: $(cat out)"
        $TOOL gc > out 2>&1 || wrong "gc: $(cat out)"
        $TOOL put k2 f2 || wrong "put again"
        $TOOL repair > out 2>&1 || wrong "repair: $(cat out)"
      fi
    done
    [ $($TOOL list | wc -l) = 5 ] || wrong "the keys are $($TOOL list)"
    """#

  @Test(
    "is used, collected and repaired, also after its writer was killed and on another file system",
    arguments: [false, true], [false, true])
  func overlay(isKilled: Bool, isOther: Bool) async throws {
    let workshop = try await Workshop(hasStore: false)
    for index in 1...3 { try workshop.write(noise(300_000, seed: UInt64(index)), to: "f\(index)") }
    try workshop.write(noise(4_000_000, seed: 4), to: "f4")
    // A killed writer leaves a catalog that is not clean, and a pack that is still open.
    let filling = """
      mkdir -p lower merged top; export BLOBTOOL_STORE=$PWD/lower/store
      $TOOL init > /dev/null && $TOOL put k1 f1 && $TOOL put k2 f2 || exit 1
      if \(isKilled); then
        { cat f4; exec sleep 600; } | $TOOL put killed - &
        while [ $(ls lower/store/packs | wc -l) -lt 3 ]; do sleep 0.01; done
        kill -KILL %1; wait 2> /dev/null
      fi
      """
    try workshop.write(Data(Self.script.utf8), to: "script")
    let outcome = try await workshop.shell(
      """
      \(filling)
      unshare -m bash -c '{ \(isOther ? "mount -t tmpfs none top &&" : "") mkdir top/up top/work \
      && mount -t overlay none -o lowerdir=lower,upperdir=top/up,workdir=top/work merged; } 2> /dev/null || exit 77
      source ./script'
      """)
    if outcome.status == 77 { return print("skipped: there is no overlay") }
    #expect(outcome.lines.filter { $0.hasPrefix("!") } == [], "\(outcome.errors)")
    #expect(outcome.status == 0)
  }
}
