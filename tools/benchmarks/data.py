"""The data sets: made once from public packages, the same on every machine, kept in a folder.

A set is done when its folder (or file) stands under its own name; it is made under another name and renamed.
"""

import hashlib
import os
import random
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

MIXED_BYTE_COUNT = 1 << 30

# Binaries and text, in the order in which they stand in the mixed file.
MIXED_PACKAGES = [
    "libllvm15", "qtbase5-doc-html", "libqt5webenginecore5", "rust-src", "libreoffice-core", "libboost1.74-doc",
    "gcc-12", "cmake-doc", "libclang-cpp14", "mame-data", "valgrind", "gimp-help-en", "octave-doc",
]
TREE_PACKAGES = ["libboost1.74-dev", "golang-1.19-src"]
TREE_FILE_COUNT = 20_000
PHOTOGRAPH_PACKAGES = ["plasma-workspace-wallpapers", "mate-backgrounds", "gnome-backgrounds", "ukui-wallpapers"]
ICON_PACKAGES = [
    "mate-icon-theme", "gnome-icon-theme", "oxygen-icon-theme", "moka-icon-theme", "tango-icon-theme",
    "elementary-xfce-icon-theme", "faenza-icon-theme", "tuxpaint-stamps-default",
]
RELEASES = [
    "1.5.1", "1.6", "1.6.1", "1.6.2", "1.7", "1.7.1", "1.8", "1.9", "1.10", "1.10.1", "1.11", "1.11.1", "1.12",
    "1.12.1", "1.13.0", "1.13.3",
]
DOCUMENT_RELEASES = ["1.10.3", "1.12.4", "1.15.2", "1.18.4", "1.20.2", "1.22.7", "1.25.1", "1.28.0"]
IMAGE_COUNT = 10_000


