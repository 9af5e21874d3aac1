"""Where the time of each kind of work goes: shares of processor time, by perf. A table in Markdown.

usage: tools/benchmarks/profile.py [--data DIRECTORY] [--rows ROW,...]

Needs perf (Debian: linux-perf), the data of tools/bench, and what that has built.
"""

import argparse
import collections
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
TOOL = REPOSITORY / ".build/release/blobtool"
INSIDE = REPOSITORY / "tools/benchmarks/Package/.build/release/StoreBench"
# The first that fits names the part.
PARTS = [
    ("encoding and decoding", lambda symbol, image: "libzstd" in image),
    ("catalog", lambda symbol, image: "liblmdb" in image),
    ("system", lambda symbol, image: "kernel" in image or image.startswith("[")),
    ("hashing", lambda symbol, image: "blake3" in symbol or re.match(r"(compress|hash_many|tree_)", symbol)),
    ("cutting", lambda symbol, image: "gear" in symbol),
    ("features", lambda symbol, image: "sample_in" in symbol or "super_features" in symbol),
    ("memory", lambda symbol, image: re.search(r"malloc|free|swift_|[Aa]lloc|memmove|memcpy|memset", symbol)),
    ("rest", lambda symbol, image: True),
]


def shares(words):
    """The share of each part in the samples of one run."""
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(
            ["perf", "record", "-q", "-F", "1499", "-o", file.name, *map(str, words)], check=True, capture_output=True)
        text = subprocess.run(
            ["perf", "script", "-i", file.name, "-F", "ip,sym,dso"], check=True, capture_output=True, text=True).stdout
    counts = collections.Counter()
    for line in text.splitlines():
        if match := re.match(r"\s*[0-9a-f]+\s+(.*)\s+\(([^)]*)\)\s*$", line):
            counts[next(name for name, fits in PARTS if fits(*match.groups()))] += 1
    total = max(sum(counts.values()), 1)
    return {name: count / total for name, count in counts.items()}


class Work:
    """Makes what a row needs in a folder of its own, and says what to run."""

    def __init__(self, data, folder):
        self.data, self.folder = data, folder
        self.count = 0

    def store(self, *sources):
        self.count += 1
        store = self.folder / str(self.count)
        subprocess.run([TOOL, "init", "--store", store], check=True, capture_output=True)
        if sources:
            self.tool("import", store, *sources)
        return store

    def tool(self, verb, store, *words):
        subprocess.run([TOOL, verb, "--store", store, *words], check=True, capture_output=True)

    def images(self, *words):
        paths = sorted(str(path) for path in (self.data / "images").iterdir())
        listed = self.folder / "images.txt"
        listed.write_text("".join(f"{path}\n" for path in paths))
        self.count += 1
        return [INSIDE, "images", "--list", listed, "--order", listed, "--store", self.folder / str(self.count), *words]

    def rows(self):
        mixed, photographs, tree = self.data / "mixed.bin", self.data / "photographs", self.data / "tree"
        imports = lambda store, *words: [TOOL, "import", "--store", store, *words]
        return {
            "import of the mixed file": lambda: imports(self.store(), mixed),
            "import of photographs": lambda: imports(self.store(), photographs),
            "import of 20,000 small files": lambda: imports(self.store(), tree),
            "import again, read in full": lambda: imports(self.store(mixed), "--force", mixed),
            "read and discarded": lambda: [TOOL, "get", "--store", self.store(mixed), mixed.name],
            "verify": lambda: [TOOL, "verify", "--store", self.store(mixed)],
            "export": lambda: [TOOL, "export", "--store", self.store(mixed), self.folder / "exported"],
            "10,000 images put, then got": lambda: self.images(),
            "the same, durable each": lambda: self.images("--durable"),
            "ranges of 64 KiB, compressible": lambda: [
                INSIDE, "range", "--store", self.store(mixed), "--key", mixed.name, "--count", "20000"],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path,
        default=Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "blob-storage-bench")
    parser.add_argument("--rows", help="only rows whose names contain one of these, with commas between")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="profile-", dir=options.data))
    names = [name for name, _ in PARTS]
    print("| work | " + " | ".join(names) + " |")
    print("| --- |" + " ---: |" * len(names))
    try:
        for row, words in Work(options.data, folder).rows().items():
            if options.rows and not any(part in row for part in options.rows.split(",")):
                continue
            found = shares(words())
            print(f"| {row} | " + " | ".join(f"{100 * found.get(name, 0):.0f} %" for name in names) + " |", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
