"""`make dist`: every package of this version, into target/dist/packages.

    link_root.py ─► cargo build ─► symbols.py ─► make install ─► tree ─┬─► deb.py    skinflint, libskinflint1, libskinflint-dev
      glibc 2.28     packages/       2.28 at most   (DESTDIR)          ├─► rpm.py    skinflint, skinflint-libs, skinflint-devel
                     release/        12 MB, 5 MB                       ├─► wheel.py  skinflint-…-manylinux_2_28_x86_64.whl
                                                                       ├─► npm.py    skinflint-….tgz
                                                                       └─► tarball.py  binaries, debug information, sources
    crates.py ─► cargo package ─► crates/*.crate                       SHA256SUMS ◄── all of it

D1  All packages have the same built files: what a user of one reports is what a user of another runs.
D2  The same commit gives the same bytes, as far as the compiler does: times are the commit's, owners are root, paths of
    the machine are taken out of the files.
D3  Tools that are no part of a system come from PyPI, by version and hash (requirements.txt).

Not here: whether the packages work (`make dist-test`).
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys

from parts import crates, deb, making, npm, rpm, symbols, tarball, wheel

MAKERS = {"tarball": tarball, "deb": deb, "rpm": rpm, "wheel": wheel, "npm": npm, "crates": crates}
BUILT = ["cli", "record-so", "malloc-so", "probe-so", "replay", "reporters-so"]


def build(dist):
    """Builds all files against glibc 2.28, and lays them out as installed."""
    link_root = os.path.join(dist.folder, "link-root")
    dist.run(sys.executable, "-B", os.path.join(dist.packaging, "link_root.py"), link_root,
             os.path.join(dist.tools("tools", "requirements.txt"), "python-zig"))
    flags = [f"-Clink-arg=-B{link_root}", f"-Clink-arg=-L{link_root}"]
    # libgcc_s of this machine asks for more than 2.28 has; that of the user's does not.
    flags += ["-Clink-arg=-Wl,--allow-shlib-undefined"]
    flags += [f"--remap-path-prefix={dist.root}=skinflint-{dist.version}", f"--remap-path-prefix={making.registry()}=crates"]
    environment = {"CARGO_TARGET_DIR": dist.folder, "RUSTFLAGS": " ".join(flags)}
    packages = " ".join(f"-p skinflint-{name}" for name in BUILT)
    shutil.rmtree(dist.tree, ignore_errors=True)
    words = [f"PACKAGES={packages}", f"RELEASE={dist.folder}/release", f"LIBRARY={dist.folder}/library", f"DIST={dist.folder}/stripped", "JS=/nonexistent"]
    dist.run("make", "install", *words, f"DESTDIR={dist.tree}", "PREFIX=/usr", environment=environment)
    static = ["cargo", "rustc", "--release", "--locked", "-p", "skinflint-malloc-so", "--crate-type", "staticlib"]
    dist.run(*static, environment=environment)


def main():
    parser = argparse.ArgumentParser(description="Makes the packages.")
    parser.add_argument("--only", help=f"some of them: {','.join(MAKERS)}")
    parser.add_argument("--built", action="store_true", help="what was built by the last call")
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else list(MAKERS)
    for name in wanted:
        if name not in MAKERS:
            sys.exit(f"dist: {name}: no package; there are {', '.join(MAKERS)}")
    dist = making.Dist()
    if not args.built and wanted != ["crates"]:
        build(dist)
        symbols.check(dist)
    if len(wanted) == len(MAKERS):
        # What an earlier version left is no package of this one, and would be in its checksums.
        shutil.rmtree(dist.packages, ignore_errors=True)
    os.makedirs(dist.packages, exist_ok=True)
    for name in wanted:
        for path in MAKERS[name].make(dist):
            print(f"{os.path.getsize(path):>10}  {os.path.relpath(path, dist.root)}", flush=True)
    making.checksums(dist)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"dist: {shlex.join(error.cmd)}: status {error.returncode}")
