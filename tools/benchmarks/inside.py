"""What is measured inside one process of the store: ranges, cold reading, digests, growth, the catalog's size."""

import shutil

from command import drop_page_cache, run, run_json, settle
from programs import STORE, Blobtool, disk_byte_count


class Inside:
    def __init__(self, session):
        self.session = session
        self.results = session.results
        # Blobs of compressible and incompressible bytes, in one store that all rounds read.
        self.store = session.work / "inside"
        quick = session.is_quick
        self.mixed = session.data.mixed_quick if quick else session.data.mixed
        self.photographs = session.data.photographs_tar

    def _bench(self, *words):
        return run_json([self.session.store_bench, *words])[0]

    def _prepare(self):
        if not self.store.exists():
            self._bench("import", "--store", self.store, "--similarity", "on", self.mixed(), self.photographs())

    def ranges(self, _):
        """Random 64 KiB ranges of a warm blob; `pread` of the file is the limit."""
        self._prepare()
        for row, source in [("range compressible", self.mixed()), ("range incompressible", self.photographs())]:
            measured = self._bench("range", "--store", self.store, "--key", source.name)["range"]
            self.results.add(row, STORE, measured["median"], "µs")
            self.results.add(f"{row} p99", STORE, measured["p99"], "µs")
            limit = run_json([self.session.small_peers, "pread", source, "2000"])[0]["range"]
            self.results.add(row, "pread", limit["median"], "µs", "limit")
            self.session.say(f"{row}: {measured['median']:.0f} µs, pread {limit['median']:.0f} µs")

    def cold(self, _):
        """A whole blob that is not in the page cache, from front to back; `cat` of the file is the limit."""
        self._prepare()
        for row, source in [("cold compressible", self.mixed()), ("cold incompressible", self.photographs())]:
            if not drop_page_cache():
                self.results.note("Cold reading was left out: only root may drop the page cache.")
                return
            cat = run(["cat", source], discards_output=True).seconds
            drop_page_cache()
            words = ["stream", "--store", self.store, "--key", source.name]
            cold = self._bench(*words)
            warm = self._bench(*words)
            byte_count = cold["byteCount"]
            self.results.add(row, "cat", byte_count / cat, "B/s", "limit")
            self.results.add(row, STORE, byte_count / cold["seconds"], "B/s")
            self.results.add(f"{row} decoding", STORE, byte_count / warm["seconds"], "B/s")
            bound = min(byte_count / cat, byte_count / warm["seconds"])
            self.results.add(f"{row} share", STORE, byte_count / cold["seconds"] / bound, "×")
            self.session.say(
                f"{row}: {cold['seconds']:.2f} s, warm {warm['seconds']:.2f} s, cat {cat:.2f} s")

    def digest(self, _):
        """BLAKE3 on one thread."""
        source = self.mixed()
        for length, row in [(64 << 10, "digest 64 KiB"), (1 << 20, "digest 1 MiB"), (10_000, "digest 10 KB")]:
            rate = self._bench("digest", "--file", source, "--length", length)["bytesPerSecond"]
            self.results.add(row, STORE, rate, "B/s")
        # b3sum maps the file: its own time without the system's is the fairer one, to it.
        usage = min(
            (run(["b3sum", "--num-threads", "1", source]) for _ in range(3)), key=lambda usage: usage.cpu_seconds)
        rate = source.stat().st_size / usage.cpu_seconds
        for row in ("digest 64 KiB", "digest 1 MiB"):
            self.results.add(row, "b3sum, one thread", rate, "B/s", "limit")
        self.session.say(f"digest: {self.results.samples('digest 64 KiB')[-1] / 1e9:.2f} GB/s, b3sum {rate / 1e9:.2f}")

    def growth(self, round_number):
        """Stores of more and more chunks of 1 KiB on average."""
        if round_number > 0:
            return
        for count in self.session.growth_counts:
            folder = self.session.work / f"growth-{count}"
            filled = self._bench("fill", "--store", folder, "--chunks", count)
            settle()
            measured, usage = run_json([self.session.store_bench, "growth", "--store", folder])
            chunk_count = measured["chunkCount"]
            catalog = disk_byte_count(folder / "catalog")
            self._grown(count, "fill", filled["seconds"] / chunk_count * 1e6, "µs a chunk")
            for work in ("open", "get", "put", "duplicate"):
                self._grown(count, work, measured[work]["median"], "µs")
            self._grown(count, "list", measured["listSeconds"] / measured["listedCount"] * 1e6, "µs a key")
            self._grown(count, "mark", chunk_count / measured["markSeconds"], "chunks/s")
            self._grown(count, "memory, own", measured["ownMemoryMarking"], "B")
            self._grown(count, "memory, with mapped pages", usage.memory_byte_count, "B")
            self._grown(count, "catalog", catalog / chunk_count, "B a chunk")
            self.session.say(
                f"growth {chunk_count}: filled in {filled['seconds']:.1f} s, open {measured['open']['median'] / 1e3:.1f} ms,"
                f" get {measured['get']['median']:.1f} µs, catalog {catalog / chunk_count:.0f} B a chunk,"
                f" mark {chunk_count / measured['markSeconds'] / 1e6:.2f} M/s")
            shutil.rmtree(folder)

    def _grown(self, count, work, value, unit):
        self.results.add(f"growth {work} {count}", STORE, value, unit)

    def catalog(self, round_number):
        """What the catalog takes: a million chunks made up, and the chunks of files."""
        if round_number > 0:
            return
        for similarity in ("on", "off"):
            folder = self.session.work / f"catalog-{similarity}"
            self._bench("fill", "--store", folder, "--chunks", 10**6, "--similarity", similarity)
            self._catalog_size(folder, f"catalog, similarity {similarity}")
        folder = self.session.work / "catalog-files"
        sources = [self.mixed(), self.photographs(), self.session.data.releases()]
        self._bench("import", "--store", folder, "--similarity", "on", *sources)
        self._catalog_size(folder, "catalog, files")

    def _catalog_size(self, folder, row):
        settle()
        statistics, _ = run_json([Blobtool.tool, "stats", "--json", "--store", folder])
        value = disk_byte_count(folder / "catalog") / statistics["chunks"]
        self.results.add(row, STORE, value, "B a chunk")
        self.session.say(f"{row}: {value:.0f} B a chunk, {statistics['chunks']} chunks")
        shutil.rmtree(folder)
