"""What all makers of packages need: places, version, the commit's time, and how commands are run.

    Dist ── root ─► the checkout      folder ─► target/packages (built)      packages ─► target/dist/packages (results)
        └── tree ─► target/packages/tree/usr, as `make install` lays it out

O1  Environment variables that would end up in a package (a user's own flags, time zone, umask) are set here, once.

Not here: what a package has (deb.py and its kin).
"""

import hashlib
import os
import re
import shutil
import subprocess
import tarfile

SUMMARY = "Finds out where a program's memory goes, and gives it back"
DESCRIPTION = """Skinflint records every heap event of an unmodified Linux program with its stack, accounts for each byte of
its resident memory, and names what would give memory back. Its allocator can be put under a program that
cannot be changed."""
LICENCE = "MIT OR Apache-2.0"
FORMATS = ["evidence/view/SCHEMA.md", "ground/trace/FORMAT.md", "ground/sizes/FIT.md", "ground/objects/FORMAT.md", "lab/replay/SCRIPT.md"]
RECIPES = [f"packaging/{name}" for name in ("container/Containerfile", "kubernetes/allocator.yaml", "kubernetes/sidecar.yaml", "systemd/skinflint.conf")]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def registry():
    """Where cargo has the sources of others: paths in debug information begin so."""
    home = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    return os.path.join(home, "registry/src")


def start(path, count=4):
    """The first bytes of a file: what it is."""
    with open(path, "rb") as file:
        return file.read(count)


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


class Dist:
    """One making of packages."""

    def __init__(self):
        self.packaging = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.root = os.path.dirname(self.packaging)
        self.folder = os.path.join(self.root, "target/packages")
        self.tree = os.path.join(self.folder, "tree")
        self.packages = os.path.join(self.root, "target/dist/packages")
        self.version = re.search(r'^version = "(.*)"', read(os.path.join(self.root, "Cargo.toml")), re.M)[1]
        git = ["git", "-C", self.root, "log", "-1", "--format=%ct"]
        self.time = int(subprocess.run(git, check=True, capture_output=True, text=True).stdout)
        os.umask(0o022)
        own = {"SOURCE_DATE_EPOCH": str(self.time), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
        self.environment = {**os.environ, **own}
        for name in ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PREFIX", "DESTDIR"):
            self.environment.pop(name, None)

    def run(self, *command, environment=None, **options):
        """Runs a command; a failure ends all."""
        options.setdefault("cwd", self.root)
        variables = {**self.environment, **(environment or {})}
        return subprocess.run(command, check=True, env=variables, **options)

    def said(self, *command, **options):
        return self.run(*command, stdout=subprocess.PIPE, text=True, **options).stdout

    def tools(self, name, requirements):
        """A Python with tools of PyPI, by version and hash; returns its folder of programs."""
        folder, wanted = os.path.join(self.folder, name), os.path.join(self.packaging, requirements)
        stamp = os.path.join(folder, "requirements.txt")
        if not os.path.exists(stamp) or read(stamp) != read(wanted):
            shutil.rmtree(folder, ignore_errors=True)
            self.run("/usr/bin/python3", "-m", "venv", folder)
            pip = [os.path.join(folder, "bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
            self.run(*pip, "--require-hashes", "-r", wanted)
            shutil.copy(wanted, stamp)
        return os.path.join(folder, "bin")

    def fresh(self, name):
        """An empty folder to lay a package out in."""
        folder = os.path.join(self.folder, name)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        return folder

    def place(self, name, folder, to, mode=0o644):
        """Copies a file, by its path from the checkout, to a path in the folder."""
        path = os.path.join(folder, to)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(os.path.join(self.root, name), path)
        os.chmod(path, mode)

    def documents(self, folder):
        """What there is to read, and the recipes of docs/install.md, at their paths of the checkout: links among them are whole."""
        for name in ("README.md", "CHANGELOG.md", "GLOSSARY.md", "SECURITY.md", "LICENSE-MIT", "LICENSE-APACHE"):
            self.place(name, folder, name)
        for at, _, names in os.walk(os.path.join(self.root, "docs")):
            for name in (os.path.relpath(os.path.join(at, name), self.root) for name in sorted(names)):
                if name.endswith(".md"):
                    self.place(name, folder, name)
        for name in (*FORMATS, *RECIPES):
            self.place(name, folder, name)

    def archive(self, folder, name):
        """A tarball of a folder: sorted, owned by root, of the commit's time."""
        path = os.path.join(self.packages, f"{name}.tar.xz")
        os.makedirs(self.packages, exist_ok=True)

        def plain(entry):
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            entry.mtime = self.time
            return entry

        with tarfile.open(path, "w:xz", preset=6) as out:
            paths = [os.path.join(at, file) for at, _, files in os.walk(folder) for file in files]
            for file in sorted(paths):
                out.add(file, os.path.join(name, os.path.relpath(file, folder)), filter=plain)
        return path


def checksums(dist):
    """SHA256SUMS of all results, as `sha256sum -c` reads them."""
    lines = []
    for at, _, files in os.walk(dist.packages):
        for file in files:
            path = os.path.join(at, file)
            name = os.path.relpath(path, dist.packages)
            if name != "SHA256SUMS":
                with open(path, "rb") as data:
                    lines.append((name, hashlib.sha256(data.read()).hexdigest()))
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(lines))
    write(os.path.join(dist.packages, "SHA256SUMS"), text)
