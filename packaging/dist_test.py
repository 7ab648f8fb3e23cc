"""`make dist-test`: each package of target/dist/packages, from nothing to the demo's screen, and away again.

    places.py ─┬─► a clean root of Debian's ─ overlay ─► chroot as another user ─┐
               └─► this machine, the checkout covered, as nobody ────────────────┴─► demo.sh, reporters.py, …
                                                        before == after removal ◄──┘

X1  No test sees the checkout: packages and the tests' own files are copied out of it first.
X2  A test runs as a user who is neither root nor the one who built.
X3  What is there after a removal is what was there before the installation.

Not here: how packages are made (dist.py). Needs root.
"""

import argparse
import os
import subprocess
import sys

from parts import making
from test import in_crates, in_deb, in_npm, in_recipes, in_rpm, in_tarball, in_wheel

TESTS = {
    "deb": in_deb, "tarball": in_tarball, "rpm": in_rpm, "wheel": in_wheel, "npm": in_npm, "crates": in_crates,
    "recipes": in_recipes,
}


def main():
    parser = argparse.ArgumentParser(description="Tests the packages.")
    parser.add_argument("--only", help=f"some of them: {','.join(TESTS)}")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("dist-test: needs root: it mounts, and becomes other users")
    dist = making.Dist()
    sums = os.path.join(dist.packages, "SHA256SUMS")
    if not os.path.exists(sums):
        sys.exit("dist-test: no packages: run make dist")
    dist.run("sha256sum", "--check", "--quiet", sums, cwd=dist.packages)
    failed = 0
    wanted = args.only.split(",") if args.only else list(TESTS)
    for name in wanted:
        if name not in TESTS:
            sys.exit(f"dist-test: {name}: no package; there are {', '.join(TESTS)}")
    for name in wanted:
        try:
            for line in TESTS[name].test(dist):
                print(f"{name}: {line}", flush=True)
        except (AssertionError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            failed += 1
            said = getattr(error, "output", None) or ""
            print(f"{name}: FAILED: {error}\n{said}", flush=True)
    print(f"{len(wanted) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
