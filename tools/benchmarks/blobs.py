"""Small blobs put one by one and got in random order; and what else is measured inside one process of the store."""

import os, random, shutil, subprocess, threading, time
from statistics import median

from core import OURS, row, settle, stored
from stores import Program

PEERS = {"plain files": "files", "SQLite": "sqlite", "LMDB": "lmdb", "RocksDB": "rocksdb"}


def measure(bench, durability, work, threads=1):
    """Every program in a fresh folder puts all, opens anew and gets all; reports `put`, `get` or the rate of puts."""
    folder, to = bench.data.blobs(bench.count(10_000)), bench.work / f"{bench.row}-{bench.round}"
    to.mkdir()
    ends = {OURS: "blocking", **({f"{OURS}, async API": "async"} if threads == 1 else {}), **PEERS}
    if work == "get":
        ends[f"{OURS}, by checksum"] = "checksum"
    for name in bench.turned(list(ends)):
        words = [folder, to / ends[name], durability, threads]
        settle()
        command = ["peers", PEERS[name], *words] if name in PEERS else ["StoreBench", "small", *words, ends[name]]
        usage = bench.run(command)
        found = usage.json()
        if work == "rate":
            bench.add("puts", name, bench.count(10_000) / found["putSeconds"], "/s", usage)
            continue
        bench.add(f"{work}, median", name, found[work]["median"], "µs", usage, f"(99 %: {found[work]['p99']:.0f})")
        bench.add(f"{work}, mean", name, found[work]["mean"], "µs", usage)
    shutil.rmtree(to)


def small_row(name, title, aims, *arguments):
    row(name, f"{title} 10 KB blobs, {'8 threads' if 8 in arguments else 'one thread'}", aims)(
        lambda bench: measure(bench, *arguments))


small_row("put", "relaxed put of", {("put, median", OURS): 15, ("put, median", "RocksDB"): 1}, "relaxed", "put")
small_row("put-durable", "durable put of", {("put, median", "SQLite"): 1}, "durable", "put")
small_row("put-threads", "durable puts a second of", {("puts", "SQLite"): 4}, "durable", "rate", 8)
small_row("get", "get in random order, by digest or checksum, of", {("get, median", "SQLite"): 1}, "relaxed", "get")


@row("overhead", "bytes in packs of each put of a new blob of 200 bytes, without it and its key of 40",
     {("put", OURS): 120}, once=True)
def overhead(bench):
    count, store = bench.count(10_000), bench.work / "overhead"
    usage = bench.run(["StoreBench", "small", bench.data.blobs(count, 200, 40), store, "relaxed", 1, "blocking"])
    bench.add("put", OURS, stored(store / "packs") / count - 240, "B", usage)
    shutil.rmtree(store)


@row("beside", "get of 10 KB blobs, and now and then a durable put, beside ten importers and undisturbed")
def beside(bench):
    folder, store = bench.data.blobs(bench.count(10_000)), bench.work / f"beside-{bench.round}"
    bench.run(["StoreBench", "small", folder, store, "relaxed", 1, "blocking"])
    words = ["StoreBench", "gets", folder, store, bench.count(20, 2)]
    undisturbed, end = bench.run(words), threading.Event()
    importers = [threading.Thread(target=import_again, args=(bench, store, number, end)) for number in range(10)]
    for importer in importers:
        importer.start()
    try:
        disturbed = bench.run(words)
    finally:
        end.set()
        for importer in importers:
            importer.join()
    for work in ("get", "put"):
        for figure in ("p99", "median"):
            for name, usage, kind in ((OURS, disturbed, "store"), ("undisturbed", undisturbed, "limit")):
                bench.add(f"{work}, {figure}", name, usage.json()[work][figure], "µs", usage, kind=kind)
    shutil.rmtree(store)


def import_again(bench, store, number, end):
    """Imports 64 MiB again and again until told to end, each time with other bytes in every chunk."""
    source, data = bench.work / f"importer-{number}", bytearray(os.urandom(bench.count(64 << 20)))
    while not end.is_set():
        for offset in range(0, len(data) - 8, 8 << 10):
            data[offset:offset + 8] = os.urandom(8)
        source.write_bytes(data)
        subprocess.run(["blobtool", "import", source, "--store", store], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)


