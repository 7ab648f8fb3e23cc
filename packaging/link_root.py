"""What programs are linked against, so that they run on glibc 2.28: makes FOLDER, or leaves it if it is made.

    ziglang (PyPI) ─► `zig cc -target x86_64-linux-gnu.2.28 -v` ─► libc.so.6, libm.so.6 …   names and versions, no code
                                                               ├─► Scrt1.o                  start-up as it was before 2.34
                                                               └─► libc_nonshared.a         fstat and the like, before 2.33
                       FOLDER/libc.so: a script of the linker's ◄──┘      gcc -B FOLDER -L FOLDER

The linker is still the one of every build. That of zig refuses `-z initfirst`, which the allocator's library needs (begin.B1), and
a package linked otherwise than what the tests ran would be untested.

L1  What a program asks of libc is bound to the newest version that 2.28 has. A name that 2.28 has not is an error of the
    linker's, unless the reference is weak (the standard library's are, and it has a way without).
L2  Parts of libc that were libraries of their own before 2.34 (libpthread, libdl) are found by `-lc`, as since then, and
    named in the file that uses them: of a newer glibc's, which are empty, the loader maps a page or two.

Not here: the check of finished files (symbols.py).
"""

import os
import shutil
import subprocess
import sys
import tempfile

TARGET = "x86_64-linux-gnu.2.28"
LOADER = "ld-linux-x86-64.so.2"
# What a linker asks for by `-l`, and what zig has made.
PARTS = {"m": "libm.so.6", "pthread": "libpthread.so.0", "dl": "libdl.so.2", "rt": "librt.so.1", "util": "libutil.so.1"}


def made(zig, scratch):
    """The paths of what zig links a small program with."""
    source = os.path.join(scratch, "empty.c")
    with open(source, "w", encoding="utf-8") as out:
        out.write("int main(void) { return 0; }\n")
    environment = dict(os.environ, ZIG_GLOBAL_CACHE_DIR=scratch, ZIG_LOCAL_CACHE_DIR=scratch)
    command = [*zig, "cc", "-target", TARGET, source, "-o", os.path.join(scratch, "empty"), "-v"]
    command += ["-l" + name for name in PARTS]
    ended = subprocess.run(command, env=environment, cwd=scratch, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"link_root: {' '.join(command)}:\n{ended.stderr}")
    line = next(line for line in reversed(ended.stderr.splitlines()) if "crt1.o" in line)
    return {os.path.basename(word): os.path.join(scratch, word) for word in line.split() if "/" in word}


def main():
    folder, zig = os.path.abspath(sys.argv[1]), sys.argv[2:]
    if os.path.exists(os.path.join(folder, "libc.so")):
        return
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        paths = made(zig, scratch)
        # zig names the loader's library after its own list.
        paths[LOADER] = paths.pop("libld.so.2")
        paths["Scrt1.o"] = paths.pop("crt1.o")
        for name in ["Scrt1.o", "libc_nonshared.a", "libc.so.6", LOADER, *PARTS.values()]:
            shutil.copy(paths[name], os.path.join(folder, name))
    for name, library in PARTS.items():
        os.symlink(library, os.path.join(folder, f"lib{name}.so"))
    # Last: it says that the rest is there. Absolute paths, as in the system's own.
    at = {name: os.path.join(folder, name) for name in ("libc.so.6", "libc_nonshared.a", LOADER, *PARTS.values())}
    others = " ".join(at[name] for name in (LOADER, *PARTS.values()))
    with open(os.path.join(folder, "libc.so"), "w", encoding="utf-8") as script:
        script.write("OUTPUT_FORMAT(elf64-x86-64)\n")
        script.write(f"GROUP ( {at['libc.so.6']} {at['libc_nonshared.a']} AS_NEEDED ( {others} ) )\n")


main()
