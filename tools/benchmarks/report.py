"""The report: a Markdown page and charts, from the results of one run."""

from statistics import median

import charts
from figures import figures, short_count
from programs import STORE

PAGE = "Sources/BlobStorage/BlobStorage.docc/Performance.md"
RESOURCES = "Sources/BlobStorage/BlobStorage.docc/Resources"
BEGIN, END = "<!-- numbers: begin; renewed by tools/bench -->", "<!-- numbers: end -->"

SETS = {
    "mixed": "one mixed file of binaries and text", "photographs": "photographs", "tree": "small files",
    "releases": "16 releases of one project as tars", "icons": "icons and clip art",
    "documents": "JSON documents of 8 releases", "images": "images one by one",
}
STEPS = {
    "import": "import into an empty store", "again": "import again, read in full", "edited": "import with 200 edits",
    "read": "read and discarded", "verify": "verify everything", "export": "export to files",
}
GROWTH = [
    ("open", "µs"), ("get", "µs"), ("put", "µs"), ("duplicate", "µs"), ("list", "µs a key"), ("mark", "chunks/s"),
    ("memory, own", "B"), ("memory, with mapped pages", "B"), ("catalog", "B a chunk"), ("fill", "µs a chunk"),
]


def write(results, folder):
    """Writes report.md and its charts."""
    (folder / "report.md").write_text("# Performance\n\n## Numbers\n\n" + "\n".join(body(results, "")) + "\n")
    write_charts(results, folder, "")


def renew_page(results, repository):
    """Puts the numbers and charts of a run on the page of the documentation; what is written round them stays."""
    page = repository / PAGE
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"tools/bench: {PAGE} has no place for the numbers.")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    numbers = "\n".join(body(results, "performance-"))
    page.write_text(f"{before}{BEGIN}\n\n{numbers}\n{END}{after}")
    folder = repository / RESOURCES
    folder.mkdir(exist_ok=True)
    write_charts(results, folder, "performance-")


def write_charts(results, folder, prefix):
    if any(check.share for figure in figures(results) for check in figure.checks):
        (folder / f"{prefix}figures.svg").write_text(charts.figure_chart(figures(results)))
    groups = []
    for step, title in STEPS.items():
        if results.has(f"mixed {step}"):
            groups.append((title, bars(results, f"mixed {step}")))
    if groups:
        (folder / f"{prefix}mixed.svg").write_text(charts.bar_chart("The mixed file", groups, "s"))
    groups = [(row, bars(results, row)) for row in ("put relaxed", "put durable", "get relaxed") if results.has(row)]
    if groups:
        (folder / f"{prefix}images.svg").write_text(charts.bar_chart("Images one by one", groups, "µs"))
    series = growth_series(results)
    if series:
        (folder / f"{prefix}growth.svg").write_text(charts.growth_chart(series))


def bars(results, row):
    programs = results.rows[row]["programs"]
    return sorted(
        ((name, entry["kind"], median(entry["samples"]), min(entry["samples"]), max(entry["samples"]))
         for name, entry in programs.items()), key=lambda bar: bar[2])


def body(results, prefix):
    """The lines of the report below its title."""
    yield from how(results)
    yield ""
    yield "### Figures to reach"
    yield ""
    yield "| work | at least | measured | |"
    yield "| --- | --- | --- | --- |"
    for figure in figures(results):
        measured = "; ".join(check.text for check in figure.checks)
        yield f"| {figure.work} | {figure.aim} | {measured} | {figure.verdict} |"
    yield ""
    yield f"![How much of each figure was reached]({prefix}figures.svg)"
    for name, title in SETS.items():
        if results.has(f"{name} import"):
            yield ""
            yield from whole_store(results, name, title)
            if name == "mixed":
                yield ""
                yield f"![The mixed file by every program]({prefix}mixed.svg)"
    if results.has("put relaxed"):
        yield ""
        yield from small_blobs(results, prefix)
    yield from inside(results)
    if growth_series(results):
        yield ""
        yield from growth(results, prefix)
    for note in results.notes:
        yield ""
        yield note


def how(results):
    machine, options = results.machine, results.options
    yield (
        f"Measured by `{options['command']}` in {options['seconds'] // 60} min {options['seconds'] % 60} s on"
        f" {machine['cores']} cores of {machine['processor']} ({', '.join(machine['instructions']) or 'no vectors'};"
        f" {'with' if 'sha_ni' in machine['instructions'] else 'without'} SHA instructions), {machine['memory']},"
        f" {machine['fileSystem']}, {machine['system']}, {machine['kernel']}.")
    yield (
        f"{options['runs']} round{'s' if options['runs'] > 1 else ''}; in each, every program does one step before any does the next. Medians, with the"
        " least and the most; ratios are medians of those within a round, above 1 where the store is faster. Data in"
        " the page cache, a fresh folder for each program, verification on. CPU is user and system time of all"
        " threads.")
    yield ""
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in results.versions.items()) + "."
    yield ""
    yield "| data | files | MB |"
    yield "| --- | ---: | ---: |"
    for name, facts in results.data.items():
        yield f"| {SETS[name]} | {facts['fileCount']:,} | {facts['byteCount'] / 1e6:,.0f} |"


