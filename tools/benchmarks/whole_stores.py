"""Whole stores: sets of files imported, imported again, changed, read, verified and exported by every program."""

import shutil

import data as data_sets
from command import settle, warm
from programs import LIMITS, PEERS, STEPS, STORE, Blobtool


class WholeStores:
    """Runs the programs step by step, so that each step of all of them is measured within a short time."""

    def __init__(self, session):
        self.session = session
        self.results = session.results

    def mixed(self, round_number):
        quick = self.session.is_quick
        sets = self.session.data
        source = sets.mixed_quick() if quick else sets.mixed()
        self._run("mixed", source, round_number, STEPS, edited=sets.edited(quick))

    def photographs(self, round_number):
        self._run("photographs", self.session.data.photographs(), round_number, ["import", "again", "export"])

    def tree(self, round_number):
        self._run("tree", self.session.data.tree(), round_number, ["import", "again", "verify", "export"])

    def releases(self, round_number):
        self._run("releases", self.session.data.releases(), round_number, ["import"])

    def icons(self, round_number):
        self._run("icons", self.session.data.icons(), round_number, ["import"])

    def documents(self, round_number):
        self._run("documents", self.session.data.documents(), round_number, ["import"])

    def _run(self, name, source, round_number, step_names, edited=None):
        results = self.results
        results.data[name] = {
            "byteCount": data_sets.byte_count(source),
            "fileCount": len(data_sets.files_below(source)) if source.is_dir() else 1,
        }
        peers = PEERS[:1] if self.session.is_quick else PEERS
        programs = [
            kind(self.session.work / f"{name}-{round_number}" / kind.__name__)
            for kind in turned([Blobtool, *peers, *LIMITS], round_number)
        ]
        for program in programs:
            program.prepare()
        warm(source)
        if edited:
            warm(edited)
        for step in step_names:
            for program in programs:
                self._step(name, step, program, source, edited)
        for program in programs:
            # Folders full of files stay until the end: creating files is slow for minutes after many were removed.
            if source.is_file():
                shutil.rmtree(program.folder)

    def _step(self, name, step, program, source, edited):
        work = program.steps(source).get(step)
        if work is None:
            return
        results = self.results
        argument = edited if step == "edited" else None
        if step == "export":
            argument = program.output()
        before = program.stored_byte_count() if step == "edited" else 0
        settle()
        usage = work(argument)
        kind = "store" if program.name == STORE else "limit" if program.is_limit else "peer"
        row = f"{name} {step}"
        title = program.names.get(step, program.name)
        results.add(row, title, usage.seconds, "s", kind)
        results.add(f"{row} CPU", title, usage.cpu_seconds, "s", kind)
        if step in ("import", "again", "export"):
            results.add(f"{row} memory", title, usage.memory_byte_count, "B", kind)
        if step == "import":
            results.add(f"{name} stored", program.name, program.stored_byte_count(), "B", kind)
        if step == "edited":
            results.add(f"{name} edited bytes", program.name, program.stored_byte_count() - before, "B", kind)
        if step == "export":
            self._check(program, source, argument)
            if source.is_file():
                shutil.rmtree(argument)
        self.session.say(f"{row}: {title} {usage.seconds:.2f} s, {usage.cpu_seconds:.2f} s CPU")

    def _check(self, program, source, folder):
        """A program that wrote too little was not measured."""
        got = data_sets.byte_count(folder)
        if got < data_sets.byte_count(source):
            raise SystemExit(f"{program.name} exported {got} bytes only of {source}.")


def turned(programs, count):
    """The programs in an order that begins with another one each round."""
    count %= len(programs)
    return programs[count:] + programs[:count]
