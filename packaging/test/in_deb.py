"""Debian's packages on clean roots: this machine's release, and one whose glibc is older than what it was built on.

    lintian; libraries that files need ─► packages that Depends names
    apt-get install ./*.deb ─► as a new user: demo.sh, reporters.py, man, completions ─► apt-get purge ─► before == after
      libskinflint-dev ─► gtest.sh: GoogleTest held to budgets; develop.sh: programs linked by pkg-config

Not here: that symbols are of 2.28 at most (symbols.py).
"""

import os
import re
import subprocess
import tempfile

from parts import making
from test import places

# Debian 11 has glibc 2.31: __libc_start_main, fstat, pthread_create, dlopen are other functions there.
SUITES = ["bookworm", "bullseye"]

# Which package has a library; glibc's parts are those of 2.28.
GLIBC = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "ld-linux-x86-64.so.2")
OWNERS = {**{name: "libc6" for name in GLIBC}, "libgcc_s.so.1": "libgcc-s1", "libskinflint.so.1": "libskinflint1"}

SCRIPT = r"""
everything() { find / -xdev \( -path /proc -o -path /dev -o -path /given -o -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/apt \
    -o -path /var/cache -o -path /tmp \) -prune -o -print | sort; }
useradd -m tester
everything > /tmp/before
# In one line.
apt-get install -y --no-install-recommends /given/skinflint_*.deb /given/libskinflint1_*.deb > /tmp/apt.txt 2>&1 || { cat /tmp/apt.txt; exit 1; }
echo "installed on Debian $(cat /etc/debian_version), $(ldd --version | head -n 1)"
test -s /usr/share/man/man1/skinflint.1.gz
test -s /usr/share/bash-completion/completions/skinflint
ldconfig -p | grep -q 'libskinflint\.so\.1'
su tester -c 'sh /given/demo.sh /given/demo.sql'
su tester -c 'python3 -B /given/reporters.py'
su tester -c 'LD_PRELOAD=libskinflint.so.1 grep -q libskinflint /proc/self/maps'
su tester -c 'skinflint doctor' > /tmp/doctor.txt || test $? -eq 1
grep -m 1 . /tmp/doctor.txt
apt-get install -y --no-install-recommends /given/libskinflint-dev_*.deb > /tmp/apt.txt 2>&1 || { cat /tmp/apt.txt; exit 1; }
su tester -c 'sh /given/gtest.sh'
# Alone it has all that its programs need to be linked.
apt-get purge -y skinflint > /tmp/apt.txt 2>&1 || { cat /tmp/apt.txt; exit 1; }
su tester -c 'sh /given/develop.sh'
test -z "$(find ~tester -newer /tmp/before -type f)"
apt-get purge -y libskinflint-dev libskinflint1 > /tmp/apt.txt 2>&1 || { cat /tmp/apt.txt; exit 1; }
everything > /tmp/after
diff /tmp/before /tmp/after
echo "removed without a rest"
"""


def depends(dist, deb):
    """Fails if a file of the package needs a library of a package that it does not depend on."""
    asked = {word.split()[0] for word in re.split("[,|]", dist.said("dpkg-deb", "-f", deb, "Depends"))}
    with tempfile.TemporaryDirectory() as folder:
        dist.run("dpkg-deb", "-x", deb, folder)
        for at, _, files in os.walk(folder):
            for path in (os.path.join(at, file) for file in files):
                if os.path.islink(path) or making.start(path) != b"\x7fELF":
                    continue
                for library in re.findall(r"\(NEEDED\).*\[(.*)\]", dist.said("readelf", "-d", path)):
                    name = os.path.relpath(path, folder)
                    assert library in OWNERS, f"{name} needs {library}: in which package is that?"
                    assert OWNERS[library] in asked, f"{os.path.basename(deb)}: {name} needs {library} of {OWNERS[library]}, not among {asked}"


def test(dist):
    names = ("skinflint", "libskinflint1", "libskinflint-dev")
    debs = [os.path.join(dist.packages, f"{name}_{dist.version}_amd64.deb") for name in names]
    lint = subprocess.run(["lintian", "--fail-on", "error", *debs], capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stdout + lint.stderr
    yield f"lintian: no error, {lint.stdout.count('W: ')} warnings"
    for deb in debs:
        depends(dist, deb)
    files = [*debs, *places.own(dist, "demo.sh", "reporters.py"), *places.development(dist), *places.suite(dist)]
    for suite in SUITES:
        for line in places.in_root(dist, suite, SCRIPT, files).splitlines():
            yield line