def whole_store(results, name, title):
    plain = results.data[name]["byteCount"]
    yield f"### {title[0].upper()}{title[1:]}"
    yield ""
    yield "| step | program | s: median (least – most) | MB/s | CPU s | memory MB | store is faster by | result |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for step, step_title in STEPS.items():
        row = f"{name} {step}"
        if not results.has(row):
            continue
        best = results.best(row, "peer")
        for program, kind, middle, least, most in bars(results, row):
            shown = f"**{program}**" if program == STORE else f"{program} (limit)" if kind == "limit" else program
            ratio = "" if program == STORE else f"{results.ratio(row, program):.2f} ×"
            if program == best:
                ratio = f"**{ratio}**"
            memory = f"{row} memory"
            memory = f"{max(results.samples(memory, program)) / 1e6:.0f}" if results.has(memory, program) else ""
            yield (
                f"| {step_title} | {shown} | {middle:.2f} ({least:.2f} – {most:.2f}) | {plain / middle / 1e6:,.0f} |"
                f" {results.median(f'{row} CPU', program):.2f} | {memory} | {ratio} |"
                f" {outcome(results, name, step, program)} |")
            step_title = ""


def outcome(results, name, step, program):
    """What was stored, or added."""
    row = {"import": f"{name} stored", "edited": f"{name} edited bytes"}.get(step)
    if not row or not results.has(row, program):
        return ""
    byte_count = results.median(row, program)
    return f"{byte_count / 1e6:,.1f} MB {'stored' if step == 'import' else 'added'}" if byte_count > 1e5 else ""


def small_blobs(results, prefix):
    yield "### Images one by one"
    yield ""
    yield (
        "Each put by itself, by one thread; then the store is opened anew and all are got in random order. µs: median"
        " (least – most of the rounds' medians); mean in brackets.")
    yield ""
    yield "| program | put, relaxed | put, durable | get, random order |"
    yield "| --- | ---: | ---: | ---: |"
    for program, kind, *_ in bars(results, "put relaxed"):
        shown = f"**{program}**" if program == STORE else f"{program} (limit)" if kind == "limit" else program
        cells = []
        for row in ("put relaxed", "put durable", "get relaxed"):
            samples = results.samples(row, program)
            cells.append(
                f"{median(samples):.1f} ({min(samples):.1f} – {max(samples):.1f})"
                f" [{results.median(f'{row} mean', program):.1f}]")
        yield f"| {shown} | {' | '.join(cells)} |"
    yield ""
    if results.has("put durable, 8 threads"):
        yield (
            f"With 8 threads the store puts {results.median('put durable, 8 threads'):,.0f} images a second durably;"
            f" with one {results.median('put durable rate'):,.0f}, SQLite"
            f" {results.median('put durable rate', 'SQLite'):,.0f}. diskcache never syncs its files.")
        yield ""
    yield f"![Images one by one by every program]({prefix}images.svg)"


def inside(results):
    rows = [
        ("range compressible", "random 64 KiB range, compressible", "µs", 1),
        ("range incompressible", "random 64 KiB range, incompressible", "µs", 1),
        ("cold compressible", "cold, front to back, compressible", "MB/s", 1e-6),
        ("cold compressible decoding", "the same, warm", "MB/s", 1e-6),
        ("cold incompressible", "cold, front to back, incompressible", "MB/s", 1e-6),
        ("cold incompressible decoding", "the same, warm", "MB/s", 1e-6),
        ("digest 10 KB", "BLAKE3 of 10 KB at a time, one thread", "MB/s", 1e-6),
        ("digest 64 KiB", "BLAKE3 of 64 KiB at a time, one thread", "MB/s", 1e-6),
        ("digest 1 MiB", "BLAKE3 of 1 MiB at a time, one thread", "MB/s", 1e-6),
        ("catalog, similarity off", "catalog, a chunk, similarity off", "B", 1),
        ("catalog, similarity on", "catalog, a chunk, similarity on", "B", 1),
        ("catalog, files", "catalog, a chunk, after importing the mixed file, photographs and releases", "B", 1),
    ]
    rows = [row for row in rows if results.has(row[0])]
    if not rows:
        return
    yield ""
    yield "### Inside one process"
    yield ""
    yield "| work | store: median (least – most) | limit | share of the limit |"
    yield "| --- | ---: | ---: | ---: |"
    for row, title, unit, scale in rows:
        samples = [value * scale for value in results.samples(row)]
        name = results.best(row, "limit")
        limit, share = "", ""
        if name:
            value = results.median(row, name) * scale
            limit = f"{name} {value:,.0f} {unit}"
            share = f"{results.ratio(row, name, is_rate=unit == 'MB/s'):.2f}"
        yield (
            f"| {title} | {median(samples):,.0f} {unit} ({min(samples):,.0f} – {max(samples):,.0f}) | {limit} |"
            f" {share} |")


def growth_series(results):
    series = []
    for work, unit in GROWTH:
        prefix = f"growth {work} "
        points = sorted(
            (int(row.removeprefix(prefix)), results.median(row)) for row in results.rows
            if row.startswith(prefix) and row.removeprefix(prefix).isdigit())
        if points:
            series.append((work, unit, points))
    return series


def growth(results, prefix):
    series = growth_series(results)
    counts = [count for count, _ in series[0][2]]
    yield "### Growth"
    yield ""
    yield (
        "Stores of chunks of 1 KiB on average, random bytes, kept plain; for every hundred chunks a key with a blob of"
        " 200 bytes. Medians of 1,000 operations on the small blobs, relaxed; open is the median of five.")
    yield ""
    yield "| work | " + " | ".join(f"{short_count(count)} chunks" for count in counts) + " |"
    yield "| --- | " + " | ".join("---:" for _ in counts) + " |"
    for work, unit, points in series:
        cells = []
        for _, value in points:
            if work == "open":
                cells.append(f"{value / 1e3:,.1f} ms")
            elif unit == "B":
                cells.append(f"{value / 1e6:,.1f} MB")
            elif unit == "chunks/s":
                cells.append(f"{value / 1e6:.2f} M/s")
            else:
                cells.append(f"{value:,.1f} {unit}")
        yield f"| {work} | {' | '.join(cells)} |"
    yield ""
    yield f"![Everyday work against the number of chunks]({prefix}growth.svg)"
