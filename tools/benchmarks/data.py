"""The data sets: made once, kept in a folder. Most come from public packages, the same on every machine."""

import functools, gzip, json, os, random, shutil, subprocess, sys, tarfile
from pathlib import Path

# Binaries and text, in the order in which they stand in the mixed file.
MIXED = (
    "libllvm15 qtbase5-doc-html libqt5webenginecore5 rust-src libreoffice-core libboost1.74-doc gcc-12 cmake-doc "
    "libclang-cpp14 mame-data valgrind gimp-help-en octave-doc").split()
DOCUMENTATION = ["cmake-doc", "libboost1.74-doc", "octave-doc", "golang-1.19-src"]
TREE = ["libboost1.74-dev", "golang-1.19-src"]
PHOTOGRAPHS = ["plasma-workspace-wallpapers", "mate-backgrounds", "gnome-backgrounds", "ukui-wallpapers"]
ICONS = (
    "mate-icon-theme gnome-icon-theme oxygen-icon-theme moka-icon-theme tango-icon-theme elementary-xfce-icon-theme "
    "faenza-icon-theme tuxpaint-stamps-default").split()
RELEASES = {
    "SQLAlchemy": [f"1.4.{number}" for number in range(36, 52)],
    "sympy": "1.4 1.5 1.5.1 1.6 1.6.1 1.6.2 1.7 1.7.1 1.8 1.9 1.10 1.10.1 1.11 1.11.1 1.12 1.12.1".split(),
}


def data_set(make):
    """Makes a set at its first use, under another name until it is whole, and returns its path."""

    @functools.wraps(make)
    def made(self, *arguments):
        path = self.folder / "-".join([make.__name__, *map(str, arguments)])
        if not path.exists():
            print(f"Making the data set {path.name} …", file=sys.stderr)
            unfinished = path.with_name(f".unfinished-{path.name}")
            subprocess.run(["rm", "-rf", unfinished], check=True)
            make(self, unfinished, *arguments)
            unfinished.rename(path)
        return path

    return made