@row("blake3", "BLAKE3 on one thread, piece by piece; b3sum of the whole is the limit", {
    ("10 KB", OURS): 2.8, ("64 KiB", "b3sum"): 0.9, ("1 MiB", "b3sum"): 0.9})
def blake3(bench):
    source = bench.data.noise(bench.count(512 << 20))
    # b3sum maps the file: the time of the processor is fairer to it.
    limit = min((bench.run(["b3sum", "--num-threads", "1", source]) for _ in range(3)), key=lambda usage: usage.cpu)
    for length, work in [(10_000, "10 KB"), (64 << 10, "64 KiB"), (1 << 20, "1 MiB")]:
        usage = bench.run(["StoreBench", "digest", source, length])
        bench.add(work, OURS, usage.json()["bytesPerSecond"] / 1e9, "GB/s", usage)
        bench.add(work, "b3sum", source.stat().st_size / limit.cpu / 1e9, "GB/s", limit, kind="limit")


@row("ranges", "random 64 KiB of a large blob; pread of the file is the limit", {
    ("compressible", OURS): 250, ("incompressible", OURS): 80})
def ranges(bench):
    for work, source in {"compressible": bench.data.mixed(), "incompressible": bench.data.photographs_tar()}.items():
        program = Program(bench, OURS, bench.work / f"{work}-{bench.round}")
        program.step("import", source)
        usage = bench.run(["StoreBench", "range", program.store, 2_000])
        found, seconds = usage.json()["range"], []
        bench.add(work, OURS, found["median"], "µs", usage, f"(99 %: {found['p99']:.0f})")
        with open(source, "rb") as file:
            for _ in range(2_000):
                offset = random.randrange(source.stat().st_size - 65_536)
                start = time.perf_counter()
                os.pread(file.fileno(), 65_536, offset)
                seconds.append(time.perf_counter() - start)
        bench.add(work, "pread", median(seconds) * 1e6, "µs", kind="limit")
        shutil.rmtree(program.folder)


@row("open", "opening a store of a million chunks, warm: median of five", {("open, 1000000 chunks", OURS): 10})
def opened(bench):
    measure_growth(bench, bench.count(10**6, 1_000), works=("open",))


@row("growth", "everyday work in stores of 10⁴ to 10⁷ chunks, relaxed; open is the median of five", {
    ("open, 10000000 chunks", OURS): 100, ("mark, 10000000 chunks", OURS): 2, ("catalog, 1000000 chunks", OURS): 60,
    ("catalog, 1000000 chunks of text", OURS): 90, ("catalog, 1000000 keys", OURS): 120}, once=True)
def growth(bench):
    for power in range(4, 8):
        measure_growth(bench, bench.count(10**power, 1_000))
    measure_growth(bench, bench.count(10**6, 1_000), " of text", works=("catalog",))
    count, store = bench.count(10**6, 1_000), bench.work / "keys"
    usage = bench.run(["StoreBench", "keys", store, count])
    bench.add(f"catalog, {count} keys", OURS, stored(store / "catalog") / count, "B a key", usage)
    shutil.rmtree(store)


def measure_growth(bench, count, text="", works=None):
    """Fills a store with chunks of 1 KiB on average, and for every hundred of them a blob of 200 bytes."""
    store = bench.work / f"filled-{count}"
    filling = bench.run(["StoreBench", "fill", store, count, "on" if text else "off"])
    settle()
    usage = bench.run(["StoreBench", "growth", store])
    found = usage.json()
    chunks = found["chunkCount"]
    figures = {
        "open": (found["open"]["median"] / 1e3, "ms"), "get": (found["get"]["median"], "µs"),
        "put": (found["put"]["median"], "µs"), "put of what is there": (found["duplicate"]["median"], "µs"),
        "list": (found["listSeconds"] / found["listedCount"] * 1e6, "µs a key"),
        "mark": (chunks / found["markSeconds"] / 1e6, "M chunks/s"),
        "catalog": (stored(store / "catalog") / chunks, "B a chunk"),
        "fill": (filling.json()["seconds"] / chunks * 1e6, "µs a chunk")}
    for work in works or figures:
        bench.add(f"{work}, {count} chunks{text}", OURS, *figures[work], usage)
    shutil.rmtree(store)
