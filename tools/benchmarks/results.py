"""What was measured: samples of figures, by row and program, one for each round."""

import json
from statistics import median


class Results:
    """Samples by row and program. The store's own are under the name "blobtool", as those of the peers under theirs.

    A row has one unit: seconds, microseconds (`µs`), bytes, `B/s` and so on; `is_rate` rows are better when higher.
    """

    def __init__(self):
        self.rows = {}
        self.notes = []
        self.machine = {}
        self.versions = {}
        self.data = {}
        self.options = {}

    def add(self, row, program, value, unit="s", kind="store"):
        """Notes a sample. Kind: `store` for ours, `peer` or `limit`."""
        entry = self.rows.setdefault(row, {"unit": unit, "programs": {}})
        place = entry["programs"].setdefault(program, {"kind": kind, "samples": []})
        place["samples"].append(value)

    def note(self, text):
        """Something left out, and why."""
        if text not in self.notes:
            self.notes.append(text)

    def has(self, row, program="blobtool"):
        return row in self.rows and program in self.rows[row]["programs"]

    def samples(self, row, program="blobtool"):
        return self.rows[row]["programs"][program]["samples"]

    def median(self, row, program="blobtool"):
        return median(self.samples(row, program))

    def ratio(self, row, program, is_rate=False, own_row=None):
        """How many times faster the store was than a program: the median over the rounds. None: not measured."""
        own_row = own_row or row
        if not self.has(own_row) or not self.has(row, program):
            return None
        pairs = zip(self.samples(own_row), self.samples(row, program))
        return median((own / other if is_rate else other / own) for own, other in pairs if own > 0 and other > 0)

    def best(self, row, kind):
        """The peer, or limit, with the best median: its name, or None."""
        if row not in self.rows:
            return None
        names = [name for name, entry in self.rows[row]["programs"].items() if entry["kind"] == kind]
        choose = max if self.rows[row]["unit"] == "B/s" else min
        return choose(names, key=lambda name: self.median(row, name)) if names else None

    def save(self, path):
        path.write_text(json.dumps(self.__dict__, indent=1, ensure_ascii=False) + "\n")

    @staticmethod
    def load(path):
        results = Results()
        results.__dict__.update(json.loads(path.read_text()))
        return results
