"""Locked instructions of libskinflint.so, counted one by one: what threads pay for each other even where none waits.

    pattern ─► callgrind, by instruction ─┐
    objdump ─► which have a lock ─────────┴─► executions of those, for each operation of the pattern

K1  `xchg` with memory locks without saying so, and is counted too.
K2  Two runs of different length are subtracted, so that start and end are in neither figure.
K3  valgrind knows no restartable sequences: magazines are asked for, and not taken. It makes no difference to a pair.

Not here: which threads would wait (engines/alloc/examples/contention.rs).
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))

import measure  # noqa: E402
import speed  # noqa: E402

DEFAULT = ["pair48:20000", "rand2k:20000", "large4m:2000", "xmalloc:20", "prodcons:30", "mstress:20000"]


def locked_at(library):
    """{address: text} of the instructions that lock, and {name: address} of what the library exports."""
    out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], capture_output=True, text=True, check=True).stdout
    found = {int(one.group(1), 16): one.group(2).strip()
             for one in re.finditer(r"^\s*([0-9a-f]+):\s+(lock .*|xchg .*\(.*)$", out, re.M)}
    names = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    exported = {words[2].split("@")[0]: int(words[0], 16) for words in map(str.split, names.splitlines()) if len(words) == 3}
    return found, exported


def base_of(entries, exported):
    """Where the library was mapped: what most of its functions say that were called."""
    said = collections.Counter(at - exported[name] for name, at in entries.items() if name in exported)
    likely = [base for base, _ in said.most_common() if base % 4096 == 0]
    if not likely:
        raise measure.Failed("callgrind names none of the library's functions")
    return likely[0]


def executed(library, binary, pattern, scale):
    """(executions of each address of the library, lowest address of each function, operations)"""
    with tempfile.TemporaryDirectory() as scratch:
        profile = os.path.join(scratch, "profile")
        done = subprocess.run(["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no", "--compress-strings=no",
                               f"--callgrind-out-file={profile}", binary, pattern, str(scale)], capture_output=True, text=True,
                              env=dict(os.environ, LD_PRELOAD=library, SKINFLINT_PURGE="off"), timeout=600, check=True)
        counts, within, entries, of_call, name = {}, False, {}, False, ""
        with open(profile) as lines:
            for line in lines:
                if line.startswith("ob="):
                    within = line.rstrip().endswith("libskinflint.so")
                elif line.startswith("fn="):
                    name = line[3:].strip()
                elif line.startswith("calls="):
                    of_call = True
                elif line.startswith("0x"):
                    words = line.split()
                    if not of_call and within:
                        at = int(words[0], 16)
                        counts[at] = counts.get(at, 0) + int(words[-1])
                        entries[name] = min(at, entries.get(name, at))
                    of_call = False
    report = json.loads(done.stdout.splitlines()[-1])
    return counts, entries, report["ops"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=DEFAULT, metavar="NAME:SCALE")
    measure.add_arguments(parser)
    arguments = parser.parse_args()
    library = os.path.join(ROOT, "target", "release", "libskinflint.so")
    locked, exported = locked_at(library)
    binary = speed.pattern_binary(measure.bench_of(arguments))
    print(f"{len(locked)} instructions of the library lock; executions of them, by pattern")
    for word in arguments.patterns:
        pattern, scale = word.split(":")
        sums = []
        for factor in (1, 2):
            counts, entries, operations = executed(library, binary, pattern, int(scale) * factor)
            base = base_of(entries, exported)
            sums.append((sum(counts.get(base + at, 0) for at in locked), operations))
        (few, short), (many, long) = sums
        print(f"{pattern:12} {(many - few) / max(1, long - short):8.4f} locked instructions an operation"
              f"  ({many - few} in {long - short})")


if __name__ == "__main__":
    main()
