"""Debian's packages, by dpkg-deb: skinflint, libskinflint1, libskinflint-dev.

    layout.split ─► folder of each ─► + DEBIAN/{control,md5sums,shlibs,triggers}, copyright, changelog ─► dpkg-deb ─► .deb

Not here: which file is in which (layout.py); lintian (dist_test.py).
"""

import gzip
import hashlib
import os
import textwrap
import time

from parts import layout, making

LIBDIR = "usr/lib/x86_64-linux-gnu"
NAMES = {layout.PROGRAM: "skinflint", layout.LIBRARY: "libskinflint1", layout.DEVELOPMENT: "libskinflint-dev"}


def packed(path, data, when):
    """Writes gzip data of a given time."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=when) as out:
        out.write(data)
    os.chmod(path, 0o644)


def documented(dist, folder, name):
    """What Debian's policy asks of each package."""
    docs = os.path.join(folder, "usr/share/doc", name)
    dist.place("packaging/deb/copyright", docs, "copyright")
    when = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(dist.time))
    text = f"skinflint ({dist.version}) stable; urgency=medium\n\n  * See CHANGELOG.md in the package skinflint.\n\n"
    packed(os.path.join(docs, "changelog.gz"), f"{text} -- The Skinflint authors <skinflint@example.org>  {when}\n".encode(), dist.time)


def pages_packed(dist, folder):
    man = os.path.join(folder, "usr/share/man/man1")
    for name in os.listdir(man):
        path = os.path.join(man, name)
        packed(path + ".gz", making.read(path).encode(), dist.time)
        os.remove(path)


def described(dist, folder, name):
    """Writes DEBIAN/ of a package."""
    paths = sorted(os.path.join(at, file) for at, _, files in os.walk(folder) for file in files)
    size = sum(-(-os.lstat(path).st_size // 1024) for path in paths)
    lines = []
    for path in paths:
        if not os.path.islink(path):
            with open(path, "rb") as data:
                lines.append(f"{hashlib.md5(data.read()).hexdigest()}  {os.path.relpath(path, folder)}\n")
    control = making.read(os.path.join(dist.packaging, f"deb/{name}.control"))
    text = textwrap.indent(textwrap.fill(" ".join(making.DESCRIPTION.split()), 78), " ")
    control = control.replace("@VERSION@", dist.version).replace("@SIZE@", str(size)).replace("@DESCRIPTION@", text)
    making.write(os.path.join(folder, "DEBIAN/control"), control)
    making.write(os.path.join(folder, "DEBIAN/md5sums"), "".join(lines))
    for extra in ("shlibs", "triggers"):
        if os.path.exists(os.path.join(dist.packaging, f"deb/{name}.{extra}")):
            dist.place(f"packaging/deb/{name}.{extra}", folder, f"DEBIAN/{extra}")


def plain(folder):
    """Libraries are not executed: Debian has them without that right, rpm with it."""
    libraries = os.path.join(folder, "usr/lib/skinflint")
    for name in os.listdir(libraries) if os.path.isdir(libraries) else ():
        if name.endswith(".so"):
            os.chmod(os.path.join(libraries, name), 0o644)


def make(dist):
    folders = layout.split(dist, LIBDIR, "usr/share/zsh/vendor-completions/_skinflint")
    program = folders[layout.PROGRAM]
    dist.documents(os.path.join(program, "usr/share/doc/skinflint"))
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        os.remove(os.path.join(program, "usr/share/doc/skinflint", name))
    pages_packed(dist, program)
    python = os.path.join(program, "usr/lib/python3/dist-packages")
    os.makedirs(python, exist_ok=True)
    os.symlink("../../skinflint/skinflint_report.py", os.path.join(python, "skinflint_report.py"))
    for part, name in NAMES.items():
        plain(folders[part])
        documented(dist, folders[part], name)
        described(dist, folders[part], name)
        path = os.path.join(dist.packages, f"{name}_{dist.version}_amd64.deb")
        dist.run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", folders[part], path, stdout=-3)
        yield path
