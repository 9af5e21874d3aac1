"""Whole stores: what programs are told to import, import again, read, verify and export, and the rows of that."""

import re
import shlex
import shutil
from pathlib import Path

from core import OURS, row, settle, stored
from data import byte_count

ZSTD, PLAIN, OFF = "zstd -3 -T2", "plain bytes", f"{OURS}, similarity off"
UNIQUE = f"{ZSTD}, unique files"
LONG, FAST = "zstd -9 --long=27", f"{OURS}, level fast"
# A step that ends in / is for folders. `again` reads everything in full; `next` imports the next versions of the same
# keys, `version` archives a file under one key. The limits do what any store has to do, and nothing else.
COMMANDS = {
    OURS: """
        init blobtool init
        import blobtool import {source}
        again blobtool import --force {source}
        edited blobtool import {edited}
        read blobtool get {name}
        verify blobtool verify
        export blobtool export {name} {to}
        export/ blobtool export {to}
        next blobtool import --archive {source}
        version blobtool put source.tar {source} --archive
        recompress blobtool gc --recompress""",
    "restic": """
        init restic --quiet init
        import restic --quiet backup {source}
        again restic --quiet backup --force {source}
        edited restic --quiet backup {edited}
        read restic --quiet dump --path {source} latest {source}
        verify restic --quiet check --read-data
        export restic --quiet restore latest --path {source} --target {to}
        next cd {source} && restic --quiet backup --no-cache .
        version restic --quiet backup --no-cache {source}""",
    "borg": """
        init borg init --encryption none
        import borg create --compression zstd,3 ::first {source}
        again borg create --compression zstd,3 --files-cache disabled ::second {source}
        edited borg create --compression zstd,3 ::edited {edited}
        read borg extract --stdout ::first
        verify borg check --verify-data
        export cd {to} && borg extract ::first""",
    ZSTD: """
        import zstd -q -3 -T2 -c {source} > {store}
        import/ tar -C {source} -cf - . | zstd -q -3 -T2 -c > {store}
        read zstd -q -d -c {store}
        verify zstd -q -t {store}
        export zstd -q -d -c {store} > {to}/exported
        export/ zstd -q -d -c {store} | tar -C {to} -xf -""",
    PLAIN: """
        import dd if={source} of={store} bs=1M conv=fdatasync status=none
        import/ tar -C {source} -cf - . | dd of={store} bs=1M iflag=fullblock conv=fdatasync status=none
        again find {source} -type f -print0 | xargs -0 b3sum > /dev/null
        verify find {source} -type f -print0 | xargs -0 b3sum > /dev/null
        read cat {source}
        export cp -r --sparse=never --reflink=never {source} {to}/exported""",
}
COMMANDS[OFF] = COMMANDS[OURS].replace("init blobtool init", "init blobtool init --similarity off")
COMMANDS[FAST] = COMMANDS[OURS].replace("init blobtool init", "init blobtool init --level fast")
# Of equal files a store keeps one, so this is what its size is compared with. b3sum puts 64 digits and two spaces before
# a path.
COMMANDS[UNIQUE] = """
        import zstd -q -3 -T2 -c {source} > {store}
        import/ cd {source} && find . -type f -print0 | sort -z | xargs -0 b3sum | awk '!met[$1]++ {{print substr($0, 67)}}' \
| tar -cf - --verbatim-files-from -T - | zstd -q -3 -T2 -c > {store}"""
COMMANDS[LONG] = COMMANDS[ZSTD].replace("-3 -T2", "-9 --long=27 -T1")