class Data:
    """A folder of data sets."""

    def __init__(self, folder):
        self.folder = Path(folder).expanduser().absolute()
        self.folder.mkdir(parents=True, exist_ok=True)

    # Sets: each makes itself at the first use and returns its path.

    def mixed(self):
        """One file of 1 GiB: a tar of binaries and text, cut."""
        return self._made("mixed.bin", self._make_mixed)

    def mixed_quick(self):
        """The same, every fourth 16 MiB of it: 256 MiB."""
        return self._made("mixed-quick.bin", self._make_mixed_quick)

    def edited(self, quick=False):
        """The mixed file with 200 small edits at random places: overwritten, inserted and removed bytes."""
        source = self.mixed_quick() if quick else self.mixed()
        return self._made("edited-quick.bin" if quick else "edited.bin", lambda to: make_edits(source, to))

    def tree(self):
        """20,000 small files in their folders."""
        return self._made("tree", self._make_tree)

    def photographs(self):
        """About 200 MB of photographs."""
        return self._made("photographs", self._make_photographs)

    def photographs_tar(self):
        """The same as one file."""
        return self._made("photographs.tar", lambda to: make_tar(self.photographs(), to))

    def icons(self):
        """Icons and clip art with their natural duplicates."""
        return self._made("icons", self._make_icons)

    def images(self):
        """10,000 icons of 3 to 40 KB, each once, in one folder: what an image cache holds."""
        return self._made("images", self._make_images)

    def releases(self):
        """16 releases of one project, each as a tar."""
        return self._made("releases", self._make_releases)

    def documents(self):
        """JSON documents of 8 releases, a folder each."""
        return self._made("documents", self._make_documents)

    # How they are made.

    def _made(self, name, make):
        path = self.folder / name
        if path.exists():
            return path
        print(f"Making the data set {name} …", file=sys.stderr)
        unfinished = path.with_name(f".unfinished-{path.name}")
        unfinished.parent.mkdir(exist_ok=True)
        discard(unfinished)
        make(unfinished)
        unfinished.rename(path)
        return path

    def _make_mixed(self, to):
        with open(to, "wb") as target:
            with tarfile.open(fileobj=target, mode="w|") as archive:
                for name in MIXED_PACKAGES:
                    root = self._unpacked(name)
                    for path in files_below(root):
                        information = tarfile.TarInfo(f"{name}/{path.relative_to(root)}")
                        information.size = path.stat().st_size
                        with open(path, "rb") as source:
                            archive.addfile(information, source)
        byte_count = to.stat().st_size
        if byte_count < MIXED_BYTE_COUNT:
            raise SystemExit(f"The packages of the mixed file hold {byte_count} bytes only, not 1 GiB.")
        os.truncate(to, MIXED_BYTE_COUNT)

    def _make_mixed_quick(self, to):
        step = 16 << 20
        with open(self.mixed(), "rb") as source, open(to, "wb") as target:
            for offset in range(0, MIXED_BYTE_COUNT, 4 * step):
                source.seek(offset)
                target.write(source.read(step))

    def _make_tree(self, to):
        files = [(name, path) for name in TREE_PACKAGES for path in files_below(self._unpacked(name))]
        files = [(name, path) for name, path in files if path.stat().st_size > 0]
        chosen = random.Random(1).sample(files, TREE_FILE_COUNT)
        for name, path in sorted(chosen):
            copy(path, to / name / path.relative_to(self._unpacked(name)))

    def _make_photographs(self, to):
        self._copy_images(PHOTOGRAPH_PACKAGES, to, {".jpg", ".jpeg", ".png", ".webp"})

    def _make_icons(self, to):
        self._copy_images(ICON_PACKAGES, to, {".png", ".svg", ".svgz"})

    def _copy_images(self, packages, to, suffixes):
        for name in packages:
            root = self._unpacked(name)
            for path in files_below(root):
                if path.suffix.lower() in suffixes:
                    copy(path, to / name / path.relative_to(root))

    def _make_images(self, to):
        seen = set()
        to.mkdir()
        for path in files_below(self.icons()):
            if not 3_000 <= path.stat().st_size <= 40_000:
                continue
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            if digest in seen:
                continue
            seen.add(digest)
            (to / f"{len(seen):05}-{digest[:16]}{path.suffix}").write_bytes(content)
            if len(seen) == IMAGE_COUNT:
                return
        raise SystemExit(f"The icon packages hold {len(seen)} images of 3 to 40 KB only.")

    def _make_releases(self, to):
        to.mkdir()
        for release in RELEASES:
            wheel = self._wheel("sympy", release)
            with zipfile.ZipFile(wheel) as source, tarfile.open(to / f"sympy-{release}.tar", "w") as archive:
                for name in sorted(source.namelist()):
                    information = tarfile.TarInfo(f"sympy-{release}/{name}")
                    information.size = source.getinfo(name).file_size
                    with source.open(name) as member:
                        archive.addfile(information, member)
            wheel.unlink()

    def _make_documents(self, to):
        for release in DOCUMENT_RELEASES:
            wheel = self._wheel("cfn-lint", release)
            with zipfile.ZipFile(wheel) as source:
                for name in sorted(source.namelist()):
                    if name.endswith(".json"):
                        target = to / release / name
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(source.read(name))
            wheel.unlink()

    # Where they come from.

    def _unpacked(self, name):
        """The files of a Debian package, downloaded and unpacked, not installed."""
        return self._made(f"packages/{name}", lambda to: self._unpack(name, to))

    def _unpack(self, name, to):
        downloads = self.folder / "downloads"
        downloads.mkdir(exist_ok=True)
        # apt drops its rights to a user that may not write here, and says so: no matter.
        done = subprocess.run(["apt-get", "-qq", "download", name], cwd=downloads, capture_output=True, text=True)
        found = sorted(downloads.glob(f"{name}_*.deb"))
        if done.returncode != 0 or not found:
            last = (done.stderr.strip().splitlines() or ["not found"])[-1]
            raise SystemExit(f"The Debian package {name} cannot be downloaded; try `apt-get update`: {last}")
        subprocess.run(["dpkg-deb", "--extract", found[-1], to], check=True)
        with open(self.folder / "sources.txt", "a") as sources:
            sources.write(found[-1].stem + "\n")
        found[-1].unlink()

    def _wheel(self, name, release):
        """A release from PyPI as the zip file that it is; nothing of it is run."""
        downloads = self.folder / "downloads"
        downloads.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
             "--disable-pip-version-check", "--dest", downloads, f"{name}=={release}"],
            capture_output=True, text=True)
        found = sorted(downloads.glob(f"{name.replace('-', '_')}-{release}*.whl"))
        if done.returncode != 0 or not found:
            last = (done.stderr.strip().splitlines() or ["not found"])[-1]
            raise SystemExit(f"{name} {release} cannot be downloaded from PyPI: {last}")
        with open(self.folder / "sources.txt", "a") as sources:
            sources.write(found[-1].stem + "\n")
        return found[-1]


def make_edits(source, to, count=200, seed=5):
    """Copies a file with small edits at random places: 1 to 100 bytes overwritten, put in or taken out."""
    numbers = random.Random(seed)
    length = source.stat().st_size
    places = sorted(numbers.sample(range(length - 1_000), count))
    with open(source, "rb") as reader, open(to, "wb") as writer:
        for place in places:
            if place < reader.tell():
                continue
            copy_bytes(reader, writer, place - reader.tell())
            edited = numbers.randint(1, 100)
            kind = numbers.choice(["overwrite", "insert", "remove"])
            if kind != "remove":
                writer.write(numbers.randbytes(edited))
            if kind != "insert":
                reader.seek(edited, os.SEEK_CUR)
        copy_bytes(reader, writer, length - reader.tell())


def copy_bytes(reader, writer, count):
    """A megabyte at a time: a program that is started later seems to have what memory this one had."""
    while count > 0:
        piece = reader.read(min(count, 1 << 20))
        writer.write(piece)
        count -= len(piece)


def make_tar(folder, to):
    """A tar of a folder's files, the same whenever it is made."""
    with tarfile.open(to, "w") as archive:
        for path in files_below(folder):
            information = tarfile.TarInfo(str(path.relative_to(folder)))
            information.size = path.stat().st_size
            with open(path, "rb") as source:
                archive.addfile(information, source)


def files_below(root):
    """Regular files, not links, in an order that does not depend on the file system."""
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                found.append(path)
    return sorted(found)


def byte_count(path):
    """The bytes of a file, or of all files below a folder."""
    path = Path(path)
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in files_below(path))


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def discard(path):
    """Removes a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