class Data:
    """A folder of data sets."""

    def __init__(self, folder):
        self.folder = Path(folder).expanduser().absolute()
        (self.folder / "downloads").mkdir(parents=True, exist_ok=True)

    @data_set
    def blobs(self, to, count, byte_count=10_000, key_count=7):
        """Blobs that begin as a JPEG does, and are random bytes; `order` has their names in random order."""
        to.mkdir()
        names = [f"{number:07}{random.Random(number).randbytes(20).hex()[7:key_count]}" for number in range(count)]
        names = random.Random(1).sample(names, count)
        (to / "order").write_text("\n".join(names) + "\n")
        for name in names:
            (to / name).write_bytes(b"\xff\xd8\xff\xe0" + random.Random(name).randbytes(byte_count - 4))

    @data_set
    def noise(self, to, byte_count):
        """A file of random bytes."""
        more = random.Random(1).randbytes
        to.write_bytes(b"".join(more(min(1 << 24, byte_count - start)) for start in range(0, byte_count, 1 << 24)))

    # From Debian packages

    @data_set
    def mixed(self, to):
        """A tar of binaries and text, cut at 1 GiB."""
        self._tar(to, {f"{name}/": self.package(name) for name in MIXED})
        if to.stat().st_size < 1 << 30:
            raise SystemExit("The packages of the mixed file hold less than 1 GiB.")
        os.truncate(to, 1 << 30)

    @data_set
    def edited(self, to):
        """The mixed file with 200 small edits at random places: 1 to 100 bytes overwritten, put in or taken out."""
        numbers, source = random.Random(5), self.mixed()
        length = source.stat().st_size
        with open(source, "rb") as reader, open(to, "wb") as writer:
            for place in [*sorted(numbers.sample(range(length - 1_000), 200)), length]:
                # A megabyte at a time: the system reports at least this process's peak memory for later programs.
                while reader.tell() < place:
                    writer.write(reader.read(min(place - reader.tell(), 1 << 20)))
                edited, kind = numbers.randint(1, 100), numbers.choice(["overwrite", "insert", "remove"])
                if kind != "remove" and place < length:
                    writer.write(numbers.randbytes(edited))
                if kind != "insert":
                    reader.seek(edited, os.SEEK_CUR)

    @data_set
    def files(self, to):
        """20,000 small files of a library and of a language's sources, in their folders."""
        self._sample(to, TREE, 20_000)

    @data_set
    def documentation(self, to):
        """9,525 files of manuals and of a language's sources, in their folders."""
        self._sample(to, DOCUMENTATION, 9_525)

    @data_set
    def photographs(self, to):
        """About 200 MB of photographs."""
        self._pictures(to, PHOTOGRAPHS, {".jpg", ".jpeg", ".png", ".webp"})

    @data_set
    def photographs_tar(self, to):
        self._tar(to, {"": self.photographs()})

    @data_set
    def icons(self, to):
        """Icons and clip art with their natural duplicates."""
        self._pictures(to, ICONS, {".png", ".svg", ".svgz"})

    @data_set
    def package(self, to, name):
        """The files of a Debian package, downloaded and unpacked, not installed."""
        # apt drops its rights to a user that may not write here, and says so: no matter.
        archive = self._downloaded(["apt-get", "-qq", "download", name], f"{name}_*.deb")
        subprocess.run(["dpkg-deb", "--extract", archive, to], check=True)
        archive.unlink()

    def _sample(self, to, packages, count):
        found = [(name, path) for name in packages for path in files_below(self.package(name))]
        files = [(name, path) for name, path in found if path.stat().st_size > 0]
        for name, path in random.Random(1).sample(files, count):
            copy(path, to / name / path.relative_to(self.package(name)))

    def _pictures(self, to, packages, suffixes):
        for name in packages:
            for path in files_below(self.package(name)):
                if path.suffix.lower() in suffixes:
                    copy(path, to / name / path.relative_to(self.package(name)))

    @staticmethod
    def _tar(to, folders):
        """A tar of the files of folders, each below a prefix: the same whenever it is made."""
        with tarfile.open(to, "w") as archive:
            for prefix, folder in folders.items():
                for path in files_below(folder):
                    information = tarfile.TarInfo(f"{prefix}{path.relative_to(folder)}")
                    information.size = path.stat().st_size
                    with open(path, "rb") as source:
                        archive.addfile(information, source)

    # From PyPI

    @data_set
    def tars(self, to, project):
        """16 releases of a project, as plain tars; nothing of them is run."""
        to.mkdir()
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        for number, release in enumerate(RELEASES[project]):
            archive = self._downloaded([*pip, f"{project}=={release}"], f"{project}-{release}.tar.gz")
            with gzip.open(archive) as source, open(to / f"{number:02}-{archive.stem}", "wb") as target:
                shutil.copyfileobj(source, target)
            archive.unlink()

    @data_set
    def python(self, to, name):
        """A Python package, to be put on Python's path."""
        self._downloaded([sys.executable, "-m", "pip", "install", "--quiet", "--target", to, name], "")

    def _downloaded(self, words, pattern):
        """Runs a command, and returns the file that it left."""
        done = subprocess.run(words, cwd=self.folder / "downloads", capture_output=True, text=True)
        found = sorted((self.folder / "downloads").glob(pattern or "*"))
        if done.returncode != 0 or pattern and not found:
            raise SystemExit(f"`{' '.join(map(str, words))}` failed; try `apt-get update`: {done.stderr[-300:]}")
        return found[-1] if found else None

    # From what apt knows of packages

    @data_set
    def documents(self, to):
        """1,500 JSON documents of 1 to 100 KB, one for each source package, in 8 versions, a folder each."""
        chance, sources = random.Random(1), {}
        for fields in stanzas():
            sources.setdefault(fields.get("Source", fields["Package"]).split(" ")[0], []).append(fields)
        documents = ({"source": name, "packages": sources[name]} for name in sorted(sources))
        chosen = [document for document in documents if 1_000 <= len(json.dumps(document, indent=1)) <= 100_000]
        chosen = chance.sample(chosen, 1_500)
        for version in range(8):
            (to / f"v{version}").mkdir(parents=True)
            for document in chosen:
                (to / f"v{version}" / f"{document['source']}.json").write_text(json.dumps(document, indent=1))
                next_version(document, chance)

    @data_set
    def small_documents(self, to):
        """2,600 JSON documents of 0.3 to 5 KB, one for each binary package."""
        to.mkdir()
        chosen = [fields for fields in stanzas() if 300 <= len(json.dumps(fields, indent=1)) <= 5_000]
        for fields in random.Random(2).sample(chosen, 2_600):
            (to / f"{fields['Package']}.json").write_text(json.dumps(fields, indent=1))


def stanzas():
    """The fields of every binary package that apt knows, in the order of apt."""
    text = subprocess.run(["apt-cache", "dumpavail"], check=True, capture_output=True).stdout
    for stanza in text.decode("utf-8", "replace").split("\n\n"):
        # A line that begins with a space goes on the field before.
        lines = stanza.replace("\n ", "\r").replace("\n\t", "\r").split("\n")
        fields = dict(line.replace("\r", "\n").split(": ", 1) for line in lines if ": " in line)
        if "Package" in fields:
            yield fields


def next_version(document, chance):
    """Changes a document as its next version might: numbers, checksums, now and then a sentence or a dependency."""
    number = chance.randrange(100)
    for package in document["packages"]:
        package["Version"] = package["Version"].split("+")[0] + f"+{number}"
        package["Size"] = str(int(package.get("Size", 0)) + chance.randrange(2_000))
        for field in ("SHA256", "MD5sum"):
            package[field] = chance.randbytes(len(package.get(field, "")) // 2).hex()
        depends = package.get("Depends", "").split(", ")
        if chance.random() < 0.2 and len(depends) > 1:
            package["Depends"] = ", ".join(depends[1:])
        if chance.random() < 0.1:
            package["Description"] = package.get("Description", "") + f"\nChange {number} of it was made for users."


def files_below(root):
    """Regular files, not links, in an order that does not depend on the file system."""
    found = [Path(folder) / name for folder, _, names in os.walk(root) for name in names]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def byte_count(path):
    """The bytes of a file, or of all files below a folder."""
    return sum(file.stat().st_size for file in ([path] if path.is_file() else files_below(path)))


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
