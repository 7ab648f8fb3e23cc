"""Forty misuses of blocks, planted in one program (programs/bugs.c): which allocator finds which, at each level.

    bugs NUMBER bad ────► ends by a report, or goes on?          the letters of a cell, B2
    bugs NUMBER sound ──► the same without the misuse: must end with 0 and without a word, under every allocator

    python3 bench/alloc/bugs.py                     # all levels of ours, and the peers that are here
    python3 bench/alloc/bugs.py --seed 3 --only skinflint

B1  Each misuse is a process of its own. The seed chooses the size of small blocks (65 to 128 bytes), and so the slack behind them.
B2  Found is what is reported before the program itself meets what it did. R: a line is written, or the process ends by
    the allocator's hand. F: a memory fault at the access itself, on a page that may not be touched. r: the call fails, as it should.
    Not found: x: the process crashes somewhere later, without a word; c: the program met the consequence; . : nothing was noticed.
B3  A report that comes after the consequence is none. A crash after the access that made it is none, whatever its signal.
B4  What a misuse does may depend on where the kernel puts things: each is run --runs times, and a cell has its worst run.
"""
import argparse
import dataclasses
import os
import platform
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import idle  # noqa: E402
import measure  # noqa: E402
import peers  # noqa: E402
import speed  # noqa: E402

FOUND, WORST_FIRST = "RFr", ".cxrFR"
LIMIT_S = 30
LEVELS = range(5)


def build_secure(folder, out, generation):
    """mimalloc as its authors build the secure variant (MI_SECURE=ON)."""
    source = os.path.join(folder, "c_src", "mimalloc", generation)
    peers.run(["gcc", "-O3", "-DNDEBUG", "-DMI_BUILD_RELEASE", "-DMI_SECURE=4", "-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB",
               "-DMI_SHARED_LIB_EXPORT", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-builtin-malloc",
               "-w", "-shared", f"-I{source}/include", f"-I{source}/src", f"{source}/src/static.c", "-o", out,
               "-lpthread", "-ldl"])


def ours(level, **more):
    def make(work):
        found = peers.skinflint(work)
        return dataclasses.replace(found, environment={**found.environment, "SKINFLINT_HARDEN": str(level), **more})
    return make


def secure(generation):
    return lambda work: peers.built("mimalloc-secure-" + generation, "libmimalloc-sys", build_secure, work,
                                    version=peers.version_mimalloc, environment={"MIMALLOC_SHOW_ERRORS": "1"},
                                    generation=generation)


def packaged(package, pattern, **environment):
    return lambda _work: dataclasses.replace(peers.packaged("", package, pattern), environment=environment)


LIBRARIES = "/usr/lib/*-linux-gnu/"
COLUMNS = {
    **{f"skinflint {level}": ours(level) for level in LEVELS},
    # What level 1 finds in the blocks that it picks.
    "skinflint 1, all": ours(1, SKINFLINT_SAMPLE_EVERY="1"),
    "glibc": peers.glibc,
    "glibc check": packaged("libc6", LIBRARIES + "libc_malloc_debug.so.0", MALLOC_CHECK_="3", MALLOC_PERTURB_="165"),
    "mimalloc 2 secure": secure("v2"),
    "mimalloc 3 secure": secure("v3"),
    "gperftools debug": packaged("libtcmalloc-minimal4", LIBRARIES + "libtcmalloc_minimal_debug.so.4"),
    "scudo": packaged("libclang-rt-19-dev", "/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.scudo_standalone-x86_64.so"),
}


def verdict(status, said, complaint):
    """The letter of a run (B2), from how the program ended, the words it said and what the allocator wrote."""
    if "consequence" in said:
        return "c"
    if "refused" in said:
        return "r"
    if status == 0 and said[-1:] == ["end"] and not complaint:
        return "."
    if complaint:
        return "R"
    # Without a word: only a fault between the two marks was at the access itself (B3).
    between = said[-1:] == ["at"]
    if status in (-11, -7):
        return "F" if between else "x"
    return "R" if between else "x"


def run(binary, allocator, number, how, seed):
    done = subprocess.run([binary, str(number), how, str(seed)], env=speed.environment(allocator), capture_output=True,
                          text=True, errors="replace", timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout.split(), done.stderr.strip()


def column(binary, allocator, names, seed, runs):
    """The cells of an allocator, and the names of sound programs that did not end well."""
    cells, unsound = [], []
    for number, name in enumerate(names, 1):
        try:
            found = [verdict(*run(binary, allocator, number, "bad", seed)) for _ in range(runs)]
        except subprocess.TimeoutExpired:
            found = ["x"]
        cells.append(min(found, key=WORST_FIRST.index))
        status, said, complaint = run(binary, allocator, number, "sound", seed)
        if status or said[-1:] != ["end"] or complaint or "consequence" in said:
            unsound.append(f"{name}: {status} {said[-1:]} {complaint[:120]}")
    return cells, unsound


def count(cells):
    return sum(cell in FOUND for cell in cells)


def table(names, columns):
    wide = max(map(len, names)) + 2
    heads = list(columns)
    lines = [f"{chr(ord('A') + at)}  {head}" for at, head in enumerate(heads)]
    lines.append(" " * wide + "".join(f"{chr(ord('A') + at):>4}" for at in range(len(heads))))
    for at, name in enumerate(names):
        lines.append(f"{name:<{wide}}" + "".join(f"{columns[head][at]:>4}" for head in heads))
    lines.append(f"{'found':<{wide}}" + "".join(f"{count(columns[head]):>4}" for head in heads))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3, help="of each misuse (default: 3)")
    parser.add_argument("--only", default="", metavar="TEXT", help="columns whose name has this in it")
    parser.add_argument("--work", default=os.path.join(peers.ROOT, "target", "bench"), metavar="DIR")
    options = parser.parse_args()
    bench = measure.Bench("", os.path.abspath(options.work))
    # The compiler must neither warn of the misuses nor draw conclusions from them.
    binary = idle.compiled(bench, "bugs", "-fno-builtin", "-Wno-use-after-free", "-Wno-free-nonheap-object", "-Wl,--no-as-needed",
                           "-lstdc++")
    names = subprocess.run([binary, "list"], capture_output=True, text=True, check=True).stdout.split()
    print(f"{len(names)} misuses, seed {options.seed}, the worst of {options.runs} runs; {platform.machine()}, "
          f"Linux {platform.release()}")
    columns, failed = {}, []
    for head, make in COLUMNS.items():
        if options.only not in head:
            continue
        try:
            allocator = make(os.path.join(bench.work, "alloc"))
        except (peers.Absent, OSError, subprocess.SubprocessError) as error:
            print(f"{head} is absent: {error}")
            continue
        cells, unsound = column(binary, allocator, names, options.seed, options.runs)
        columns[f"{head}: {allocator.version}, {allocator.source}"] = cells
        failed += [f"{head}: sound {line}" for line in unsound]
    print(table(names, columns))
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
