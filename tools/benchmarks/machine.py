"""The machine, and the versions of what was measured."""

import os
import subprocess
from pathlib import Path

from programs import Borg, Casync, Restic, Zstd, B3sum

PACKAGES = ["librocksdb7.8", "liblmdb0", "libsqlite3-0", "libzstd1"]


def describe(folder):
    """The facts that absolute figures depend on."""
    cpu = field("/proc/cpuinfo", "model name") or os.uname().machine
    flags = (field("/proc/cpuinfo", "flags") or "").split()
    memory = int((field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) << 10
    done = subprocess.run(["df", "--output=fstype", folder], capture_output=True, text=True)
    return {
        "processor": cpu, "cores": os.cpu_count(),
        "instructions": [flag for flag in ("avx2", "avx512f", "sha_ni") if flag in flags],
        "memory": f"{memory / 2**30:.0f} GiB", "fileSystem": (done.stdout.split() or ["?"])[-1],
        "kernel": f"{os.uname().sysname} {os.uname().release.split('-')[0]}", "system": system(),
    }


def field(path, name):
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def system():
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return "?"


def versions(repository):
    found = {kind.name.split()[0]: kind.version() for kind in (Restic, Borg, Casync, Zstd, B3sum)}
    for name in PACKAGES:
        done = subprocess.run(
            ["dpkg-query", "--show", "--showformat=${Version}", name], capture_output=True, text=True)
        if done.returncode == 0:
            found[name] = done.stdout
    done = subprocess.run(["swift", "--version"], capture_output=True, text=True)
    found["swift"] = (done.stdout.splitlines() or ["?"])[0].removeprefix("Swift version ").split()[0]
    done = subprocess.run(
        ["git", "-C", repository, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True)
    found["blobtool"] = done.stdout.strip() or "?"
    return found
