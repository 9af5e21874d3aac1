"""Runs processes of several machines on one store and kills them: see `tools/machines-trial`."""

import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOOL, SECONDS, SEED = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
ENGINE = pathlib.Path(__file__).resolve().parent.parent / ".build" / "engine"
STORE = f"s3://blob-storage/trial-{os.urandom(4).hex()}"
KILLED = -signal.SIGKILL
# A collector that others wait for, or a writer that was waited for too long, says so and does nothing.
REFUSALS = {5: "busy"}


class Trial:
    """What was reported, by all machines."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="machines-trial."))
        self.lock = threading.Lock()
        self.end = time.monotonic() + SECONDS
        # Prefix of an import that was reported done: the digest of each of its keys.
        self.done = {}
        # Prefixes of which a deletion was reported done.
        self.deleted = set()
        self.being_read = set()
        self.counts = {}
        self.wrong = []

    def count(self, what, by=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + by

    def fail(self, what):
        with self.lock:
            self.wrong.append(what)
        print(what, file=sys.stderr)

    def runs(self):
        return time.monotonic() < self.end

    def run(self, machine, chance, *arguments):
        """Runs a command on a machine; returns its exit status, output and messages. Killed with that probability."""
        command = [TOOL, arguments[0], "--store", STORE, "--state", str(self.folder / machine), *arguments[1:]]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        timer = None
        if random.random() < chance:
            # Half of them at the very beginning or end of what commands take here.
            timer = threading.Timer(random.choice([random.uniform(0, 0.3), random.uniform(0, 4)]), process.kill)
            timer.start()
        output, messages = process.communicate()
        if timer:
            timer.cancel()
        status = process.returncode
        messages = messages.decode(errors="replace").strip()
        self.count(f"{arguments[0]}: " + {0: "done", KILLED: "killed"}.get(status, f"exit {status}"))
        if "another machine collected garbage" in messages.lower():
            self.count("writers that were fenced")
        elif status not in (0, KILLED) and status not in REFUSALS:
            self.fail(f"{machine}: {' '.join(arguments)}: exit {status}: {messages}")
        return status, output, messages


def make_files(folder, generator, shared):
    """Some files: bytes of their own, text, and what other machines import too. Returns the digest of each name."""
    digests = {}
    folder.mkdir()
    for index in range(generator.randrange(5, 40)):
        kind = generator.random()
        if kind < 0.3:
            content = generator.choice(shared)
        elif kind < 0.6:
            content = generator.randbytes(generator.randrange(1, 200_000))
        elif kind < 0.9:
            content = (f"{generator.random()} line\n" * generator.randrange(1, 20_000)).encode()
        else:
            content = generator.randbytes(generator.randrange(1, 4_000_000))
        (folder / f"{index}").write_bytes(content)
        digests[f"{index}"] = hashlib.sha256(content).hexdigest()
    return digests


def import_(trial, machine, seed, shared):
    generator = random.Random(seed)
    generation = 0
    mine = []
    while trial.runs():
        generation += 1
        prefix = f"{machine}/{generation}/"
        folder = trial.folder / f"{machine}-files"
        digests = make_files(folder, generator, shared)
        # Killed ones are imported again, up to some time: the same keys, which may be there in part.
        for chance in (0.5, 0.5, 0.3, 0, 0, 0):
            status, _, _ = trial.run(machine, chance, "import", str(folder), "--prefix", prefix, "--json")
            if status == 0:
                with trial.lock:
                    trial.done[prefix] = {prefix + name: digest for name, digest in digests.items()}
                mine.append(prefix)
                break
        shutil.rmtree(folder)
        if len(mine) > 2 and generator.random() < 0.6:
            old = mine[generator.randrange(len(mine) - 1)]
            with trial.lock:
                if old in trial.being_read:
                    continue
                # From here on it may be there or not.
                del trial.done[old]
            mine.remove(old)
            if trial.run(machine, 0.2, "delete", "--prefix", old)[0] == 0:
                with trial.lock:
                    trial.deleted.add(old)


def read(trial):
    while trial.runs():
        with trial.lock:
            if not trial.done:
                prefix = None
            else:
                prefix = random.choice(list(trial.done))
                trial.being_read.add(prefix)
                key, digest = random.choice(list(trial.done[prefix].items()))
        if prefix is None:
            time.sleep(0.5)
            continue
        status, output, messages = trial.run("reader", 0.1, "get", key)
        if status == 0 and hashlib.sha256(output).hexdigest() != digest:
            trial.fail(f"reader: {key} has other bytes")
        with trial.lock:
            trial.being_read.discard(prefix)


def collect(trial):
    while trial.runs():
        status, output, _ = trial.run("collector", 0.3, "gc", "--json")
        if status == 0:
            report = json.loads(output)
            trial.count("packs deleted", report["packsDeleted"])
            trial.count("packs compacted", report["packsCompacted"])
        time.sleep(random.uniform(0, 3))


def break_disks(trial):
    while trial.runs():
        time.sleep(random.uniform(5, 15))
        disk = random.randrange(3)
        try:
            os.kill(int((ENGINE / "run" / f"osd.{disk}.pid").read_text()), signal.SIGKILL)
        except (OSError, ValueError):
            continue
        trial.count("disks killed")
        time.sleep(random.uniform(1, 8))
        subprocess.run([ENGINE.parent.parent / "tools" / "engine", "up"], stdout=subprocess.DEVNULL, check=True)


def play(trial, actor, *arguments):
    try:
        actor(trial, *arguments)
    except Exception as error:  # It would end its thread and nothing else.
        trial.fail(f"{actor.__name__}: {error!r}")


def check(trial):
    """Looks at all of it from a machine that has never seen the store."""
    status, output, messages = trial.run("newcomer", 0, "verify", "--json")
    if status != 0:
        trial.fail(f"verify: {output.decode()} {messages}")
    else:
        trial.counts["blobs verified"] = json.loads(output)["blobs"]
    listed = [json.loads(line)["key"] for line in trial.run("newcomer", 0, "list", "--json")[1].splitlines()]
    for key in listed:
        if any(key.startswith(prefix) for prefix in trial.deleted):
            trial.fail(f"{key} is there again, though its deletion was reported done")
    target = trial.folder / "exported"
    trial.run("newcomer", 0, "export", str(target))
    for keys in trial.done.values():
        for key, digest in keys.items():
            try:
                content = (target / key).read_bytes()
            except OSError as error:
                trial.fail(f"{key} was reported done and is not there: {error}")
                continue
            trial.count("files checked")
            if hashlib.sha256(content).hexdigest() != digest:
                trial.fail(f"{key} has other bytes")


def main():
    random.seed(SEED)
    generator = random.Random(SEED)
    shared = [generator.randbytes(generator.randrange(1, 300_000)) for _ in range(20)]
    trial = Trial()
    if trial.run("maker", 0, "init")[0] != 0:
        shutil.rmtree(trial.folder, ignore_errors=True)
        sys.exit(1)
    actors = [
        threading.Thread(target=play, args=(trial, import_, f"importer{i}", SEED + i, shared)) for i in range(3)]
    actors += [threading.Thread(target=play, args=(trial, actor)) for actor in (read, collect, break_disks)]
    for actor in actors:
        actor.start()
    for actor in actors:
        actor.join()
    play(trial, check)
    shutil.rmtree(trial.folder)
    for what in ("import: done", "get: done", "gc: done", "disks killed", "files checked"):
        if what not in trial.counts:
            trial.fail(f"nothing was counted of “{what}”: it was tried for too short a time")
    print(json.dumps({"seconds": SECONDS, "seed": SEED, "wrong": trial.wrong, **dict(sorted(trial.counts.items()))}))
    sys.exit(1 if trial.wrong else 0)


if __name__ == "__main__":
    main()
