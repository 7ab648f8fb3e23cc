"""The allocators that are compared: where each comes from, how it is built, and that it really ran.

    lock file (peers/) ──► cargo fetch ──► sources ──► the authors' own preload build ──► target/bench/alloc/peers/NAME.so
    Debian package     ──────────────────────────────────────────────────────────────► /usr/lib/…

E1  None of the peers' code is in this repository: crates that carry the sources are pinned by version and
    checksum in peers/Cargo.lock, and compiled as their authors' CMake, configure or ninja files do for a preload.
    No wrapper stands between the program and the peer: every library exports malloc itself.
E2  A library is built once per recipe and version; its stamp is both, so an old one is never measured.
E3  A run with a preload that did not take effect is an error, not a row: `bound_to` asks the loader.
E5  A peer's name with + is the peer told to give memory back, as its documents advise. These are columns of tables of
    memory at rest, and of no other: what the settings cost in time is not asked there.
E4  Run as a program (`cargo xtask peers`) this builds what is built from source and lists it in peers.json, which
    `skinflint compare` reads: name, version, source, environment, and the library's file beside the list.
"""
import argparse
import concurrent.futures
import dataclasses
import glob
import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MANIFEST = os.path.join(HERE, "peers", "Cargo.toml")
LIBC = "libc.so.6"


class Absent(Exception):
    """The allocator cannot be had here; the message says why and what to do."""


@dataclasses.dataclass
class Allocator:
    """One column of the tables. `path` is empty for the C library's own malloc."""
    name: str
    version: str
    path: str
    source: str
    environment: dict = dataclasses.field(default_factory=dict)


def run(command, cwd=None, limit_s=1200):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=limit_s)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
        raise Absent(f"{' '.join(command[:3])} … failed with {done.returncode}:\n{tail}")
    return done.stdout


def crate(name, cache={}):
    """(version, folder) of a locked crate, downloaded if need be."""
    if not cache:
        if not shutil.which("cargo"):
            raise Absent("cargo is not installed: it downloads the peers' sources")
        out = run(["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", MANIFEST])
        for package in json.loads(out)["packages"]:
            cache[package["name"]] = (package["version"], os.path.dirname(package["manifest_path"]))
    if name not in cache:
        raise Absent(f"{name} is not in {MANIFEST}")
    return cache[name]


def defined(header, name):
    """The value of a #define."""
    with open(header) as file:
        found = re.search(rf"#define\s+{name}\s+(\d+)", file.read())
    return found.group(1) if found else "?"


def build_mimalloc(folder, out, generation):
    source = os.path.join(folder, "c_src", "mimalloc", generation)
    run(["gcc", "-O3", "-DNDEBUG", "-DMI_BUILD_RELEASE", "-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB",
         "-DMI_SHARED_LIB_EXPORT", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-builtin-malloc",
         "-w", "-shared", f"-I{source}/include", f"-I{source}/src", f"{source}/src/static.c", "-o", out,
         "-lpthread", "-ldl"])


def version_mimalloc(folder, generation):
    number = defined(os.path.join(folder, "c_src", "mimalloc", generation, "include", "mimalloc.h"), "MI_MALLOC_VERSION")
    return f"{number[0]}.{int(number[1:3])}.{int(number[3:5])}" if len(number) == 5 else number


def build_rpmalloc(folder, out):
    source = os.path.join(folder, "rpmalloc", "rpmalloc", "rpmalloc.c")
    run(["gcc", "-std=c11", "-O3", "-funroll-loops", "-ffast-math", "-D_GNU_SOURCE", "-DBUILD_RELEASE=1",
         "-DENABLE_PRELOAD=1", "-DENABLE_OVERRIDE=1", "-fPIC", "-w", "-shared", source, "-o", out, "-lpthread", "-ldl"])


def build_snmalloc(folder, out):
    work = out + ".build"
    run(["cmake", "-S", os.path.join(folder, "upstream"), "-B", work, "-DCMAKE_BUILD_TYPE=Release",
         "-DSNMALLOC_BUILD_TESTING=OFF"])
    run(["cmake", "--build", work, "--target", "snmallocshim"])
    shutil.copy(os.path.join(work, "libsnmallocshim.so"), out)
    shutil.rmtree(work)


