"""Measures the store and its peers side by side: run it as tools/bench."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import report
from command import run
from data import Data
from inside import Inside
from programs import Blobtool
from results import Results
from small_blobs import SmallBlobs
from whole_stores import WholeStores

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
ROWS = [
    "mixed", "photographs", "tree", "images", "ranges", "cold", "digest", "catalog", "growth", "releases", "icons",
    "documents",
]
QUICK_ROWS = ["mixed", "photographs", "tree", "images", "ranges", "cold", "digest", "growth"]
# Sets that show what is stored, and whose speed is of less interest: one round.
ONCE = {"releases", "icons", "documents", "catalog", "growth"}


class Session:
    """What one run of the benchmarks shares."""

    def __init__(self, options):
        self.here = HERE
        self.is_quick = options.quick
        self.runs = options.runs or (2 if options.quick else 3)
        self.rows = options.rows
        self.data = Data(options.data)
        self.results = Results()
        self.growth_counts = [10**4, 10**5] if options.quick else [10**4, 10**5, 10**6, 10**7]
        # Beside the data: on the same disk, and with room.
        remove_left_work(self.data.folder)
        self.work = Path(tempfile.mkdtemp(prefix=f"work-{os.getpid()}-", dir=self.data.folder))
        self.build_folder = self.data.folder / "build"
        self.start = time.monotonic()

    def say(self, text):
        print(f"[{time.monotonic() - self.start:6.0f} s] {text}", file=sys.stderr, flush=True)

    def build(self):
        """The release tool, the program that measures inside, and the small peers."""
        self.say("building: some minutes the first time")
        package = REPOSITORY / "tools/benchmarks/Package"
        swift = ["swift", "build", "-c", "release"]
        Blobtool.tool = self._built([*swift, "--product", "blobtool"], "blobtool")
        self.store_bench = self._built(
            [*swift, "--package-path", package, "--product", "StoreBench"], "StoreBench")
        self.build_folder.mkdir(exist_ok=True)
        self.small_peers = self.build_folder / "small_peers"
        run(["g++", "-std=c++17", "-O2", "-Wall", HERE / "small_peers.cpp", "-o", self.small_peers,
             "-lrocksdb", "-llmdb", "-lsqlite3"])
        environment = self.build_folder / "python"
        self.python = environment / "bin/python"
        if not self.python.exists():
            run([sys.executable, "-m", "venv", environment])
            run([self.python, "-m", "pip", "install", "--quiet", "diskcache"])

    @staticmethod
    def _built(words, name):
        done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
        if done.returncode != 0:
            sys.stderr.write(done.stdout + done.stderr)
            raise SystemExit(f"tools/bench: {name} could not be built.")
        place = subprocess.run([*words, "--show-bin-path"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return Path(place.stdout.strip()) / name

    def measure(self):
        """Round after round, each row in every round, so that what disturbs the machine disturbs all of them."""
        stores, small, inside = WholeStores(self), SmallBlobs(self), Inside(self)
        work = {
            "mixed": stores.mixed, "photographs": stores.photographs, "tree": stores.tree, "images": small.images,
            "ranges": inside.ranges, "cold": inside.cold, "digest": inside.digest, "catalog": inside.catalog,
            "growth": inside.growth, "releases": stores.releases, "icons": stores.icons,
            "documents": stores.documents,
        }
        for round_number in range(self.runs):
            for row in self.rows:
                if round_number == 0 or row not in ONCE:
                    self.say(f"round {round_number + 1} of {self.runs}: {row}")
                    work[row](round_number)

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)


def parse():
    parser = argparse.ArgumentParser(
        prog="tools/bench", description="Measures the store and its peers side by side on the same bytes.")
    parser.add_argument("--quick", action="store_true", help="a few minutes: less data, fewer peers, two rounds")
    parser.add_argument("--rows", help=f"only these, with commas between: {', '.join(ROWS)}")
    parser.add_argument("--runs", type=int, help="how many rounds (3; with --quick 2)")
    parser.add_argument("--output", default="bench-report", help="folder of the report (%(default)s)")
    parser.add_argument(
        "--data", default=os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "blob-storage-bench"),
        help="folder of the data and of the work, with 40 GB free (%(default)s)")
    parser.add_argument("--page", action="store_true", help="also renew the numbers on the page Performance")
    parser.add_argument("--report-only", action="store_true", help="write the report of --output anew, measure nothing")
    options = parser.parse_args()
    rows = options.rows.split(",") if options.rows else QUICK_ROWS if options.quick else ROWS
    unknown = [row for row in rows if row not in ROWS]
    if unknown:
        parser.error(f"there is no row {unknown[0]}; there are {', '.join(ROWS)}")
    options.rows = rows
    return options


def command(options):
    """What to type for the same run, without the folders of this machine."""
    words = ["tools/bench"]
    if options.quick:
        words.append("--quick")
    if options.rows != (QUICK_ROWS if options.quick else ROWS):
        words += ["--rows", ",".join(options.rows)]
    if options.runs:
        words += ["--runs", str(options.runs)]
    return " ".join(words)


def remove_left_work(folder):
    """Removes what runs that were killed have left."""
    for left in folder.glob("work-*"):
        if not Path(f"/proc/{left.name.split('-')[1]}").exists():
            shutil.rmtree(left, ignore_errors=True)


def main():
    options = parse()
    output = Path(options.output).absolute()
    output.mkdir(parents=True, exist_ok=True)
    if options.report_only:
        show(options, output, Results.load(output / "results.json"))
        return
    session = Session(options)
    try:
        results = measure(session, options)
        results.save(output / "results.json")
        show(options, output, results)
    finally:
        session.say("cleaning up")
        session.close()


def measure(session, options):
    needed = 10 if options.quick else 40
    free = shutil.disk_usage(session.work).free
    if free < needed * 10**9:
        raise SystemExit(f"tools/bench: {session.work} has {free // 10**9} GB free; {needed} GB are needed.")
    session.build()
    results = session.results
    results.machine = machine.describe(session.work)
    results.versions = machine.versions(REPOSITORY)
    results.options = {
        "quick": options.quick, "runs": session.runs, "rows": session.rows, "command": command(options),
    }
    session.measure()
    results.options["seconds"] = round(time.monotonic() - session.start)
    return results


def show(options, output, results):
    report.write(results, output)
    if options.page:
        report.renew_page(results, REPOSITORY)
    print((output / "report.md").read_text(), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
