"""Debian's packages on clean roots: this machine's release, and one whose glibc is older than what it was built on.

    apt-get install ./*.deb ─► as a new user: demo.sh, reporters.py, man, completions ─► apt-get purge ─► before == after
    lintian, and libskinflint-dev: pkg-config, a linked and a static program

Not here: that symbols are of 2.28 at most (symbols.py).
"""

import os
import subprocess
import tempfile

from test import places

# Debian 11 has glibc 2.31: __libc_start_main, fstat, pthread_create, dlopen are other functions there.
SUITES = ["bookworm", "bullseye"]

SCRIPT = r"""
everything() { find / -xdev \( -path /proc -o -path /dev -o -path /given -o -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/apt \
    -o -path /var/cache -o -path /tmp \) -prune -o -print | sort; }
useradd -m tester
everything > /tmp/before
# In one line.
apt-get install -y --no-install-recommends /given/skinflint_*.deb /given/libskinflint1_*.deb > /tmp/apt.txt 2>&1 || { cat /tmp/apt.txt; exit 1; }
echo "installed on Debian $(cat /etc/debian_version), $(ldd --version | head -n 1)"
test -s /usr/share/man/man1/skinflint.1.gz || ls -l /usr/share/man/man1
test -s /usr/share/bash-completion/completions/skinflint
ldconfig -p | grep -q 'libskinflint\.so\.1'
su tester -c 'sh /given/demo.sh /given/demo.sql'
su tester -c 'python3 -B /given/reporters.py'
su tester -c 'LD_PRELOAD=libskinflint.so.1 grep -q libskinflint /proc/self/maps'
su tester -c 'skinflint doctor' | head -n 1 || true
test -z "$(find ~tester -newer /tmp/before -type f)"
apt-get purge -y skinflint libskinflint1 > /tmp/apt.txt 2>&1 || { cat /tmp/apt.txt; exit 1; }
everything > /tmp/after
diff /tmp/before /tmp/after
echo "removed without a rest"
"""


def developed(dist, debs):
    """A program linked with what libskinflint-dev has, and one with the static library."""
    with tempfile.TemporaryDirectory() as folder:
        for deb in debs:
            dist.run("dpkg-deb", "-x", deb, folder)
        libdir = os.path.join(folder, "usr/lib/x86_64-linux-gnu")
        environment = {"PKG_CONFIG_PATH": os.path.join(libdir, "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": folder}
        flags = dist.said("pkg-config", "--cflags", "--libs", "skinflint", environment=environment).split()
        source = os.path.join(dist.packaging, "test/linked.c")
        linked, static = os.path.join(folder, "linked"), os.path.join(folder, "static")
        dist.run("gcc", "-O1", "-fno-builtin", source, "-o", linked, *flags)
        said = dist.said(linked, environment={"LD_LIBRARY_PATH": libdir})
        assert said == "skinflint\n", said
        archive = os.path.join(libdir, "libskinflint.a")
        include = "-I" + os.path.join(folder, "usr/include")
        dist.run("gcc", "-O1", "-fno-builtin", source, "-o", static, include, archive)
        assert dist.said(static) == "skinflint\n"
        needed = dist.said("readelf", "-d", static)
        assert "libskinflint" not in needed, needed
        yield "libskinflint-dev: a program linked with the library, and one with the archive"


def test(dist):
    names = ("skinflint", "libskinflint1", "libskinflint-dev")
    debs = [os.path.join(dist.packages, f"{name}_{dist.version}_amd64.deb") for name in names]
    lint = subprocess.run(["lintian", "--fail-on", "error", *debs], capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stdout + lint.stderr
    yield f"lintian: no error, {lint.stdout.count('W: ')} warnings"
    files = [*debs[:2], *places.own(dist, "demo.sh", "reporters.py")]
    for suite in SUITES:
        for line in places.in_root(dist, suite, SCRIPT, files).splitlines():
            yield line
    yield from developed(dist, debs)
