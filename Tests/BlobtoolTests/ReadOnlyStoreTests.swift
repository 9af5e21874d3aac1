import Foundation
import Testing

/// A store that this process may only read.
@Suite("A store that cannot be written", .serialized)
struct ReadOnlyStoreTests {
  /// Starts a program without root's right to pass over permissions; of util-linux, on every Debian.
  static let setpriv = "/usr/bin/setpriv"
  static let dropping =
    getuid() == 0 ? "\(setpriv) --bounding-set=-dac_override,-dac_read_search,-fowner" : ""
  static let canDrop = getuid() != 0 || FileManager.default.isExecutableFile(atPath: setpriv)

  /// Tries every command on `$BLOBTOOL_STORE`, and says on each line that begins with `!` what is wrong.
  private static let commands = #"""
    wrong() { echo "! $*"; }
    reads() { $RUN $TOOL "$@" > out 2> err || wrong "$1 ended with $?: $(cat err)"; }
    fails() {
      $RUN $TOOL "$@" > out 2> err < f1 && wrong "$1 went through"
      [ $(wc -l < err) = 1 ] || wrong "$1 does not answer with one sentence: $(cat err)"
      grep -Eq 'Read-only|Permission denied' err || wrong "$1: $(cat err)"
      grep -Eq 'only read the store; run .* as its owner|mount its file system writable' err || wrong "$1: $(cat err)"
    }
    reads get k1; cmp -s out f1 || wrong "k1 reads as other bytes"
    reads get dead; cmp -s out f2 || wrong "what a killed writer put reads as other bytes"
    reads get gone/3; cmp -s out f3 || wrong "gone/3 reads as other bytes"
    reads list; [ $(grep -c . out) -ge 3 ] || wrong "list: $(cat out)"
    reads versions k1; [ $(grep -c . out) -ge 2 ] || wrong "versions: $(cat out)"
    reads info k1
    reads why k1
    reads stats
    reads verify
    reads verify --quick
    for i in 1 2; do reads verify --max-age 1d; grep -Eq 'due +[1-9]' out || wrong "nothing is due: $(cat out)"; done
    reads report --output report.html
    reads export gone/ out-tree --strip gone/; cmp -s out-tree/3 f3 || wrong "what was exported has other bytes"
    rm -rf copy; $TOOL init --store copy > /dev/null
    reads copy "$BLOBTOOL_STORE" copy
    $TOOL get --store copy k1 | cmp -s - f1 || wrong "what was copied reads as other bytes"
    fails put k9 -
    fails delete k1
    fails keep --up-to 0 k1
    fails import tree
    fails gc
    fails repair
    """#

  private static let setUp = #"""
    $TOOL put k1 f2 --archive > /dev/null && $TOOL put k1 f1 --archive > /dev/null
    $TOOL put gone/3 f3 > /dev/null
    $TOOL put dead f2 > /dev/null
    """#

  private func workshop() async throws -> Workshop {
    let workshop = try await Workshop(hasStore: false)
    for index in 1...3 { try workshop.write(noise(150_000, seed: UInt64(index)), to: "f\(index)") }
    try workshop.write(Data("x".utf8), to: "tree/x")
    try workshop.write(Data(Self.setUp.utf8), to: "set-up")
    try workshop.write(Data(Self.commands.utf8), to: "commands")
    return workshop
  }

  private func expectNothingWrong(_ outcome: Outcome, _ name: String) {
    if outcome.status == 77 { return print("skipped: \(name)") }
    #expect(outcome.status == 0 && outcome.lines.last == "done", "\(name): \(outcome.text) \(outcome.errors)")
    #expect(outcome.lines.filter { $0.hasPrefix("!") } == [], "\(name)")
  }

  @Test(
    "because of its permissions can be read whole, and changes fail with a sentence",
    .enabled(if: canDrop, "root may write anywhere"), arguments: [true, false])
  func permissions(_ isClean: Bool) async throws {
    let workshop = try await workshop()
    let outcome = try await workshop.shell(
      """
      $TOOL init > /dev/null; source ./set-up
      \(isClean ? ":" : "sed -i 's/clean/another/' store/catalog/state")
      chmod -R a-w store
      export RUN="\(Self.dropping)"; source ./commands
      chmod -R u+w store
      $TOOL put k1 f3 > /dev/null || wrong "put afterwards"
      $TOOL verify > /dev/null || wrong "verify afterwards"
      echo done
      """)
    expectNothingWrong(outcome, "permissions")
  }

  @Test(
    "because of its mount can be read whole, and changes fail with a sentence",
    .enabled(if: Mounting.isAllowed, "nothing may be mounted here"),
    arguments: [
      "mount --bind there there && mount -o remount,bind,ro there",
      "mount -o remount,ro there",
    ])
  func mounted(_ change: String) async throws {
    let workshop = try await workshop()
    try workshop.write(
      Data(
        """
        mount -t tmpfs -o size=40m none there 2> /dev/null || exit 77
        export BLOBTOOL_STORE=$PWD/there/store
        $TOOL init > /dev/null; source ./set-up
        # It was in use when it became unwritable.
        sed -i 's/clean/another/' there/store/catalog/state
        { \(change); } || exit 77
        source ./commands
        echo done
        """.utf8), to: "script")
    let outcome = try await workshop.shell("mkdir there; unshare -m bash ./script")
    expectNothingWrong(outcome, change)
  }

  @Test(
    "by other users than its owner still belongs to its owner after root's commands",
    .enabled(
      if: getuid() == 0 && FileManager.default.isExecutableFile(atPath: setpriv), "only root can try this"))
  func owner() async throws {
    let workshop = try await workshop()
    let outcome = try await workshop.shell(
      """
      wrong() { echo "! $*"; }
      chmod 755 . && mkdir home && chown 65534:65534 home && cd home && export BLOBTOOL_STORE=$PWD/store
      own="\(Self.setpriv) --reuid 65534 --regid 65534 --clear-groups"
      $own $TOOL init > /dev/null || wrong init
      $own $TOOL put k1 - < ../f1 > /dev/null || wrong put
      $TOOL put k2 ../f2 > /dev/null || wrong "root's put"
      $TOOL delete k1 > /dev/null || wrong "root's delete"
      $TOOL gc > /dev/null || wrong "root's gc"
      rm -r store/catalog; $TOOL list > /dev/null || wrong "root's list"
      [ -z "$(find store -not -uid 65534)" ] || wrong "not the owner's: $(find store -not -uid 65534)"
      $own $TOOL get k2 | cmp -s - ../f2 || wrong "k2 reads as other bytes"
      $own $TOOL put k3 - < ../f3 > /dev/null || wrong "the owner's put"
      $own $TOOL gc > /dev/null || wrong "the owner's gc"
      $own $TOOL verify > /dev/null || wrong "the owner's verify"
      echo done
      """)
    expectNothingWrong(outcome, "owner")
  }
}