def build_jemalloc(folder, out):
    work = out + ".build"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(os.path.join(folder, "jemalloc"), work)
    for ready in glob.glob(os.path.join(folder, "configure", "*")):
        shutil.copy(ready, work)
    version = crate("tikv-jemalloc-sys")[0].split("+")[1]
    run(["sh", "./configure", "--disable-cxx", "--disable-doc", "--disable-static", f"--with-version={version}"], cwd=work)
    run(["make", "-j2", "build_lib_shared"], cwd=work)
    shutil.copy(os.path.join(work, "lib", "libjemalloc.so.2"), out)
    shutil.rmtree(work)


TCMALLOC_FLAGS = ["-O2", "-std=c++17", "-DNDEBUG", "-DNOMINMAX", "-DTCMALLOC_INTERNAL_8K_PAGES", "-fPIC",
                  "-fvisibility=hidden", "-ftls-model=initial-exec", "-w"]


def build_tcmalloc(folder, out):
    """The file list is the crate's own; its two bridge files to Rust give way to tcmalloc.cc, which exports malloc."""
    with open(os.path.join(folder, "build.rs")) as recipe:
        listed = re.findall(r'"(c_src/[^"]+\.(?:cc|S))"', recipe.read())
    sources = [name for name in listed if "bridge" not in name] + ["c_src/tcmalloc/tcmalloc/tcmalloc.cc"]
    work = out + ".build"
    os.makedirs(work, exist_ok=True)
    include = [f"-I{folder}/c_src/abseil-cpp", f"-I{folder}/c_src/tcmalloc"]

    def compiled(name):
        target = os.path.join(work, name.replace("/", "_") + ".o")
        run(["g++", *TCMALLOC_FLAGS, *include, "-c", os.path.join(folder, name), "-o", target])
        return target
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources))
    run(["g++", "-shared", "-o", out, *objects, "-Wl,-Bsymbolic-functions", "-lpthread", "-ldl"])
    shutil.rmtree(work)


# What the header of Google's tcmalloc asks a program to do that wants memory back (malloc_extension.h): a thread of its
# own for housekeeping, and a rate, here 1 GiB a second. No variable does that.
TCMALLOC_RELEASE = """
#include <pthread.h>
static void* work(void*) { tcmalloc::MallocExtension::ProcessBackgroundActions(); return nullptr; }
__attribute__((constructor)) static void begin() {
  pthread_t id;
  tcmalloc::MallocExtension::SetBackgroundReleaseRate(tcmalloc::MallocExtension::BytesPerSecond{1 << 30});
  if (pthread_create(&id, nullptr, work, nullptr) == 0) pthread_detach(id);
}
"""


def build_tcmalloc_releasing(folder, out, release=TCMALLOC_RELEASE):
    """The same with a thread more, in a copy of the sources."""
    work = out + ".sources"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder, work)
    with open(os.path.join(work, "c_src", "tcmalloc", "tcmalloc", "tcmalloc.cc"), "a") as file:
        file.write(release)
    build_tcmalloc(work, out)
    shutil.rmtree(work)


def built(name, crate_name, recipe, work, version=None, environment=None, **given):
    """An Allocator whose library is compiled from a locked crate, once (E2)."""
    crate_version, folder = crate(crate_name)
    source = inspect.getsource(recipe) + repr(sorted(given.items())) + repr(TCMALLOC_FLAGS)
    stamp = hashlib.sha256((source + crate_version).encode()).hexdigest()[:10]
    path = os.path.join(work, "peers", f"lib{name}-{stamp}.so")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        print(f"building {name} from {crate_name} {crate_version}", flush=True)
        recipe(folder, path + ".part", **given)
        os.rename(path + ".part", path)
    said = version(folder, **given) if version else crate_version
    return Allocator(name, said, path, f"crate {crate_name} {crate_version}", environment or {})


def packaged(name, package, pattern):
    found = sorted(glob.glob(pattern))
    if not found:
        raise Absent(f"{package} is not installed; run: apt-get install -y {package}")
    out = run(["dpkg-query", "-W", "-f", "${Version}", package])
    return Allocator(name, out.strip(), found[0], f"Debian {package}")


