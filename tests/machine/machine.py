"""The allocator on eight processors and two nodes: a small machine in qemu, with a kernel of Debian's and a swap.

    kernel package ─► vmlinuz, modules ─┐
    busybox, libskinflint.so, programs ─┴─► initramfs ─► qemu: 8 CPUs, 2 nodes ─► "check NAME: …" lines ─► verdict

N1  Every check that is planned must say "held"; one that says nothing (a panic, a hang, a machine that does not start) is
    not held. Exit 0: all held, 1: one was not, 2: the machine could not be made.
N2  --break NAME has one check run without the library, or with what it needs taken away, to see it fail. Two checks may
    hold then, too, and are not offered (KEPT): "memory of its own node" was seen to fail with an allocator that has one list
    of free runs for all nodes (6 in a hundred, 2026-11-26).
N3  No time is judged: without KVM the machine is some fifty times slower than this one. There is a limit for hangs.

Not here: what the programs check (crew.c, ../accounts/cool.c, ../contract).
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIMIT_S = 900
CPUS, NODES, MIB = 8, 2, 1024
MODULES = ("zsmalloc", "lzo", "lzo-rle", "zram")
ON = "LD_PRELOAD=/lib/libskinflint.so "
# Name, command. Each must end with 0.
CHECKS = [
    ("eight processors and two nodes", f"test $(nproc) = {CPUS} && test -d /sys/devices/system/node/node{NODES - 1}"),
    ("the library serves malloc", ON + "/bin/crew serves 1"),
    ("a thread on each processor", ON + f"/bin/crew cpus {CPUS}"),
    ("a thread on each processor, invariants checked", ON + f"SKINFLINT_CHECK=2 /bin/crew cpus {CPUS}"),
    ("memory of its own node", ON + f"/bin/crew nodes {NODES}"),
    ("threads that come and end", ON + "/bin/lives"),
    ("cold pages go to the swap and come back", ON + "/bin/cool swap"),
]
# They are about what the library must not lose; the C library's malloc may pass them (N2).
KEPT = ("memory of its own node", "threads that come and end")


def run(command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def need(tool, package):
    if not shutil.which(tool):
        sys.exit(f"machine: {tool} is missing: apt-get install {package}")


def kernel(work):
    """(vmlinuz, folder of modules) of the newest kernel of the package that Debian's cloud kernel leads to."""
    if not glob.glob(os.path.join(work, "boot", "vmlinuz-*")):
        depends = run(["apt-cache", "depends", "linux-image-cloud-amd64"])
        package = re.search(r"Depends: (linux-image-\S+)", depends).group(1)
        run(["apt-get", "download", package], cwd=work)
        run(["dpkg-deb", "-x", glob.glob(os.path.join(work, package + "_*.deb"))[0], work])
    image = sorted(glob.glob(os.path.join(work, "boot", "vmlinuz-*")))[-1]
    version = image.split("vmlinuz-")[1]
    return image, glob.glob(os.path.join(work, "*lib", "modules", version)) or glob.glob(
        os.path.join(work, "lib", "modules", version))


def programs(work):
    """Programs, built, with the libraries that they are linked with."""
    out = os.path.join(work, "programs")
    os.makedirs(out, exist_ok=True)
    flags = ["-std=gnu11", "-g", "-O1", "-fno-builtin", "-pthread", "-Wall", "-Wextra", "-Werror",
             f"-I{ROOT}/include", f"-I{ROOT}/tests/programs"]
    sources = [os.path.join(HERE, "crew.c"), os.path.join(ROOT, "tests/accounts/cool.c"),
               os.path.join(ROOT, "tests/contract/lives.c")]
    built = []
    for source in sources:
        built.append(os.path.join(out, os.path.basename(source)[:-2]))
        run(["gcc", *flags, "-o", built[-1], source, "-ldl"])
    library = os.path.join(ROOT, "target/release/libskinflint.so")
    if not os.path.exists(library):
        sys.exit("machine: no target/release/libskinflint.so: run cargo build --release")
    return built, library, libraries_of([*built, library])


def libraries_of(files):
    """The libraries that they are linked with, and those that these are linked with."""
    found = set()
    for path in files:
        found |= set(re.findall(r"(/\S+\.so\S*) \(", run(["ldd", path])))
    return sorted(found)


