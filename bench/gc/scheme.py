#!/usr/bin/env python3
"""One small Scheme on our heap and on gc-arena: processor time, peak and instructions of three programs.

    rounds × (one process for each heap; the order turns each round) ──► medians, spread, ratios of pairs

S1  Both run the same instructions of the same machine (scheme/src/main.rs, B3), and what they display is predicted on paper.
S2  Time is processor time of all threads, our sweeper's included; a ratio is the median over the rounds' pairs.
S3  Memory is the highest resident memory of the process, less what was resident before the first object.
S4  Instructions are callgrind's, of smaller programs, all threads.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Each with its own defaults; ours also with less memory, and marking in slices as gc-arena does; gc-arena also without slices.
HEAPS = ["skinflint", "skinflint-tight", "skinflint-slices", "gc-arena", "gc-arena-stop"]
PROGRAMS = os.path.join(HERE, "scheme", "programs")
# Name, size, size under callgrind, and what is displayed for a size.
QUEENS = {6: 4, 7: 40, 8: 92, 9: 352, 10: 724}
RUNS = [
    ("queens", 10, 7, lambda n: f"{QUEENS[n]}\n"),
    # 64 trees of 2^(n-4) leaves, and the one that stays, in nodes.
    ("trees", 19, 13, lambda n: f"{64 * (2 ** (n - 3) - 1)}\n{2 ** (n + 1) - 1}\n"),
    # 7919 is prime to a quarter of each size: all of them come up, four times each.
    ("words", 100000, 8000, lambda n: f"{n // 4} {n}\n"),
]
LIMIT_S = 600


def build(target):
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path",
                    os.path.join(HERE, "scheme", "Cargo.toml"), "--target-dir", target], check=True)
    return os.path.join(target, "release", "skinflint-bench-scheme")


def one(binary, heap, name, size, wanted):
    """A row of figures; a program that displays anything else ends the bench (S1)."""
    done = subprocess.run([binary, heap, os.path.join(PROGRAMS, name + ".scm"), str(size)], capture_output=True, text=True,
                          timeout=LIMIT_S)
    shown, _, line = done.stdout.rpartition("{")
    if done.returncode or shown != wanted:
        sys.exit(f"{name} on {heap}: {shown[:200]!r}, not {wanted[:200]!r}; {done.stderr.strip()[-300:]}")
    row = json.loads("{" + line)
    row["peak_bytes"] = (row["peak_kb"] - row["before_kb"]) * 1024
    return row


def instructions(binary, heap, name, size):
    done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", binary, heap,
                           os.path.join(PROGRAMS, name + ".scm"), str(size)], capture_output=True, text=True, timeout=LIMIT_S)
    found = re.search(r"Collected : (\d+)", done.stderr)
    return int(found.group(1)) if found else sys.exit(f"callgrind: {done.stderr[-300:]}")


def check(binary):
    """The language itself, on each heap: every line of checks.scm says that it holds."""
    for heap in HEAPS:
        done = subprocess.run([binary, heap, os.path.join(PROGRAMS, "checks.scm"), "1000000"], capture_output=True, text=True,
                              timeout=LIMIT_S)
        lines = done.stdout.splitlines()[:-1]
        wrong = [line for line in lines if not line.endswith(": #t")]
        if done.returncode or wrong or len(lines) != 14:
            sys.exit(f"checks.scm on {heap}: {wrong or done.stderr.strip()}, {len(lines)} lines")
    bad = {"(": "line 1", "(car 1)": "car: 1", "(f)": "not to be called: nothing", "(let ((x)) x)": "let: a bad binding",
           "(error \"why\")": "error: \"why\"", "((lambda (x) x))": "0 arguments for 1", "(cons 1)": "cons"}
    for text, said in bad.items():
        path = os.path.join(ROOT, "target", "bench", "gc", "bad.scm")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        done = subprocess.run([binary, "skinflint", path], capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 1 or said not in done.stderr:
            sys.exit(f"{text}: {done.stderr.strip()!r} has no {said!r}")
    print(f"bench/gc/scheme.py: 14 checks hold on each heap, {len(bad)} faults are told")


def table(rows, counts):
    print("| program | heap | CPU ms (spread) | of gc-arena's | peak MB | of gc-arena's | instructions, small | collections |")
    print("|---|---|---|---|---|---|---|---|")
    for name, size, small, _ in RUNS:
        for heap in HEAPS:
            mine, theirs = rows[name, heap], rows[name, "gc-arena"]
            times = sorted(row["cpu_ms"] for row in mine)
            ratio = statistics.median(a["cpu_ms"] / b["cpu_ms"] for a, b in zip(mine, theirs))
            peak = statistics.median(row["peak_bytes"] for row in mine)
            peaks = peak / statistics.median(row["peak_bytes"] for row in theirs)
            count = counts.get((name, heap))
            share = f"{count / 1e6:.1f} M ({count / counts[name, 'gc-arena']:.2f})" if count else "–"
            made = mine[0]["collections"] or "–"
            print(f"| {name} {size} | {heap} | {statistics.median(times):.0f} ({times[0]:.0f}–{times[-1]:.0f}) | {ratio:.2f} | "
                  f"{peak / 1e6:.1f} | {peaks:.2f} | {share} | {made} |")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--target", default=os.path.join(ROOT, "target", "bench", "gc", "build"))
    arguments.add_argument("--json", default=os.path.join(ROOT, "target", "bench", "gc", "scheme.json"))
    arguments.add_argument("--no-callgrind", action="store_true")
    arguments.add_argument("--selftest", action="store_true", help="the language, and how its faults are told")
    options = arguments.parse_args()
    os.makedirs(os.path.dirname(options.json), exist_ok=True)
    os.makedirs(os.path.join(ROOT, "target", "bench", "gc"), exist_ok=True)
    binary = build(options.target)
    check(binary)
    if options.selftest:
        return 0
    rows = {(name, heap): [] for name, *_ in RUNS for heap in HEAPS}
    for name, size, _, wanted in RUNS:
        for number in range(options.rounds):
            turn = number % len(HEAPS)
            for heap in HEAPS[turn:] + HEAPS[:turn]:
                rows[name, heap].append(one(binary, heap, name, size, wanted(size)))
    counts = {}
    if not options.no_callgrind:
        for name, _, small, wanted in RUNS:
            for heap in HEAPS:
                one(binary, heap, name, small, wanted(small))
                counts[name, heap] = instructions(binary, heap, name, small)
    table(rows, counts)
    with open(options.json, "w", encoding="utf-8") as out:
        json.dump({"rows": {f"{name} {heap}": all for (name, heap), all in rows.items()},
                   "instructions": {f"{name} {heap}": all for (name, heap), all in counts.items()}}, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
