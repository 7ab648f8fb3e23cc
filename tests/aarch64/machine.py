"""The same under kernels of aarch64 with pages of 4 and of 16 KiB: a small machine in qemu, with kernels of Debian's.

    kernel package ─► vmlinuz ─┐
    busybox, C library, tests ─┴─► initramfs ─► qemu-system-aarch64 ─► "check NAME: …" lines ─► verdict

N1  Every check that is planned must say "held"; one that says nothing (a panic, a hang) is not held. Exit 0: all held, 1: one
    was not, 2: the machine could not be made.
N2  Debian has kernels with 4 KiB, and in the backports of its stable release with 16 KiB. It has none with 64 KiB: those
    pages are only pretended (pages' and alloc's tests) and emulated for a process (run.py).
N3  No time is judged. The emulator's processors follow the orders of memory of this machine, which are stricter.
N4  Tests that count pages of 4 KiB one by one are left out where the kernel's are larger (COUNT).

Not here: an emulated process (run.py), the machine of x86-64 (../machine).
"""
import argparse
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "machine")]
import machine as other  # noqa: E402  cpio
import run as emulated  # noqa: E402  test programs

LIMIT_S = 1500
LIBRARIES = ("ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0")
# Pages in KiB, what the package is called.
KERNELS = {4: r"linux-image-[0-9.-]+-cloud-arm64", 16: r"linux-image-[0-9.]+\+deb[0-9]+-arm64-16k-unsigned"}
PROGRAMS = ("skinflint_base", "skinflint_unwind", "signals", "larger", "skinflint_alloc", "growing", "whole", "kept",
            "private_heaps", "hostile", "cold", "sparse", "larger_pages", "many_heaps", "figures", "hardened")
# Programs whose figures are of pages of 4 KiB, on another kernel.
SMALL_ONLY = {"cold": "what is cold is counted by pages of 4 KiB", "figures": "resident bytes to the page",
              "hardened": "guards are pages of 4 KiB, and there are none on larger ones"}
NEW_KERNEL = "a kernel that joins mappings again after mremap"
# Program, test, kernels, reason.
LEFT_OUT = [
    ("skinflint_alloc", "heaps::large::tests::a_block_that_moved_leaves_nothing_dirty", (4, 16), NEW_KERNEL),
    ("skinflint_alloc", "services::harden::untouched::tests::", (16,), "sampled blocks need guards of 4 KiB"),
    ("skinflint_alloc", "services::holes::tests::a_round_looks_at_what_has_changed", (4, 16), "it measures time by turns"),
    ("skinflint_unwind", "foreign::tests::", (16,), "it counts pages of 4 KiB"),
    ("skinflint_unwind", "generated::tests::", (16,), "it counts pages of 4 KiB"),
]


def kernel(work, page):
    """The newest kernel of a package, by an apt of its own: the machine's architectures stay what they are."""
    folder = os.path.join(work, f"kernel-{page}")
    found = glob.glob(os.path.join(folder, "boot", "vmlinuz-*"))
    if found:
        return found[0]
    state = os.path.join(work, "apt")
    for name in ("state/lists/partial", "cache/archives/partial", "parts"):
        os.makedirs(os.path.join(state, name), exist_ok=True)
    open(os.path.join(state, "state", "status"), "a", encoding="utf-8").close()
    release = emulated.run(["sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME"]).strip()
    known = emulated.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"])
    site = next(line.split()[0] for line in known.splitlines() if line.split()[1:] == [release])
    with open(os.path.join(state, "sources"), "w", encoding="utf-8") as file:
        for suite in (release, release + "-backports"):
            file.write(f"deb {site} {suite} main\n")
    settings = {"Dir::State": state + "/state", "Dir::State::status": state + "/state/status", "Dir::Cache": state + "/cache",
                "Dir::Etc::sourcelist": state + "/sources", "Dir::Etc::sourceparts": state + "/parts",
                "APT::Architecture": "arm64", "APT::Architectures": "arm64"}
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    emulated.run(["apt-get", *options, "update"])
    names = emulated.run(["apt-cache", *options, "search", "--names-only", "^linux-image"]).split("\n")
    wanted = [line.split()[0] for line in names if line and re.fullmatch(KERNELS[page], line.split()[0])]
    if not wanted:
        return None
    os.makedirs(folder, exist_ok=True)
    emulated.run(["apt-get", *options, "download", sorted(wanted)[-1]], cwd=folder)
    package, = glob.glob(os.path.join(folder, "*.deb"))
    emulated.run(["sh", "-c", f"dpkg-deb --fsys-tarfile '{package}' | tar -x -C '{folder}' ./boot"])
    os.unlink(package)
    return glob.glob(os.path.join(folder, "boot", "vmlinuz-*"))[0]


def busybox(work):
    """A busybox for aarch64, by the apt that fetched the kernel."""
    found = os.path.join(work, "bin", "busybox")
    if not os.path.exists(found):
        settings = os.path.join(work, "apt")
        options = ["-o", f"Dir::State={settings}/state", "-o", f"Dir::State::status={settings}/state/status",
                   "-o", f"Dir::Cache={settings}/cache", "-o", f"Dir::Etc::sourcelist={settings}/sources",
                   "-o", f"Dir::Etc::sourceparts={settings}/parts", "-o", "APT::Architecture=arm64",
                   "-o", "APT::Architectures=arm64"]
        emulated.run(["apt-get", *options, "download", "busybox-static"], cwd=work)
        package, = glob.glob(os.path.join(work, "busybox-static_*.deb"))
        emulated.run(["dpkg-deb", "-x", package, work])
        os.unlink(package)
    return found


