"""Where packages are tested: a root of Debian's, or this machine as somebody else.

    debootstrap ─► target/packages/roots/SUITE (kept) ─ lower ─┐
                                        tmpfs ─ upper, work ───┴─► overlay ─► chroot     gone when the command ends
    unshare --mount ─► tmpfs over the checkout ─► setpriv ─► a command of nobody's

W1  Mounts are in a namespace of the command's own: however it ends, none is left.

Not here: what is done there (in_deb.py and its kin).
"""

import os
import shlex
import shutil
import subprocess
import tempfile

from parts import making

NOBODY = 65534
# What the demo runs, and what a user of the development package has.
INCLUDED = "sqlite3,python3,gcc,g++,libc6-dev,libgtest-dev,pkg-config"


def root(dist, suite):
    """A root of a suite of Debian's, made from where this machine gets its packages."""
    folder = os.path.join(dist.folder, "roots", suite)
    stamp = folder + ".included"
    if os.path.exists(stamp) and making.read(stamp) == INCLUDED:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    ask = ["apt-get", "indextargets", "--format", "$(SITE)", "Identifier: Packages", "Component: main", "Origin: Debian"]
    site = dist.said(*ask).splitlines()[0]
    partial = folder + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    # What it mounts there goes with it, if it fails, too (W1): a removal would walk into it.
    dist.run("unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={INCLUDED}", suite, partial, site, stdout=subprocess.DEVNULL)
    os.rename(partial, folder)
    making.write(stamp, INCLUDED)
    return folder


def in_root(dist, suite, script, files):
    """Runs a script as root in a copy of the root; returns what it printed. The files are in its /given."""
    with tempfile.TemporaryDirectory() as scratch:
        given = os.path.join(scratch, "given")
        for path in files:
            copied(path, given)
        with open(os.path.join(given, "script.sh"), "w", encoding="utf-8") as out:
            out.write("set -eu\nexport PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8\n" + script)
        lower, whole = shlex.quote(root(dist, suite)), os.path.join(scratch, "root")
        os.makedirs(whole)
        steps = f"""set -eu
mount -t tmpfs none {scratch}/root && mkdir {whole}/up {whole}/work {whole}/all
mount -t overlay -o lowerdir={lower},upperdir={whole}/up,workdir={whole}/work none {whole}/all
cp -a {given} {whole}/all/given && chmod -R a+rX {whole}/all/given
mount -t proc proc {whole}/all/proc && mount --rbind /dev {whole}/all/dev
exec chroot {whole}/all /bin/sh /given/script.sh"""
        return ran(dist, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", steps)


def as_nobody(dist, script, files, commands=()):
    """Runs a script on this machine as nobody, in a folder of its own, the checkout covered. `$GIVEN` has the files."""
    with tempfile.TemporaryDirectory() as scratch:
        given, home = os.path.join(scratch, "given"), os.path.join(scratch, "home")
        for path in files:
            copied(path, given)
        os.makedirs(home)
        os.chmod(scratch, 0o755)
        os.chown(home, NOBODY, NOBODY)
        variables = f"PATH=/usr/bin:/bin HOME={home} GIVEN={given} LC_ALL=C.UTF-8 LANG=C.UTF-8"
        passed = " ".join(f"{name}={shlex.quote(os.environ[name])}" for name in commands if name in os.environ)
        steps = f"""set -eu
chmod -R a+rX {given}
mount -t tmpfs none {shlex.quote(dist.root)}
cd {home}
exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups env -i {variables} {passed} sh -euc {shlex.quote(script)}"""
        return ran(dist, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", steps)


def scratch(dist):
    """A folder beyond the checkout that is removed with what is in it."""
    return tempfile.TemporaryDirectory(prefix=f"skinflint-{dist.version}-")


def copied(path, folder):
    os.makedirs(folder, exist_ok=True)
    if os.path.isdir(path):
        shutil.copytree(path, os.path.join(folder, os.path.basename(path)), symlinks=True)
    else:
        shutil.copy(path, folder)


def ran(dist, *command, timeout=1800):
    """What a command printed, on both streams: where it fails, that is why."""
    return dist.run(*command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout).stdout


def package(dist, ending):
    """The one package whose name ends so."""
    names = [name for name in sorted(os.listdir(dist.packages)) if name.endswith(ending)]
    assert len(names) == 1, f"{len(names)} packages are called *{ending}: run make dist"
    return os.path.join(dist.packages, names[0])


def development(dist):
    """Paths of develop.sh and its programs."""
    files = [os.path.join(dist.packaging, "test", name) for name in ("develop.sh", "linked.c", "reported.c")]
    return [*files, os.path.join(dist.root, "tests/engines/example.c")]


def suite(dist):
    """Paths of gtest.sh and its suite."""
    return [os.path.join(dist.packaging, "test/gtest.sh"), os.path.join(dist.root, "tests/gtest/cache_test.cpp")]


def own(dist, *names):
    """Paths of files of this folder, and the demo's SQL, which is made by seed."""
    paths = [os.path.join(dist.packaging, "test", name) for name in names]
    inputs = os.path.join(dist.root, "target/bench/inputs")
    made = dist.said("python3", "-B", os.path.join(dist.root, "bench/inputs.py"), inputs, "demo.sql").strip()
    return [*paths, os.path.join(dist.root, made)]
