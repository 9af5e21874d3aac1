"""10,000 images put one by one and got in random order, by the store and by the libraries that people use for it."""

import random

from command import run_json, settle
from programs import STORE

ENGINES = {"files": "peer", "sqlite": "peer", "lmdb": "peer", "rocksdb": "peer", "append": "limit"}
TITLES = {
    "files": "plain files", "sqlite": "SQLite", "lmdb": "LMDB", "rocksdb": "RocksDB", "append": "append to one file",
}


class SmallBlobs:
    def __init__(self, session):
        self.session = session
        self.results = session.results
        self.list = session.work / "images.txt"
        self.order = session.work / "images-shuffled.txt"

    def images(self, round_number):
        self._write_lists()
        programs = [(STORE, "store", self._store), ("diskcache", "peer", self._diskcache)]
        programs += [(TITLES[engine], kind, self._engine(engine)) for engine, kind in ENGINES.items()]
        turn = round_number % len(programs)
        for durability in ("relaxed", "durable"):
            for name, kind, work in programs[turn:] + programs[:turn]:
                folder = self.session.work / f"images-{durability}-{round_number}-{name.replace(' ', '-')}"
                settle()
                self._add(durability, name, kind, work(folder, durability))
        settle()
        folder = self.session.work / f"images-threads-{round_number}"
        measured, _ = run_json(self._store_words(folder, "durable") + ["--threads", "8"])
        self.results.add("put durable, 8 threads", STORE, measured["count"] / measured["putSeconds"], "/s")

    def _add(self, durability, name, kind, measured):
        for work in ("put", "get"):
            for figure in ("median", "mean", "p99"):
                row = f"{work} {durability}" + ("" if figure == "median" else f" {figure}")
                self.results.add(row, name, measured[work][figure], "µs", kind)
        rate = measured["count"] / measured["putSeconds"]
        self.results.add(f"put {durability} rate", name, rate, "/s", kind)
        self.session.say(
            f"images {durability}: {name} put {measured['put']['median']:.1f} µs, get {measured['get']['median']:.1f} µs")

    def _write_lists(self):
        if self.order.exists():
            return
        images = sorted(self.session.data.images().iterdir())
        self.results.data["images"] = {
            "byteCount": sum(path.stat().st_size for path in images), "fileCount": len(images)}
        self.list.write_text("".join(f"{path}\n" for path in images))
        random.Random(1).shuffle(images)
        self.order.write_text("".join(f"{path}\n" for path in images))

    def _store_words(self, folder, durability):
        words = [self.session.store_bench, "images", "--list", self.list, "--order", self.order, "--store", folder]
        return words + (["--durable"] if durability == "durable" else [])

    def _store(self, folder, durability):
        return run_json(self._store_words(folder, durability))[0]

    def _engine(self, engine):
        return lambda folder, durability: run_json(
            [self.session.small_peers, engine, self.list, self.order, folder, durability])[0]

    def _diskcache(self, folder, durability):
        script = self.session.here / "small_diskcache.py"
        return run_json([self.session.python, script, self.list, self.order, folder, durability])[0]
