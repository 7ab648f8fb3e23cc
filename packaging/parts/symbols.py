"""The built files, held to what packages promise: glibc 2.28, their size, no path of this machine.

    tree/usr/bin/skinflint, lib/skinflint/* ─► objdump -T ─► GLIBC_x.y ≤ 2.28, no strong name without a version
                                          ├─► readelf -S: no .symtab, no .debug_
                                          └─► bytes ≤ 12 MB, by xz ≤ 5 MB (the program)
    static libraries too ─► no path of this machine

Y1  A name without a version is bound to nothing: the linker has not found it. Only weak ones may be so.

Not here: what they are linked against (link_root.py).
"""

import lzma
import os
import re
import sys

from parts import layout, making

NEWEST = (2, 28)
PROGRAM_BYTES, COMPRESSED_BYTES = 12_000_000, 5_000_000


def faults(file, table):
    """What is wrong with a file's table of dynamic symbols, as objdump prints it."""
    wrong = []
    for line in table.splitlines():
        if "*UND*" not in line:
            continue
        name = line.split()[-1]
        version = re.search(r"\(?(GLIBC|GCC)_([0-9.]+)\)?", line)
        if version is None:
            is_weak = " w " in line[:30]
            if not is_weak:
                wrong.append(f"{file}: {name} has no version: the linker has not found it")
        elif version[1] == "GLIBC" and tuple(map(int, version[2].split("."))) > NEWEST:
            wrong.append(f"{file}: {name} is of glibc {version[2]}, newer than {NEWEST[0]}.{NEWEST[1]}")
    return wrong


def debugging(table):
    """The sections of debug information and symbols in a list of readelf's. One that is loaded is neither: the compiler puts the
    name of a script for gdb into executables (.debug_gdb_scripts, 34 bytes)."""
    sections = re.findall(r"\] (\.\S+) +\S+ +(?:[0-9a-f]+ +){4}([A-Z]*)", table)
    return [name for name, flags in sections if re.match(r"\.symtab|\.debug_", name) and "A" not in flags]


def files(dist):
    """The paths of what was built and is linked with glibc."""
    yield os.path.join(dist.tree, "usr/bin/skinflint")
    yield os.path.join(dist.tree, "usr/bin/cargo-skinflint")
    libraries = os.path.join(dist.tree, "usr/lib/skinflint")
    for name in sorted(os.listdir(libraries)):
        path = os.path.join(libraries, name)
        if not os.path.islink(path) and (name.endswith(".so") or name == "skinflint-replay"):
            yield path


def archives(dist):
    """The paths of static libraries, stripped as they are packed."""
    yield os.path.join(dist.tree, "usr/lib/skinflint/libskinflint_engines.a")
    yield layout.archive(dist)


def check(dist):
    wrong = []
    for path in files(dist):
        name = os.path.relpath(path, dist.tree)
        wrong += faults(name, dist.said("objdump", "-T", path))
        for section in debugging(dist.said("readelf", "-SW", path)):
            wrong.append(f"{name}: is not stripped: it has {section}")
    for path in [*files(dist), *archives(dist)]:
        with open(path, "rb") as file:
            data = file.read()
        for place in (dist.root, making.registry()):
            if place.encode() + b"/" in data:
                wrong.append(f"{os.path.relpath(path, dist.folder)}: has the path {place}")
    with open(os.path.join(dist.tree, "usr/bin/skinflint"), "rb") as file:
        data = file.read()
    packed = len(lzma.compress(data, preset=6))
    print(f"skinflint: {len(data)} bytes (at most {PROGRAM_BYTES}), {packed} by xz (at most {COMPRESSED_BYTES})")
    if len(data) > PROGRAM_BYTES or packed > COMPRESSED_BYTES:
        wrong.append("skinflint is larger than it may be")
    if wrong:
        sys.exit("dist: " + "\ndist: ".join(wrong))
    print(f"all names are of glibc {NEWEST[0]}.{NEWEST[1]} or older, no path of this machine: {len(list(files(dist)))} files")
