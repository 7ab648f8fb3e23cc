"""rpm's packages: what they require, and the demo where rpm has installed them.

    rpm -qp --requires ─► nothing but glibc 2.28, libgcc, and each other
    rpm --root ROOT -i ─► a clean root of Debian's ─► demo.sh, gtest.sh, develop.sh as a new user ─► rpm -e ─► before == after

R1  A root of Fedora's cannot be had by Debian's means, so what dnf would do is not run here. rpm installs and removes the
    files, without a look at what other packages of the root provide (--nodeps): that is what the list of requirements is
    held to.

Not here: the same files' other packages (in_deb.py).
"""

import os
import re
import shutil

from test import places

# rpm's own features; each other; glibc's and gcc's libraries.
KNOWN = re.compile(
    r"rpmlib\(.*|rtld\(GNU_HASH\)|skinflint-libs = .*|libskinflint\.so\.1\(\)\(64bit\)|/usr/bin/pkg-config"
    r"|(libc|libm|libpthread|libdl|librt|libutil|ld-linux-x86-64|libgcc_s)\.so\.\d\(((GLIBC|GCC)_([0-9.]+))?\)\(64bit\)"
)

def requirements(dist, path):
    """Fails if a package asks for anything that an old glibc has not."""
    asked = dist.said("rpm", "-qp", "--requires", path).split("\n")
    for line in filter(None, asked):
        known = KNOWN.fullmatch(line)
        assert known, f"{os.path.basename(path)} requires {line}"
        if known[3] == "GLIBC":
            assert tuple(map(int, known[4].split("."))) <= (2, 28), line
    return len(asked) - 1


def test(dist):
    names = [name for name in sorted(os.listdir(dist.packages)) if name.endswith(".rpm")]
    assert len(names) == 3, f"three packages, not {names}: run make dist"
    paths = [os.path.join(dist.packages, name) for name in names]
    for path in paths:
        yield f"{os.path.basename(path)}: {requirements(dist, path)} requirements, all of glibc 2.28 or older or our own"
    folder = dist.fresh("rpm-test")
    unpacked = os.path.join(folder, "unpacked")
    os.makedirs(unpacked)
    words = ["--root", unpacked, "--dbpath", "/database", "--nodeps", "--noscripts"]
    dist.run("rpm", *words, "-i", *paths)
    files = dist.said("rpm", *words[:-2], "-qal").split("\n")
    shutil.copytree(unpacked, os.path.join(folder, "installed"), symlinks=True, ignore=shutil.ignore_patterns("database"))
    dist.run("rpm", *words, "-e", "skinflint", "skinflint-libs", "skinflint-devel")
    rest = [os.path.join(at, name) for at, folders, found in os.walk(unpacked) if "/database" not in at
            for name in [*found, *(one for one in folders if "skinflint" in one)]]
    assert not rest, f"left by rpm -e: {rest}"
    yield f"rpm installed {len(files) - 1} files and folders, and removed them without a rest"
    script = r"""useradd -m tester
cp -a /given/installed/. /
echo /usr/lib64 > /etc/ld.so.conf.d/lib64.conf && ldconfig
su tester -c 'sh /given/demo.sh /given/demo.sql'
su tester -c 'PYTHONPATH=/usr/lib/skinflint python3 -B /given/reporters.py'
su tester -c 'sh /given/gtest.sh'
su tester -c 'LD_PRELOAD=libskinflint.so.1 grep -q libskinflint /proc/self/maps'
su tester -c 'PKG_CONFIG_PATH=/usr/lib64/pkgconfig sh /given/develop.sh'
"""
    given = [os.path.join(folder, "installed"), *places.own(dist, "demo.sh", "reporters.py"), *places.development(dist), *places.suite(dist)]
    yield from places.in_root(dist, "bookworm", script, given).splitlines()
