"""Which package has which file, for systems that split them (deb.py, rpm.py).

    usr/lib/skinflint/libskinflint.so     the allocator; the others beside it          the program finds ../lib/skinflint
    LIBDIR/libskinflint.so.1 ─► it        what programs linked with -lskinflint ask for
    LIBDIR/libskinflint.so   ─► that      for the linker, with headers, static library, pkg-config

V1  A file is in one package. What the tree has and no package takes is a failure: a new file is put somewhere on purpose.
V2  The allocator keeps its own file name: it is known by it in lists of mappings.

Not here: what the packages say of themselves.
"""

import os
import shutil
import sys

from parts import making

PROGRAM, LIBRARY, DEVELOPMENT = "program", "library", "development"
# What programs are linked with needs none of the rest: it is all that a server has to have.
LINKED = ["libskinflint.so", "libskinflint_report.so", "libskinflint_engines.so"]
LIBRARIES = ["libskinflint_record.so", "libskinflint_probe.so", "skinflint-replay"]


def split(dist, libdir, zsh):
    """Lays the tree out as three; returns their folders. `libdir` is the system's folder of libraries."""
    to = dist.fresh("split")
    folders = {name: os.path.join(to, name) for name in (PROGRAM, LIBRARY, DEVELOPMENT)}
    places = {
        "usr/bin/skinflint": (PROGRAM, "usr/bin/skinflint"),
        "usr/bin/cargo-skinflint": (PROGRAM, "usr/bin/cargo-skinflint"),
        "usr/lib/skinflint/skinflint_report.py": (PROGRAM, "usr/lib/skinflint/skinflint_report.py"),
        "usr/lib/skinflint/libskinflint.so.1": None,
        "usr/lib/skinflint/libskinflint_engines.a": (DEVELOPMENT, "usr/lib/skinflint/libskinflint_engines.a"),
        "usr/lib/pkgconfig/skinflint-engines.pc": (DEVELOPMENT, f"{libdir}/pkgconfig/skinflint-engines.pc"),
        "usr/share/zsh/site-functions/_skinflint": (PROGRAM, zsh),
    }
    places.update({f"usr/lib/skinflint/{name}": (LIBRARY, f"usr/lib/skinflint/{name}") for name in LINKED})
    places.update({f"usr/lib/skinflint/{name}": (PROGRAM, f"usr/lib/skinflint/{name}") for name in LIBRARIES})
    for at, _, files in os.walk(dist.tree):
        for file in sorted(files):
            path = os.path.relpath(os.path.join(at, file), dist.tree)
            if path.startswith("usr/lib/skinflint/debug/"):
                continue
            if path.startswith("usr/include/"):
                place = (DEVELOPMENT, path)
            elif path.startswith(("usr/share/man/", "usr/share/bash-completion/", "usr/share/fish/")):
                place = (PROGRAM, path)
            elif path in places:
                place = places[path]
            else:
                sys.exit(f"dist: {path} is in no package (layout.py)")
            if place:
                target = os.path.join(folders[place[0]], place[1])
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy(os.path.join(dist.tree, path), target)
    linked(dist, folders, libdir)
    return folders


def archive(dist):
    """The allocator as a static library, without debug information; its path."""
    path = os.path.join(dist.folder, "stripped/libskinflint.a")
    dist.run("objcopy", "--strip-debug", os.path.join(dist.folder, "release/libskinflint.a"), path)
    return path


def linked(dist, folders, libdir):
    """What is not in the tree: names for the loader and the linker, the static library, pkg-config."""
    library, development = (os.path.join(folders[name], libdir) for name in (LIBRARY, DEVELOPMENT))
    os.makedirs(library, exist_ok=True)
    os.makedirs(os.path.join(development, "pkgconfig"), exist_ok=True)
    own = os.path.relpath("/usr/lib/skinflint/libskinflint.so", "/" + libdir)
    os.symlink(own, os.path.join(library, "libskinflint.so.1"))
    os.symlink("libskinflint.so.1", os.path.join(development, "libskinflint.so"))
    shutil.copyfile(archive(dist), os.path.join(development, "libskinflint.a"))
    for name in ("skinflint.pc", "skinflint_report.pc"):
        text = making.read(os.path.join(dist.packaging, name))
        text = text.replace("@VERSION@", dist.version).replace("@LIBDIR@", "/" + libdir)
        making.write(os.path.join(development, "pkgconfig", name), text)
