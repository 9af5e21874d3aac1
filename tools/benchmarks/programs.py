"""The programs that keep whole stores, and what they are told for each step.

A step is `import`, `again` (everything read in full), `edited` (a changed copy added), `export`, `read` (one blob,
thrown away) or `verify`. A program gives for each a function that runs it, or leaves it out.
"""

import subprocess
from pathlib import Path

from command import run, shell

STORE = "blobtool"
STEPS = ["import", "again", "edited", "read", "verify", "export"]


class Program:
    """One program with one store of its own, in a fresh folder."""

    name = ""
    # A limit is no store: the work that any store has to do, and nothing else.
    is_limit = False
    # The slowest is measured in the first round only.
    is_slow = False
    # Other names in some steps.
    names = {}

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        self.store = self.folder / "store"

    def prepare(self):
        """Makes an empty store; not measured."""

    def steps(self, source):
        """A function for each step that the program has."""
        return {}

    @staticmethod
    def version():
        return ""

    def output(self):
        """A fresh folder to export to."""
        folder = self.folder / "exported"
        folder.mkdir()
        return folder

    def stored_byte_count(self):
        """What the store takes on the disk."""
        return disk_byte_count(self.store)


class Blobtool(Program):
    name = STORE
    tool = None

    def prepare(self):
        run([self.tool, "init", "--store", self.store])

    def steps(self, source):
        at = ["--store", self.store]
        return {
            "import": lambda _: run([self.tool, "import", *at, source]),
            "again": lambda _: run([self.tool, "import", "--force", *at, source]),
            "edited": lambda edited: run([self.tool, "import", *at, edited]),
            "read": lambda _: run([self.tool, "get", source.name, *at], discards_output=True),
            "verify": lambda _: run([self.tool, "verify", *at]),
            # The others write the first copy only, not the edited one that has come to the store since.
            "export": lambda to: run([self.tool, "export", *at, source.name, to] if source.is_file() else
                                     [self.tool, "export", *at, to]),
        }


class Restic(Program):
    name = "restic"

    def __init__(self, folder):
        super().__init__(folder)
        self.environment = {
            "RESTIC_REPOSITORY": str(self.store), "RESTIC_PASSWORD": "bench",
            "RESTIC_CACHE_DIR": str(self.folder / "cache"),
        }

    def _restic(self, *words, **options):
        return run(["restic", "--quiet", *words], environment=self.environment, **options)

    def prepare(self):
        self._restic("init")

    def steps(self, source):
        return {
            "import": lambda _: self._restic("backup", source),
            "again": lambda _: self._restic("backup", "--force", source),
            "edited": lambda edited: self._restic("backup", edited),
            "read": lambda _: self._restic("dump", "--path", source, "latest", source, discards_output=True),
            "verify": lambda _: self._restic("check", "--read-data"),
            "export": lambda to: self._restic("restore", "latest", "--path", source, "--target", to),
        }

    @staticmethod
    def version():
        return run(["restic", "version"]).output.split()[1]


class Borg(Program):
    name = "borg"

    def __init__(self, folder):
        super().__init__(folder)
        self.environment = {
            "BORG_REPO": str(self.store), "BORG_BASE_DIR": str(self.folder / "home"),
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
        }

    def _borg(self, *words, **options):
        return run(["borg", *words], environment=self.environment, **options)

    def prepare(self):
        self._borg("init", "--encryption", "none")

    def steps(self, source):
        create = ["create", "--compression", "zstd,3"]
        return {
            "import": lambda _: self._borg(*create, "::first", source),
            "again": lambda _: self._borg(*create, "--files-cache", "disabled", "::second", source),
            "edited": lambda edited: self._borg(*create, "::edited", edited),
            "read": lambda _: self._borg("extract", "--stdout", "::first", discards_output=True),
            "verify": lambda _: self._borg("check", "--verify-data"),
            "export": lambda to: self._borg("extract", "::first", folder=to),
        }

    @staticmethod
    def version():
        return run(["borg", "--version"]).output.split()[1]


class Casync(Program):
    name = "casync"
    is_slow = True

    def steps(self, source):
        kind = "caidx" if source.is_dir() else "caibx"
        index = [self.folder / f"{name}.{kind}" for name in ("first", "second", "edited")]
        at = f"--store={self.store}"

        def export(to):
            return run(["casync", "extract", at, index[0], to / "exported"])

        return {
            "import": lambda _: run(["casync", "make", at, index[0], source]),
            "again": lambda _: run(["casync", "make", at, index[1], source]),
            "edited": lambda edited: run(["casync", "make", at, index[2], edited]),
            "export": export,
        }

    @staticmethod
    def version():
        return run(["casync", "--version"]).output.split()[1]


class Zstd(Program):
    """One compressed file on all cores: no deduplication, no verification but a checksum, no sync."""

    name = "zstd -3 -T2"
    is_limit = True

    def steps(self, source):
        packed = self.store
        if source.is_dir():
            packing = f"tar -C '{source.parent}' -cf - '{source.name}' | zstd -q -3 -T2 -c > '{packed}'"
            unpacking = "zstd -q -d -c '{0}' | tar -C '{1}' -xf -"
        else:
            packing = f"zstd -q -3 -T2 -c '{source}' > '{packed}'"
            unpacking = "zstd -q -d -c '{0}' > '{1}/exported'"
        return {
            "import": lambda _: shell(packing),
            "read": lambda _: run(["zstd", "-q", "-d", "-c", packed], discards_output=True),
            "verify": lambda _: run(["zstd", "-q", "-t", packed]),
            "export": lambda to: shell(unpacking.format(packed, to)),
        }

    @staticmethod
    def version():
        return run(["zstd", "--version"]).output.split("v")[-1].split(",")[0]


class Write(Program):
    """The plain bytes written to one file and synced; copied; read and thrown away."""

    name = "write + fdatasync"
    is_limit = True
    names = {"read": "cat", "export": "cp"}

    def steps(self, source):
        if source.is_dir():
            writing = f"tar -C '{source.parent}' -cf - '{source.name}' | " \
                f"dd of='{self.store}' bs=1M iflag=fullblock conv=fdatasync status=none"
            return {"import": lambda _: shell(writing)}
        return {
            "import": lambda _: run(
                ["dd", f"if={source}", f"of={self.store}", "bs=1M", "conv=fdatasync", "status=none"]),
            "export": lambda to: run(["cp", "--sparse=never", "--reflink=never", source, to / "exported"]),
            "read": lambda _: run(["cat", source], discards_output=True),
        }


class B3sum(Program):
    """Hashing alone, on all cores."""

    name = "b3sum"
    is_limit = True

    def steps(self, source):
        if source.is_dir():
            hashing = f"find '{source}' -type f -print0 | xargs -0 b3sum > /dev/null"
            return {"again": lambda _: shell(hashing), "verify": lambda _: shell(hashing)}
        return {"again": lambda _: run(["b3sum", source]), "verify": lambda _: run(["b3sum", source])}

    @staticmethod
    def version():
        return run(["b3sum", "--version"]).output.split()[1]


PEERS = [Restic, Borg, Casync]
LIMITS = [Zstd, Write, B3sum]


def disk_byte_count(path):
    """What a file or folder takes on the disk."""
    done = subprocess.run(["du", "-s", "-B1", path], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])
