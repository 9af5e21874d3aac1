"""What all rows share: the list of rows, running and measuring commands, the samples, and the tables made of them."""

import collections, json, os, resource, shutil, subprocess, sys, tempfile, time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
OURS = "blobtool"
ROWS = {}


# `measure` measures one round. Aims are ratios to reach, `{(work, peer): ratio}`; for ours, values.
Row = collections.namedtuple("Row", "title measure aims once")
# One program's samples for one work: a value a round.
Samples = collections.namedtuple("Samples", "kind detail values usages")


def row(name, title, aims=None, once=False):
    """Registers a row. `once`: in the first round only, because what it stores matters more than its speed."""

    def register(measure):
        ROWS[name] = Row(title, measure, aims or {}, once)

    return register


@dataclass
class Usage:
    """What a command used. Those of several commands add up."""

    words: list
    seconds: float
    cpu: float
    memory: int
    output: str

    def __add__(self, other):
        return Usage(self.words, self.seconds + other.seconds, self.cpu + other.cpu, max(self.memory, other.memory), "")

    def json(self):
        """What the command printed; of a list of numbers, the median, mean and 99th percentile."""
        found = json.loads(self.output)
        for name, values in found.items():
            if isinstance(values, list) and values and isinstance(values[0], (int, float)):
                p99 = sorted(values)[len(values) * 99 // 100]
                found[name] = {"median": median(values), "mean": mean(values), "p99": p99}
        return found


class Bench:
    """One run: its folders and programs, the row and round it is in, and the samples."""

    def __init__(self, scale, data):
        self.scale, self.data, self.round, self.row, self.start = scale, data, 0, "", time.monotonic()
        # By row and work: the unit, and the samples by program.
        self.results = {}
        for left in data.folder.glob("work-*"):
            if not Path(f"/proc/{left.name.split('-')[1]}").exists():
                shutil.rmtree(left, ignore_errors=True)
        # Beside the data: on the same disk.
        self.work = Path(tempfile.mkdtemp(prefix=f"work-{os.getpid()}-", dir=data.folder))

    def say(self, text):
        print(f"[{time.monotonic() - self.start:6.0f} s] {text}", file=sys.stderr, flush=True)

    def count(self, full, least=10):
        """A number of things that are made up, scaled by --scale."""
        return max(least, int(full * self.scale))

    def turned(self, programs):
        """The programs, another one first in each round."""
        turn = self.round % len(programs)
        return programs[turn:] + programs[:turn]

    def build(self):
        """Puts StoreBench, the peers and the tool on the path of commands."""
        self.say("building: some minutes the first time")
        # As one package: what both programs stand on is compiled once.
        for words in ([], ["--product", "blobtool"]):
            done = subprocess.run(["swift", "build", "-c", "release", "--package-path", HERE, *words],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{done.stdout}\ntools/bench: the build failed")
        programs = HERE / ".build/release"
        self.run(["g++", "-std=c++17", "-O2", "-Wall", HERE / "peers.cpp", "-o", programs / "peers", "-lrocksdb",
                  "-llmdb", "-lsqlite3", "-pthread"])
        os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"

    def run(self, words, environment=None, discard=False):
        """Runs a command to its end and measures it with its children."""
        words = [str(word) for word in words]
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as output:
            start = time.perf_counter()
            process = subprocess.Popen(
                words, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if discard else output, stderr=errors)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            errors.seek(0)
            output.seek(0)
            if process.returncode != 0:
                last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
                raise SystemExit(f"`{' '.join(words)}` ended with {process.returncode}: {' '.join(last)}")
            text = output.read().decode(errors="replace")
        # The system reports at least this process's own peak for a child.
        is_known = usage.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return Usage(words, seconds, usage.ru_utime + usage.ru_stime, is_known * usage.ru_maxrss << 10, text)

    def add(self, work, program, value, unit="s", usage=None, detail="", kind=None):
        """Adds this round's sample. A program of the kind `limit` does what any store has to do, and nothing else."""
        programs = self.results.setdefault((self.row, work), (unit, {}))[1]
        kind = kind or ("store" if program.startswith(OURS) else "peer")
        samples = programs.setdefault(program, Samples(kind, detail, [], []))
        samples.values.append(value)
        samples.usages.extend([usage] if usage else [])
        self.say(f"{self.row}: {work}: {program}: {number(value)} {unit} {detail}")

    def report(self, words, rounds):
        """The tables of all rows in Markdown, with what is needed to read them and to run them again."""
        yield f"Measured by `tools/bench {words}`, rounds: {rounds}. " + machine(self.work)
        yield (
            "In each round every program does one step before any does the next. Medians with the least and the most; "
            "ratios are medians of those within a round, above 1 where ours is better. CPU is of all threads.")
        for name, entry in ROWS.items():
            works = {work: value for (row_name, work), value in self.results.items() if row_name == name}
            if works:
                yield from ["", f"### {name}: {entry.title}", "", *table(works, entry.aims), "", "```"]
                yield from [*self.commands(works), "```"]

    def commands(self, works):
        """One command of each program and work, without the folders of this machine."""
        found = [samples.usages[:1] for _, programs in works.values() for samples in programs.values()]
        lines = (" ".join(use.words[-1:] if use.words[0] == "bash" else use.words) for used in found for use in used)
        return dict.fromkeys(
            line.replace(str(self.work), "$WORK").replace(str(self.data.folder), "$DATA") for line in lines)


def table(works, aims):
    yield "| work | program | median (least – most) | CPU s | memory MB | ours is better by | aim |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | --- |"
    for work, (unit, programs) in works.items():
        is_rate = unit.endswith("/s") or unit == "×"
        own = programs[OURS].values if OURS in programs else []
        for program, samples in sorted(programs.items(), key=lambda pair: median(pair[1].values), reverse=is_rate):
            values, usages, aim = samples.values, samples.usages, aims.get((work, program))
            memory = max((usage.memory for usage in usages), default=0)
            pairs = [(ours, other) for ours, other in zip(own, values) if ours > 0 and other > 0 and program != OURS]
            ratio = median(ours / other if is_rate else other / ours for ours, other in pairs) if pairs else None
            is_least = ratio is not None or is_rate
            verdict = ""
            if aim is not None:
                is_reached = (ratio or median(values)) >= aim if is_least else median(values) <= aim
                verdict = f"{'≥' if is_least else '≤'} {aim:g} {'reached' if is_reached else '**not reached**'}"
            yield "| " + " | ".join([
                work, {"store": f"**{program}**", "limit": f"{program} (limit)"}.get(samples.kind, program),
                f"{number(median(values))} ({number(min(values))} – {number(max(values))}) {unit} {samples.detail}",
                number(median(usage.cpu for usage in usages)) if usages else "",
                f"{memory / 1e6:.0f}" if memory else "",
                f"{ratio:.2f} ×" if ratio else "", verdict]) + " |"


def number(value):
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def settle():
    """Forces to the disk what was written before, so that no program pays for another's writing."""
    os.sync()


def stored(path):
    """What a file or folder takes on the disk, in bytes."""
    return int(subprocess.run(["du", "-s", "-B1", path], capture_output=True, text=True, check=True).stdout.split()[0])


def machine(folder):
    """The facts that absolute figures depend on, and the versions of what was measured."""
    packages = "restic borgbackup zstd b3sum librocksdb-dev liblmdb-dev libsqlite3-dev"
    lines = (
        "lscpu | sed -n 's/Model name: *//p'", "nproc", "free -g | sed -n 's/Mem: *\\([0-9]*\\).*/\\1 GiB/p'",
        f"df --output=fstype '{folder}' | tail -1", "uname -sr", "swift --version 2>&1 | grep -o 'Swift [^(]*'",
        f"git -C '{REPOSITORY}' log -1 --format='blobtool %h of %cs'",
        f"dpkg-query -W -f '${{Package}} ${{Version}}\\n' {packages}")
    told = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True).stdout
    return ", ".join(told.splitlines()) + "."