class Program:
    """One program with an empty store of its own, in a fresh folder."""

    def __init__(self, bench, name, folder):
        folder.mkdir(parents=True)
        self.bench, self.name, self.folder, self.store = bench, name, folder, folder / "store"
        self.kind = "limit" if name in (ZSTD, UNIQUE, LONG, PLAIN) else None
        self.commands = dict(line.split(maxsplit=1) for line in COMMANDS[name].strip().splitlines())
        self.environment = {
            "BLOBTOOL_STORE": self.store, "RESTIC_REPOSITORY": self.store, "RESTIC_PASSWORD": "bench",
            "RESTIC_CACHE_DIR": folder / "cache", "BORG_REPO": self.store, "BORG_BASE_DIR": folder / "home",
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
        self.step("init", folder)

    def step(self, step, source, **more):
        """Runs a step and returns what it used, or None if the program has no such step."""
        command = self.commands.get(f"{step}/" if source.is_dir() else step) or self.commands.get(step)
        if command is None:
            return None
        places = {"source": source, "name": source.name, "store": self.store, **more}
        line = command.format(**{name: shlex.quote(str(place)) for name, place in places.items()})
        words = ["bash", "-o", "pipefail", "-c", line] if re.search("[|>&]", command) else shlex.split(line)
        return self.bench.run(words, {name: str(value) for name, value in self.environment.items()}, step == "read")

    def byte_count(self, part=""):
        """What the store takes on the disk."""
        return stored(self.store / part) if (self.store / part).exists() else 0


def measure(bench, source, *steps, edited=None):
    """Runs the programs step by step, so that each step of all of them is measured within a short time."""
    folder = bench.work / f"{bench.row}-{bench.round}"
    names = bench.turned([OURS, "restic", "borg", ZSTD, PLAIN])
    programs = [Program(bench, name, folder / name.replace(" ", "")) for name in names]
    bench.run(["bash", "-c", f"find '{source}' {edited or ''} -type f -print0 | xargs -0 cat"], discard=True)
    for step in steps:
        for program in programs:
            to = program.folder / "exported"
            to.mkdir(exist_ok=True)
            before = program.byte_count()
            settle()
            if step == "cold":
                Path("/proc/sys/vm/drop_caches").write_text("3\n")
            usage = program.step("read" if step == "cold" else step, source, to=to, edited=edited)
            if usage is None:
                continue
            settle()
            more = f"{(program.byte_count() - before) / 1e6:,.1f} MB more" if step in ("import", "edited") else ""
            if step == "export" and byte_count(to) < byte_count(source):
                raise SystemExit(f"{program.name} exported {byte_count(to)} bytes only of {source}")
            bench.add(step, program.name, usage.seconds, "s", usage, more, program.kind)
    # Folders full of files stay until the end: for minutes after many were removed, ext4 creates files slowly.
    if source.is_file():
        shutil.rmtree(folder)


def store_row(name, title, steps, aims=None, once=False, source=()):
    """A row of steps on a data set, that of its name unless another is given."""
    source, *arguments = source or (name,)

    @row(name, title, aims, once)
    def measure_row(bench):
        edited = bench.data.edited() if "edited" in steps else None
        measure(bench, getattr(bench.data, source)(*arguments), *steps.split(), edited=edited)


store_row("mixed", "1 GiB of binaries and text in one file", "import again edited read verify export", {
    ("import", "restic"): 4, ("import", ZSTD): 1, ("again", "restic"): 10, ("read", "restic"): 8,
    ("verify", "restic"): 8, ("export", "restic"): 5})
store_row("photographs", "200 MB of photographs", "import again export", {("import", "restic"): 8, ("import", PLAIN): 0.7})
store_row("cold", "the mixed file when it is not in the page cache; needs root", "import cold", {("cold", PLAIN): 0.8},
          source=("mixed",))
store_row("files", "20,000 small files: import, import again and read in full, verify, export",
          "import again verify export", {("import", "restic"): 3.5, ("again", "restic"): 4, ("export", "restic"): 3})

SIZES = {
    "mixed": "1 GiB of binaries and text", "files": "20,000 small files",
    "documentation": "9,525 files of documentation and code", "icons": "40,000 icons and pieces of clip art",
    "documents": "1,500 JSON documents in 8 versions", "photographs": "200 MB of photographs",
    "releases": "16 releases of sympy as tars"}


@row("sizes", "all that a store takes on the disk, after an import and after gc --recompress", {
    **{(f"{data}, imported", peer): 1 for data in SIZES for peer in ("restic", "borg")},
    **{(f"{data}, recompressed", UNIQUE): 0.91 for data in ("files", "icons", "documents")},
    ("mixed, recompressed", LONG): 1, ("mixed, imported", FAST): 0.87, ("mixed, level fast, x restic", OURS): 3,
    ("4 KB of a frame, first", OURS): 150, ("4 KB of a frame, again", OURS): 15}, once=True)
def sizes(bench):
    for data in SIZES:
        source, found = bench.data.tars("sympy") if data == "releases" else getattr(bench.data, data)(), {}
        for name in (OURS, FAST, "restic", "borg", ZSTD, UNIQUE, LONG):
            if name == UNIQUE and source.is_file():
                continue
            program = Program(bench, name, bench.work / f"sizes-{data}-{name}".replace(" ", ""))
            found[name] = usage = program.step("import", source)
            bench.add(f"{data}, imported", name, program.byte_count() / 1e6, "MB", usage, f"of {SIZES[data]}", program.kind)
            if name in (ZSTD, UNIQUE, LONG):
                bench.add(f"{data}, recompressed", name, program.byte_count() / 1e6, "MB", usage, kind=program.kind)
            if name == OURS and data == "files":
                usage = bench.run(["StoreBench", "members", program.store, 2_000])
                for work, times in usage.json().items():
                    bench.add(f"4 KB of a frame, {work}", OURS, times["median"], "µs", usage)
            if name == OURS:
                usage = program.step("recompress", source)
                bench.add(f"{data}, recompressed", name, program.byte_count() / 1e6, "MB", usage)
            shutil.rmtree(program.folder)
        for name in (OURS, FAST, "restic", "borg"):
            bench.add(f"{data}, time of the import", name, found[name].seconds, "s", found[name])
        bench.add(f"{data}, level fast, x restic", OURS, found["restic"].seconds / found[FAST].seconds, "×", found[FAST])


def measure_similarity(bench, folders, ways=("next",), names=(OURS, OFF, "restic"), ranges=0):
    """Imports the folders one after the other, in every way, with similarity and without; reads back what is stored.

    Compares what the packs take, and processor time: other work on the machine changes that less than the clock.
    """
    for way in ways:
        place = bench.work / f"{bench.row}-{way}-{bench.round}"
        programs = [Program(bench, name, place / name.replace(" ", "")) for name in bench.turned(list(names))]
        for program in programs:
            settle()
            sources = folders if way == "next" else [file for folder in folders for file in sorted(folder.iterdir())]
            first, *rest = (program.step(way, source) for source in sources)
            usage = sum(rest, first)
            part = "data" if program.name == "restic" else "packs"
            bench.add(f"{way}: stored", program.name, program.byte_count(part) / 2**20, "MiB", usage)
            bench.add(f"{way}: CPU", program.name, usage.cpu, "s", usage)
        for program in (program for program in programs if program.name != "restic"):
            usage = bench.run(["StoreBench", "readback", program.store])
            bench.add(f"{way}: read back, CPU", program.name, usage.json()["processorSeconds"], "s", usage)
            if ranges:
                usage = bench.run(["StoreBench", "range", program.store, ranges])
                bench.add(f"{way}: 64 KiB range", program.name, usage.json()["range"]["median"], "µs", usage)
        shutil.rmtree(place)


def similar_row(name, title, folders, aims, **more):
    @row(name, title, {(f"{way}: {work}", peer): aim for way in more.get("ways", ["next"]) for work, peer, aim in aims})
    def measure_row(bench):
        measure_similarity(bench, folders(bench.data), **more)


TARS = [("stored", "restic", 4), ("CPU", OFF, 1), ("read back, CPU", OFF, 0.6), ("64 KiB range", OFF, 0.5)]
BOTH = {"ways": ("next", "version"), "ranges": 1_000}
similar_row("similar-tars", "16 releases of SQLAlchemy as tars, imported, and archived under one key",
            lambda data: [data.tars("SQLAlchemy")], TARS, **BOTH)
similar_row("similar-apart", "16 releases of sympy, up to six months apart, in the same way",
            lambda data: [data.tars("sympy")], TARS, **BOTH)
similar_row("similar-json", "1,500 JSON documents of 1 to 100 KB, 8 versions of each",
            lambda data: sorted(data.documents().iterdir()), [("stored", OFF, 1.67), ("read back, CPU", OFF, 0.6)])
similar_row("similar-small", "2,600 JSON documents of 0.3 to 5 KB, each once",
            lambda data: [data.small_documents()], [("stored", "restic", 1)])
similar_row("unique", "programs and libraries: what similarity costs", lambda data: [data.package("libreoffice-core")],
            [("CPU", OFF, 0.91)], names=(OURS, OFF))
