"""Puts and gets many small blobs with diskcache, as `StoreBench images` does, and prints the same JSON.

usage: small_diskcache.py LIST ORDER FOLDER relaxed|durable
"""

import json
import sys
import time
from pathlib import Path

import diskcache


def summary(seconds):
    seconds = sorted(seconds)
    return {
        "median": seconds[len(seconds) // 2] * 1e6, "p99": seconds[len(seconds) * 99 // 100] * 1e6,
        "mean": sum(seconds) / len(seconds) * 1e6,
    }


def timed(seconds, work, *arguments):
    start = time.perf_counter()
    result = work(*arguments)
    seconds.append(time.perf_counter() - start)
    return result


def main():
    names, order, folder, durability = sys.argv[1:]
    images = [(path, Path(path).read_bytes()) for path in Path(names).read_text().splitlines()]
    # synchronous: 2 is full, 1 is normal, diskcache's own choice. Its files are never synced.
    options = {"sqlite_synchronous": 2 if durability == "durable" else 1, "size_limit": 1 << 40}
    cache = diskcache.Cache(folder, **options)
    puts, gets, byte_count = [], [], 0
    for key, value in images:
        timed(puts, cache.set, key, value)
    closing = []
    timed(closing, cache.close)
    cache = diskcache.Cache(folder, **options)
    for key in Path(order).read_text().splitlines():
        byte_count += len(timed(gets, cache.get, key))
    if byte_count != sum(len(value) for _, value in images):
        raise SystemExit("small_diskcache: what was got is not what was put")
    print(json.dumps({
        "put": summary(puts), "get": summary(gets), "putSeconds": sum(puts), "closeSeconds": closing[0],
        "count": len(images),
    }))


main()