def glibc(_work):
    return Allocator("glibc", os.confstr("CS_GNU_LIBC_VERSION").split()[-1], "", "the system's C library")


def skinflint(_work):
    # Absolute: programs run in folders of their own.
    path = os.path.abspath(os.environ.get("SKINFLINT_ALLOCATOR") or os.path.join(ROOT, "target", "release", "libskinflint.so"))
    if not os.path.exists(path) or not exports_malloc(path):
        raise Absent(f"{path} is not built or exports no malloc; run: cargo build --release -p skinflint-malloc-so")
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    with open(path, "rb") as library:
        digest = hashlib.sha256(library.read()).hexdigest()[:8]
    return Allocator("skinflint", f"{commit.stdout.strip()} ({digest})", path, "this repository")


LIBRARIES = "/usr/lib/*-linux-gnu/"
MAKERS = {
    "skinflint": skinflint,
    "skinflint-thp": lambda work: dataclasses.replace(skinflint(work), name="skinflint-thp",
                                                      environment={"SKINFLINT_THP": "on"}),
    "glibc": glibc,
    "jemalloc": lambda work: built("jemalloc", "tikv-jemalloc-sys", build_jemalloc, work,
                                   version=lambda _f: crate("tikv-jemalloc-sys")[0].split("+")[1].split("-")[0]),
    "mimalloc2": lambda work: built("mimalloc2", "libmimalloc-sys", build_mimalloc, work, version=version_mimalloc,
                                    generation="v2"),
    "mimalloc3": lambda work: built("mimalloc3", "libmimalloc-sys", build_mimalloc, work, version=version_mimalloc,
                                    generation="v3"),
    "snmalloc": lambda work: built("snmalloc", "snmalloc-sys", build_snmalloc, work),
    "rpmalloc": lambda work: built("rpmalloc", "rpmalloc-sys", build_rpmalloc, work),
    "gperftools": lambda _work: packaged("gperftools", "libtcmalloc-minimal4", LIBRARIES + "libtcmalloc_minimal.so.4"),
    # Its per-CPU caches need restartable sequences, which glibc takes for itself unless told not to (its docs/rseq.md).
    "tcmalloc": lambda work: built("tcmalloc", "libtcmalloc-sys", build_tcmalloc, work,
                                   environment={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}),
    "jemalloc-deb": lambda _work: packaged("jemalloc-deb", "libjemalloc2", LIBRARIES + "libjemalloc.so.2"),
    "mimalloc-deb": lambda _work: packaged("mimalloc-deb", "libmimalloc2.0", LIBRARIES + "libmimalloc.so.2"),
}
# The Debian builds of what is also built from source are there to compare the builds, not as peers of their own;
# Skinflint with huge pages is there to tell what they change: mimalloc asks for them unasked.
DEFAULT = [name for name in MAKERS if not name.endswith(("-deb", "-thp"))]

