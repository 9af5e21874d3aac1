"""Measures a store on an engine beside boto3 on the same engine: see `tools/bench-machines`."""

import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import boto3
from botocore.config import Config

BIN, MIB, CHUNKS = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
ENGINE = pathlib.Path(__file__).resolve().parent.parent / ".build" / "engine"
BUCKET = "blob-storage"
OBJECT_BYTES = 64 << 20
ROUNDS = 3


class Bench:
    """One run: what is measured, in a folder and below a prefix of its own."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-machines."))
        self.prefix = f"bench-{os.getpid()}"
        self.client = boto3.client(
            "s3",
            endpoint_url=os.environ["AWS_ENDPOINT_URL"],
            config=Config(
                s3={"addressing_style": "path"},
                max_pool_connections=4,
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
        self.rows = []

    def row(self, work, value):
        self.rows.append((work, value))
        print(f"{work}: {value}", file=sys.stderr, flush=True)

    def file(self, name, byte_count, seed):
        path = self.folder / name
        generator = random.Random(seed)
        with open(path, "wb") as file:
            for start in range(0, byte_count, 1 << 20):
                file.write(generator.randbytes(min(1 << 20, byte_count - start)))
        return path

    def requests(self):
        """Requests that the gateway has had so far."""
        answer = subprocess.run(
            ["ceph", "--admin-daemon", str(ENGINE / "run" / "client.client.gateway.asok"), "perf", "dump"],
            stdout=subprocess.PIPE, check=False)
        if answer.returncode != 0:
            socket = next(path for path in (ENGINE / "run").glob("*.asok") if "gateway" in path.name)
            answer = subprocess.run(
                ["ceph", "--admin-daemon", str(socket), "perf", "dump"], stdout=subprocess.PIPE, check=True)
        return json.loads(answer.stdout)["rgw"]["req"]

    def tool(self, place, *arguments):
        """Runs a command; returns its seconds, output and greatest memory in MB."""
        begin = time.monotonic()
        process = subprocess.Popen(
            [BIN / "blobtool", arguments[0], *place, *map(str, arguments[1:])], stdout=subprocess.PIPE)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"blobtool {arguments[0]} failed")
        return time.monotonic() - begin, output, usage.ru_maxrss / 1000

    def store(self, name, machine="a"):
        return ["--store", f"s3://{BUCKET}/{self.prefix}/{name}", "--state", str(self.folder / f"{name}-{machine}")]

    def forget(self):
        """Deletes what was put, and has the engine free it at once: its disks are small."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=self.prefix)
        for page in pages:
            for entry in page.get("Contents", []):
                self.client.delete_object(Bucket=BUCKET, Key=entry["Key"])
        subprocess.run(
            ["radosgw-admin", "-c", str(ENGINE / "ceph.conf"), "-n", "client.gateway", "gc", "process", "--include-all"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    def put_objects(self, path, name, width):
        """Puts a file as objects of a pack's length, that many at once; returns the seconds."""
        count = path.stat().st_size // OBJECT_BYTES

        def put(index):
            with open(path, "rb") as file:
                file.seek(index * OBJECT_BYTES)
                body = file.read(OBJECT_BYTES)
            self.client.put_object(
                Bucket=BUCKET, Key=f"{self.prefix}/boto/{name}/{index}", Body=body, IfNoneMatch="*")

        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(width) as pool:
            list(pool.map(put, range(count)))
        return time.monotonic() - begin


def median(values):
    return sorted(values)[len(values) // 2]


def text(values, digits=1):
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} – {max(values):.{digits}f})"


def measure_imports(bench):
    byte_count = MIB << 20
    engine, local, remote, ratios, requests, memory = [], [], [], [], [], []
    for number in range(ROUNDS):
        path = bench.file("file", byte_count, number)
        seconds = bench.put_objects(path, f"alone-{number}", 1)
        engine.append(byte_count / seconds / 1e6)
        folder = ["--store", str(bench.folder / f"local-{number}")]
        bench.tool(folder, "init")
        local.append(byte_count / bench.tool(folder, "import", path, "--json")[0] / 1e6)
        shutil.rmtree(folder[1])
        place = bench.store(f"import-{number}")
        bench.tool(place, "init")
        before = bench.requests()
        seconds, output, used = bench.tool(place, "import", path, "--json")
        stored = json.loads(output)["storedByteCount"]
        requests.append((bench.requests() - before) / (stored / (16 << 20)))
        remote.append(byte_count / seconds / 1e6)
        ratios.append(remote[-1] / min(engine[-1], local[-1]))
        memory.append(used)
        path.unlink()
        bench.forget()
    bench.row("boto3, objects of 64 MiB one after the other, MB/s", text(engine))
    bench.row("import into a folder, MB/s", text(local))
    bench.row("import into the engine, MB/s", text(remote))
    bench.row("the same, of the lesser of both", text(ratios, 2))
    bench.row("requests for 16 MiB stored, the command's own included", text(requests, 2))
    bench.row("memory of the import, MB", text(memory, 0))


def measure_ranges(bench):
    path = bench.file("file", MIB << 20, 7)
    place = bench.store("ranges")
    bench.tool(place, "init")
    bench.tool(place, "import", path, "--json")
    # A machine that has seen nothing: its first opening is counted by one without ranges.
    arguments = [place[1], str(bench.folder / "ranges-reader"), path.name]
    subprocess.run([BIN / "WireTrial", "ranges", *arguments, "1"], stdout=subprocess.PIPE, check=True)
    before = bench.requests()
    subprocess.run([BIN / "WireTrial", "ranges", *arguments, "1"], stdout=subprocess.PIPE, check=True)
    opening = bench.requests() - before
    shutil.rmtree(arguments[1])
    subprocess.run([BIN / "blobtool", "sync", "--store", place[1], "--state", arguments[1]], check=True)
    before = bench.requests()
    count = 200
    output = subprocess.run(
        [BIN / "WireTrial", "ranges", *arguments, str(count)], stdout=subprocess.PIPE, check=True).stdout
    bench.row("requests for a random range of 64 KiB", f"{(bench.requests() - before - opening) / count:.2f}")
    bench.row("a random range of 64 KiB that this machine does not hold, ms", json.loads(output)["medianms"])
    path.unlink()
    bench.forget()


def measure_catching_up(bench):
    place = bench.store("chunks")
    filled = subprocess.run(
        [BIN / "WireTrial", "fill", place[1], place[3], str(CHUNKS)], stdout=subprocess.PIPE, check=True).stdout
    caught = [bench.tool(bench.store("chunks", f"new-{number}"), "sync") for number in range(ROUNDS)]
    bench.row(f"catching up on {json.loads(filled)['chunks']:,} chunks, s", text([run[0] for run in caught]))
    bench.row("memory of catching up, MB, mapped pages of the catalog included", text([run[2] for run in caught], 0))
    bench.forget()


def measure_machines(bench):
    count = 4
    byte_count = MIB << 20
    ratios, rates = [], []
    for number in range(ROUNDS):
        paths = [bench.file(f"file-{index}", byte_count // 2, 100 * number + index) for index in range(count)]
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda path: bench.put_objects(path, f"{number}-{path.name}", 1), paths))
        engine = sum(path.stat().st_size for path in paths) / (time.monotonic() - begin)
        bench.tool(bench.store(f"machines-{number}"), "init")
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            list(pool.map(
                lambda path: bench.tool(bench.store(f"machines-{number}", path.name), "import", path), paths))
        rate = sum(path.stat().st_size for path in paths) / (time.monotonic() - begin)
        rates.append(rate / 1e6)
        ratios.append(rate / engine)
        for path in paths:
            path.unlink()
        bench.forget()
    bench.row("four machines import at once, MB/s in all", text(rates))
    bench.row("the same, of four boto3 at once", text(ratios, 2))


def main():
    bench = Bench()
    try:
        for measure in (measure_imports, measure_ranges, measure_catching_up, measure_machines):
            measure(bench)
    finally:
        shutil.rmtree(bench.folder)
    print("| WORK | MEDIAN (LEAST – MOST) |\n|---|---:|")
    for work, value in bench.rows:
        print(f"| {work} | {value} |")


if __name__ == "__main__":
    main()
