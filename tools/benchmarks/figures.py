"""The figures that the store is to reach, and whether a run reached them."""

from dataclasses import dataclass

OPEN_CHUNK_COUNT = 10**7


@dataclass
class Check:
    """A value against its bound. A value of None was not measured."""

    label: str
    value: float | None
    bound: float
    is_most: bool = False
    unit: str = "×"

    @property
    def is_reached(self):
        return self.value is not None and (self.value <= self.bound if self.is_most else self.value >= self.bound)

    @property
    def text(self):
        if self.value is None:
            return f"{self.label}: not measured"
        places = 0 if self.value >= 100 else 1 if self.value >= 10 else 2
        return f"{self.label} {self.value:.{places}f} {self.unit}"

    @property
    def share(self):
        """How much of the bound was reached: 1 is all of it."""
        if not self.value:
            return None
        return self.bound / self.value if self.is_most else self.value / self.bound


@dataclass
class Figure:
    work: str
    aim: str
    checks: list

    @property
    def verdict(self):
        if any(check.value is None for check in self.checks):
            return "not measured"
        return "reached" if all(check.is_reached for check in self.checks) else "**not reached**"


def figures(results):
    """One for each row of the table, in its order."""

    def against(row, program, bound, label=None, **options):
        return Check(label or program, results.ratio(row, program, **options), bound)

    def most(label, row, bound, unit, scale=1):
        value = results.median(row) * scale if results.has(row) else None
        return Check(label, value, bound, is_most=True, unit=unit)

    def least(label, row, bound, unit, scale=1):
        value = results.median(row) * scale if results.has(row) else None
        return Check(label, value, bound, unit=unit)

    threads = None
    if results.has("put durable, 8 threads") and results.has("put durable rate", "SQLite"):
        threads = results.median("put durable, 8 threads") / results.median("put durable rate", "SQLite")
    mark = largest(results, "growth mark ")
    memories = [
        max(entry["programs"]["blobtool"]["samples"]) for row, entry in results.rows.items()
        if row.endswith(" memory") and "blobtool" in entry["programs"]
    ]
    zstd = "zstd -3 -T2"
    return [
        Figure("import of the mixed file into an empty store", "4 × restic; faster than `zstd -3 -T2`", [
            against("mixed import", "restic", 4), against("mixed import", zstd, 1)]),
        Figure("import of photographs", "8 × restic; 0.7 of sequential write + sync", [
            against("photographs import", "restic", 8), against("photographs import", "write + fdatasync", 0.7)]),
        Figure("import of 20,000 small files", "6 × restic", [against("tree import", "restic", 6)]),
        Figure("import again of the same bytes, read in full", "10 × restic", [against("mixed again", "restic", 10)]),
        Figure("the mixed file, verified: exported; read and discarded", "5 × restic; 8 ×", [
            against("mixed export", "restic", 5, "export: restic"),
            against("mixed read", "restic", 8, "read: restic")]),
        Figure("verify of the whole store", "8 × restic `check --read-data`", [against("mixed verify", "restic", 8)]),
        Figure("put of 10 KB images, relaxed", "1.5 × plain files; no slower than RocksDB", [
            against("put relaxed", "plain files", 1.5), against("put relaxed", "RocksDB", 1)]),
        Figure("the same, durable each", "no slower than SQLite (full); with 8 threads 4 × that", [
            against("put durable", "SQLite", 1), Check("8 threads: SQLite", threads, 4)]),
        Figure("get in random order, verified", "1.3 × plain open+read; faster than SQLite, RocksDB, diskcache", [
            against("get relaxed", "plain files", 1.3), against("get relaxed", "SQLite", 1),
            against("get relaxed", "RocksDB", 1), against("get relaxed", "diskcache", 1)]),
        Figure("random 64 KiB range, warm", "250 µs compressible, 80 µs incompressible", [
            most("compressible", "range compressible", 250, "µs"),
            most("incompressible", "range incompressible", 80, "µs")]),
        Figure("DispatchIO path, cold, sequential", "0.8 of `cat` or of decoding, whichever is less", [
            least("compressible", "cold compressible share", 0.8, "×"),
            least("incompressible", "cold incompressible share", 0.8, "×")]),
        Figure("BLAKE3, one core", "0.9 of `b3sum --num-threads 1`", [
            against("digest 64 KiB", "b3sum, one thread", 0.9, "64 KiB: b3sum", is_rate=True),
            against("digest 1 MiB", "b3sum, one thread", 0.9, "1 MiB: b3sum", is_rate=True)]),
        Figure("mark", "2 million chunk references a second", [
            Check(mark[0], mark[1] and mark[1] / 1e6, 2, unit="million/s")]),
        Figure("open of a 10⁷-chunk store", "100 ms", [
            most("open", f"growth open {OPEN_CHUNK_COUNT}", 100, "ms", 1e-3)]),
        Figure("memory of any import or export", "200 MB", [
            Check("most", max(memories) / 1e6 if memories else None, 200, is_most=True, unit="MB")]),
        Figure("catalog on disk", "100 bytes a chunk, 160 with similarity on", [
            most("off", "catalog, similarity off", 100, "B"), most("on", "catalog, similarity on", 160, "B")]),
    ]


def largest(results, prefix):
    """The figure of the largest store that was measured: its label and value."""
    counts = sorted(int(row.rsplit(" ", 1)[1]) for row in results.rows if row.startswith(prefix))
    if not counts:
        return "mark", None
    return f"{short_count(counts[-1])} chunks:", results.median(f"{prefix}{counts[-1]}")


def short_count(count):
    """10⁵ for 100,000."""
    return "10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(len(str(count)) - 1))