# The same peers told to give memory back, as their own documents advise: {name: (of which, environment)} (E5).
GIVING_BACK = {
    # TUNING.md advises it in general; without it nothing decays while no call comes.
    "jemalloc+": ("jemalloc", {"MALLOC_CONF": "background_thread:true"}),
    # TUNING.md: "Extremely conservative -- minimize memory usage at all costs".
    "jemalloc++": ("jemalloc", {"MALLOC_CONF": "background_thread:true,narenas:1,tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0"}),
    # readme.md: MIMALLOC_PURGE_DELAY=0 gives back at once what mimalloc could give back later.
    "mimalloc2+": ("mimalloc2", {"MIMALLOC_PURGE_DELAY": "0"}),
    "mimalloc3+": ("mimalloc3", {"MIMALLOC_PURGE_DELAY": "0"}),
    # mallopt(3): a limit on the top of the heap, and on what is mapped alone; both are fixed once one is set.
    "glibc+": ("glibc", {"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "2"}),
    # docs/tcmalloc.html of gperftools: "reasonable rates are in the range [0,10]".
    "gperftools+": ("gperftools", {"TCMALLOC_RELEASE_RATE": "10", "TCMALLOC_AGGRESSIVE_DECOMMIT": "1"}),
}
TUNED = [*GIVING_BACK, "tcmalloc+"]


def tuned(name):
    base, environment = GIVING_BACK[name]

    def make(work):
        allocator = MAKERS[base](work)
        return dataclasses.replace(allocator, name=name, environment={**allocator.environment, **environment})
    return make


MAKERS.update({name: tuned(name) for name in GIVING_BACK})
MAKERS["tcmalloc+"] = lambda work: dataclasses.replace(
    built("tcmalloc-releasing", "libtcmalloc-sys", build_tcmalloc_releasing, work,
          environment={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}), name="tcmalloc+")


def exports_malloc(path):
    done = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True)
    return any(line.split()[-1].split("@")[0] == "malloc" for line in done.stdout.splitlines() if line)


def gather(names, work):
    """([Allocator], {name: why it is absent})"""
    have, absent = [], {}
    for name in names:
        try:
            have.append(MAKERS[name](work))
        except (Absent, OSError, subprocess.SubprocessError) as error:
            absent[name] = str(error)
    return have, absent


def preload(allocator, program=""):
    """What LD_PRELOAD must be. A program that is linked with an allocator of its own (Debian's redis-server) gets
    the C library named first, where the C library's malloc is wanted."""
    if allocator.path:
        return allocator.path
    return LIBC if program.endswith("redis-server") else ""


def bound_to(allocator, command, environment):
    """The libraries that the loader took `malloc` from (E3); '' if it said nothing. A program that takes the
    address of malloc has a jump of its own to it, which the loader names too: that is no other allocator."""
    value = preload(allocator, command[0])
    extended = dict(environment, **allocator.environment, LD_DEBUG="bindings", LD_BIND_NOW="1",
                    **({"LD_PRELOAD": value} if value else {}))
    done = subprocess.run(command, env=extended, capture_output=True, text=True, errors="replace", timeout=60,
                          stdin=subprocess.DEVNULL)
    targets = {found.group(2) for found in
               re.finditer(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: normal symbol `malloc'", done.stderr)}
    return ", ".join(sorted(targets - {command[0], os.path.realpath(command[0])}))


def verify(allocator, command, environment):
    """Raises Absent unless every object of the program takes malloc from this allocator."""
    bound = bound_to(allocator, command, environment)
    wanted = os.path.realpath(allocator.path) if allocator.path else LIBC
    seen = [os.path.realpath(path) if allocator.path else os.path.basename(path) for path in bound.split(", ")]
    if seen != [wanted]:
        raise Absent(f"{command[0]}: malloc is bound to {bound or 'nothing'}, not to {allocator.name}")


FROM_SOURCE = ["jemalloc", "mimalloc2", "mimalloc3", "snmalloc", "rpmalloc", "tcmalloc"]


def main():
    """Builds the peers and writes the list; 1 if one could not be had, 0 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "bench", "alloc"), metavar="FOLDER",
                        help="where the libraries go, in a folder peers (default: target/bench/alloc)")
    parser.add_argument("--only", default=",".join(FROM_SOURCE), metavar="A,B",
                        help=f"which to build: {', '.join(FROM_SOURCE)} (default: all)")
    options = parser.parse_args()
    names = options.only.split(",")
    for name in names:
        if name not in FROM_SOURCE:
            parser.error(f"--only {name}: not built from source here; known: {', '.join(FROM_SOURCE)}")
    options.work = os.path.abspath(options.work)
    have, absent = gather(names, options.work)
    folder = os.path.join(options.work, "peers")
    os.makedirs(folder, exist_ok=True)
    listed = os.path.join(folder, "peers.json")
    entries = {}
    if os.path.exists(listed):  # what an earlier run built stays listed
        with open(listed) as file:
            entries = {peer["name"]: peer for peer in json.load(file)["peers"]
                       if os.path.exists(os.path.join(folder, peer["file"]))}
    for peer in have:
        entries[peer.name] = {"name": peer.name, "version": peer.version, "source": peer.source,
                              "file": os.path.basename(peer.path), "environment": peer.environment}
    with open(listed + ".part", "w") as file:
        json.dump({"peers": list(entries.values())}, file, indent=1)
    os.rename(listed + ".part", listed)
    for peer in have:
        print(f"{peer.name:12} {peer.version:24} {peer.path}")
    for name, why in absent.items():
        print(f"{name}: {why}", file=sys.stderr)
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