def cpio(entries):
    """An archive in the form that the kernel unpacks ("newc"): [(name, mode, bytes)]."""
    out = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        encoded = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        out += b"\0" * (-len(out) % 4) + content
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def init(broken):
    lines = ["#!/bin/busybox sh", "/bin/busybox --install -s /bin", "export PATH=/bin", "mount -t proc proc /proc",
             "mount -t sysfs sysfs /sys", "mount -t devtmpfs dev /dev", "mount -t tmpfs tmpfs /tmp",
             *[f"test ! -f /modules/{name}.ko || insmod /modules/{name}.ko" for name in MODULES],
             "echo 256M > /sys/block/zram0/disksize && mkswap /dev/zram0 > /dev/null && swapon /dev/zram0"]
    for name, command in CHECKS:
        if name == broken:
            # Without the library, or where that changes nothing, without the swap or a processor.
            taken = "swapoff /dev/zram0" if "swap" in name else "echo 0 > /sys/devices/system/cpu/cpu7/online"
            command = f"{taken}; {command.replace(ON, '')}" if "swap" not in name else f"{taken}; {command}"
        lines += [f"echo 'check {name}: begins'",
                  f"if ( {command} ) ; then echo 'check {name}: held' ; else echo 'check {name}: NOT HELD' ; fi"]
    return "\n".join([*lines, "echo 'all checks were made'", "sync", "poweroff -f", ""]).encode()


def image(work, name, built, libraries, more, start):
    """The initramfs: programs, libraries, other files [(name, path)] and the script that is started."""
    entries = [(name, 0o040755, b"") for name in ("bin", "lib", "lib64", "proc", "sys", "dev", "tmp", "modules")]
    seen = {"lib", "lib64"}

    def add(name, path, mode=0o100755):
        parts = name.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder not in seen and folder not in ("bin", "modules"):
                seen.add(folder)
                entries.append((folder, 0o040755, b""))
        with open(path, "rb") as file:
            entries.append((name, mode, file.read()))

    add("bin/busybox", shutil.which("busybox"))
    for path in built:
        add("bin/" + os.path.basename(path), path)
    for path in libraries:
        add(path.lstrip("/"), path)
    for place, path in more:
        add(place, path)
    entries.append(("init", 0o100755, start))
    path = os.path.join(work, name)
    with open(path, "wb") as out:
        out.write(cpio(entries))
    return path


def modules(folders):
    """Those of MODULES that the kernel has as files: where they go, and where they are."""
    found = [(name, glob.glob(os.path.join(folder, "kernel", "**", name + ".ko"), recursive=True))
             for folder in folders for name in MODULES]
    return [(f"modules/{name}.ko", path) for name, paths in found for path in paths]


def boot(vmlinuz, initramfs, cpus=CPUS, nodes=NODES, more=""):
    """Runs the machine; its console's lines, printed as they come."""
    memory, each = f"{MIB}M", MIB // nodes
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(cpus), "-m", memory, "-nographic",
               "-no-reboot", "-nic", "none", "-kernel", vmlinuz, "-initrd", initramfs,
               "-append", "console=ttyS0 loglevel=5 panic=-1 mitigations=off " + more]
    for node in range(nodes):
        first = node * cpus // nodes
        command += ["-object", f"memory-backend-ram,id=m{node},size={each}M",
                    "-numa", f"node,nodeid={node},cpus={first}-{first + cpus // nodes - 1},memdev=m{node}"]
    lines = []
    with subprocess.Popen(["timeout", str(LIMIT_S), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, errors="replace") as machine:
        for line in machine.stdout:
            lines.append(line.strip())
            print("  " + lines[-1], flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "machine"), help="kernel, programs and initramfs")
    parser.add_argument("--break", dest="broken", choices=[name for name, _ in CHECKS if name not in KEPT],
                        help="a check to see fail")
    arguments = parser.parse_args()
    need("qemu-system-x86_64", "qemu-system-x86")
    need("busybox", "busybox-static")
    os.makedirs(arguments.work, exist_ok=True)
    vmlinuz, folders = kernel(arguments.work)
    built, library, libraries = programs(arguments.work)
    more = [("lib/libskinflint.so", library), *modules(folders)]
    lines = boot(vmlinuz, image(arguments.work, "initramfs", built, libraries, more, init(arguments.broken)))
    held = [name for name, _ in CHECKS if f"check {name}: held" in lines]
    lost = [name for name, _ in CHECKS if name not in held]
    print(f"{len(held)} of {len(CHECKS)} checks held on {os.path.basename(vmlinuz)}" + (f"; not: {', '.join(lost)}" if lost else ""))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
