"""A store in a bucket beside boto3, in one run, on the Ceph that tools/engine starts, and leaves running."""

import concurrent.futures
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

from core import OURS, REPOSITORY, row

OBJECT_BYTE_COUNT = 64 << 20
ENGINE = REPOSITORY / ".build/engine"


class Bucket:
    """What a row puts below a prefix of its own, by our programs and by boto3. `close` deletes it."""

    def __init__(self, bench):
        sys.path.insert(0, str(bench.data.python("boto3")))
        import boto3
        from botocore.config import Config

        self.bench = bench
        os.environ.update(re.findall(r"export (\w+)=(.*)", bench.run([REPOSITORY / "tools/engine", "up"]).output))
        self.prefix = f"bench-{os.getpid()}-{time.monotonic_ns()}"
        self.client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], config=Config(
            s3={"addressing_style": "path"}, max_pool_connections=4, request_checksum_calculation="when_required",
            response_checksum_validation="when_required"))

    def close(self):
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket="blob-storage", Prefix=self.prefix):
            for entry in page.get("Contents", []):
                self.client.delete_object(Bucket="blob-storage", Key=entry["Key"])
        # The gateway frees it at once: its disks are small.
        subprocess.run(["radosgw-admin", "-c", ENGINE / "ceph.conf", "-n", "client.gateway", "gc", "process",
                        "--include-all"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    def requests(self):
        """Requests that the gateway has had so far."""
        socket = next(path for path in (ENGINE / "run").glob("*.asok") if "gateway" in path.name)
        return json.loads(self.bench.run(["ceph", "--admin-daemon", socket, "perf", "dump"]).output)["rgw"]["req"]

    def at(self, name):
        """Where a store is, and the folder of this machine's state; each machine has one."""
        return f"s3://blob-storage/{self.prefix}/{name.split('-')[0]}", self.bench.work / f"{self.prefix}-{name}"

    def tool(self, verb, name, *words):
        place, state = self.at(name)
        return self.bench.run(["blobtool", verb, "--store", place, "--state", state, *words])

    def file(self, name, byte_count):
        path = self.bench.work / name
        path.write_bytes(random.Random(self.prefix + name).randbytes(byte_count))
        return path

    def call(self, verb, key, **more):
        return getattr(self.client, f"{verb}_object")(Bucket="blob-storage", Key=f"{self.prefix}/boto/{key}", **more)

    def put_objects(self, path):
        """Puts a file by boto3 as objects of a pack's length, one after the other."""
        with open(path, "rb") as file:
            for index in range(-(-path.stat().st_size // OBJECT_BYTE_COUNT)):
                self.call("put", f"{path.name}/{index}", Body=file.read(OBJECT_BYTE_COUNT), IfNoneMatch="*")


def seconds(width, call, arguments):
    """What calls on so many threads take in all."""
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(width) as pool:
        list(pool.map(call, arguments))
    return time.monotonic() - start


@row("machines", "a store in a bucket: imports, ranges, catching up on a million chunks", {
    ("import", "the lesser of boto3 and a folder"): 0.9, ("import by four machines", "four boto3"): 0.8})
def machines(bench):
    with contextlib.closing(Bucket(bench)) as bucket:
        measure_import(bench, bucket, bucket.file("import", bench.count(256 << 20)))
        # A machine that has seen nothing; the other's opening counts requests without ranges.
        asked = {}
        for name, count in (("import-first", 1), ("import-second", 200)):
            bucket.tool("sync", name)
            before = bucket.requests()
            place, state = bucket.at(name)
            usage = bench.run(["StoreBench", "range", place, count, state])
            asked[count] = bucket.requests() - before
        bench.add("64 KiB range not held here", OURS, usage.json()["range"]["median"] / 1e3, "ms", usage)
        bench.add("64 KiB range not held here: requests", OURS, (asked[200] - asked[1]) / 199, "")
        place, state = bucket.at("chunks")
        bench.run(["StoreBench", "fill", place, bench.count(10**6), "off", state])
        usage = bucket.tool("sync", "chunks-new")
        bench.add("catching up", OURS, usage.seconds, "s", usage)
    with contextlib.closing(Bucket(bench)) as bucket:
        paths = [bucket.file(f"four-{index}", bench.count(128 << 20)) for index in range(4)]
        bucket.tool("init", "four")
        imports = {"four boto3": bucket.put_objects, OURS: lambda path: bucket.tool("import", path.name, path)}
        for program, call in imports.items():
            taken = seconds(4, call, paths)
            bench.add("import by four machines", program, 4 * paths[0].stat().st_size / taken / 1e6, "MB/s")


def measure_import(bench, bucket, path):
    limit = path.stat().st_size / seconds(1, bucket.put_objects, [path]) / 1e6
    folder = bench.work / "folder"
    bench.run(["blobtool", "init", "--store", folder])
    local = bench.run(["blobtool", "import", "--store", folder, path])
    shutil.rmtree(folder)
    bucket.tool("init", "import")
    before = bucket.requests()
    usage = bucket.tool("import", "import", path, "--json")
    asked = bucket.requests() - before
    rates = {"boto3, objects of 64 MiB": limit, f"{OURS}, a folder": path.stat().st_size / local.seconds / 1e6}
    rates["the lesser of boto3 and a folder"] = min(rates.values())
    for program, rate in rates.items():
        bench.add("import", program, rate, "MB/s")
    bench.add("import", OURS, path.stat().st_size / usage.seconds / 1e6, "MB/s", usage)
    bench.add("import: requests for 16 MiB stored", OURS, asked / usage.json()["storedByteCount"] * (16 << 20), "")