def checks(page):
    """[(name, command)]"""
    planned = [("the kernel's page", f"test \"$(/t/page)\" = {page * 1024}"),
               ("the allocator serves a program", "LD_PRELOAD=/t/libskinflint.so /t/stacks-plain"),
               ("and one with signed return addresses", "LD_PRELOAD=/t/libskinflint.so /t/stacks-signed")]
    for name in PROGRAMS:
        if page > 4 and name in SMALL_ONLY:
            continue
        skipped = " ".join(f"--skip {test}" for program, test, kernels, _ in LEFT_OUT if program == name and page in kernels)
        planned.append((name, f"timeout 600 /t/{name} --test-threads 2 {skipped} > /tmp/out 2>&1 || "
                              "{ grep -E 'FAILED|panicked' /tmp/out; false; }"))
    return planned


def image(work, page):
    files = {"bin/busybox": busybox(work)}
    for name in LIBRARIES:
        files["lib/" + name] = os.path.realpath(f"{emulated.SYSROOT}/lib/{name}")
    for name, path, _ in emulated.programs():
        if name in PROGRAMS:
            files["t/" + name] = path
    for path in emulated.compiled(work):
        files["t/" + os.path.basename(path)] = path
    source = os.path.join(work, "page.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write('#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf("%ld\\n", sysconf(_SC_PAGESIZE)); return 0; }\n')
    emulated.run(["aarch64-linux-gnu-gcc", "-o", os.path.join(work, "page"), source])
    files["t/page"] = os.path.join(work, "page")
    files["t/libskinflint.so"] = os.path.join(ROOT, "target", emulated.TARGET, "release", "libskinflint.so")
    entries = [(name, 0o040755, b"") for name in ("bin", "lib", "t", "proc", "sys", "dev", "tmp")]
    for name, path in files.items():
        stripped = os.path.join(work, "stripped")
        emulated.run(["aarch64-linux-gnu-strip", "-g", "-o", stripped, path])
        with open(stripped, "rb") as file:
            entries.append((name, 0o100755, file.read()))
    lines = ["#!/bin/busybox sh", "/bin/busybox --install -s /bin", "export PATH=/bin HOME=/tmp", "mount -t proc proc /proc",
             "mount -t sysfs sysfs /sys", "mount -t devtmpfs dev /dev", "mount -t tmpfs tmpfs /tmp", "ln -s /proc/self/fd /dev/fd",
             "cd /t"]
    for name, command in checks(page):
        lines.append(f"if ( {command} ) ; then echo 'check {name}: held' ; else echo 'check {name}: NOT HELD' ; fi")
    entries.append(("init", 0o100755, "\n".join([*lines, "poweroff -f", ""]).encode()))
    path = os.path.join(work, f"initramfs-{page}")
    with open(path, "wb") as out:
        out.write(other.cpio(entries))
    return path


def boot(vmlinuz, initramfs):
    command = ["qemu-system-aarch64", "-M", "virt,gic-version=3", "-accel", "tcg,thread=multi", "-cpu", "max,pauth-impdef=on",
               "-smp", "2", "-m", "3072", "-nographic", "-no-reboot", "-nic", "none", "-kernel", vmlinuz, "-initrd", initramfs,
               "-append", "console=ttyAMA0 loglevel=4 panic=-1 rdinit=/init"]
    lines = []
    with subprocess.Popen(["timeout", str(LIMIT_S), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, errors="replace") as machine:
        for line in machine.stdout:
            lines.append(line.strip())
            print("  " + lines[-1], flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=int, choices=sorted(KERNELS), action="append", help="KiB; without it all of them")
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "aarch64"), help="kernels, programs and initramfs")
    arguments = parser.parse_args()
    emulated.need("qemu-system-aarch64", "qemu-system-arm")
    emulated.need("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")
    os.makedirs(arguments.work, exist_ok=True)
    lost = 0
    for page in arguments.page or sorted(KERNELS):
        vmlinuz = kernel(arguments.work, page)
        if vmlinuz is None:
            print(f"pages of {page} KiB: there is no such kernel in this release of Debian")
            continue
        lines = boot(vmlinuz, image(arguments.work, page))
        missing = [name for name, _ in checks(page) if f"check {name}: held" not in lines]
        for program, test, kernels, reason in LEFT_OUT:
            if page in kernels:
                print(f"  left out of {program}: {test}: {reason}")
        for program, reason in SMALL_ONLY.items() if page > 4 else ():
            print(f"  left out: {program}: {reason}")
        print(f"pages of {page} KiB: {len(checks(page)) - len(missing)} of {len(checks(page))} checks held on "
              f"{os.path.basename(vmlinuz)}" + (f"; not: {', '.join(missing)}" if missing else ""))
        lost += len(missing)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
