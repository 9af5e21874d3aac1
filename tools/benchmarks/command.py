"""Running a command and measuring it: wall time, CPU time and the most memory it had."""

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass


@dataclass
class Usage:
    seconds: float
    cpu_seconds: float
    memory_byte_count: int
    output: str = ""


def run(words, folder=None, environment=None, discards_output=False, ok=(0,)):
    """Runs a command to its end. Its output is kept as text, or goes to /dev/null.

    Children that it waits for count too, as in a pipe of the shell.
    """
    words = [str(word) for word in words]
    surroundings = dict(os.environ, **(environment or {}))
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            words, cwd=folder, env=surroundings, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if discards_output else output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in ok:
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
            raise SystemExit(f"`{' '.join(words)}` ended with {process.returncode}: {' '.join(last)}")
        output.seek(0)
        return Usage(
            seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10,
            "" if discards_output else output.read().decode(errors="replace"))


def shell(text, **options):
    """Runs a line of the shell."""
    return run(["bash", "-o", "pipefail", "-c", text], **options)


def run_json(words, **options):
    """Runs a command that prints a JSON object: the object, and what the command used."""
    usage = run(words, **options)
    return json.loads(usage.output), usage


def settle():
    """What was written before is not to disturb what is measured next."""
    os.sync()


def drop_page_cache():
    """Forgets what the system has read from the disk; false where that is not allowed."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3\n")
        return True
    except OSError:
        return False


def warm(path):
    """Brings a file, or all files below a folder, into the page cache."""
    subprocess.run(["bash", "-c", 'find "$0" -type f -print0 | xargs -0 cat > /dev/null', str(path)], check=True)
