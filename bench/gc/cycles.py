#!/usr/bin/env python3
"""Cycles of counted values on our collector, on bacon_rajan_cc 0.4 and on dumpster 1.2: processor time, peak, what is left.

    rounds × (one process for each collector; the order turns each round) ──► medians, spread

C1  Each process makes, links and drops the same values, and counts those that are dropped (cycles/src/main.rs, B1).
C2  Memory is what the kernel counts for the process, less what was resident before the first value. All three take theirs
    from the C library's malloc, which keeps most of it at the end.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COLLECTORS = ["skinflint", "bacon-rajan", "dumpster"]
LIMIT_S = 300


def build(target):
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path",
                    os.path.join(HERE, "cycles", "Cargo.toml"), "--target-dir", target], check=True)
    return os.path.join(target, "release", "skinflint-bench-cycles")


def one(binary, collector):
    done = subprocess.run([binary, collector], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        sys.exit(f"cycles {collector} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--target", default=os.path.join(ROOT, "target", "bench", "gc", "build"))
    arguments.add_argument("--json", default=os.path.join(ROOT, "target", "bench", "gc", "cycles.json"))
    options = arguments.parse_args()
    binary = build(options.target)
    rows = {collector: [] for collector in COLLECTORS}
    for number in range(options.rounds):
        turn = number % len(COLLECTORS)
        for collector in COLLECTORS[turn:] + COLLECTORS[:turn]:
            rows[collector].append(one(binary, collector))
    print(f"{'':14}{'build ms':>10}{'churn ms':>10}{'spread':>16}{'end ms':>9}{'peak MB':>9}{'left MB':>9}")
    for collector, each in rows.items():
        def median(key):
            return statistics.median(row[key] for row in each)
        churn = sorted(row["churn_cpu_ms"] for row in each)
        peak = statistics.median(row["peak_kb"] - row["before_kb"] for row in each) * 1024 / 1e6
        left = statistics.median(row["freed_kb"] - row["before_kb"] for row in each) * 1024 / 1e6
        print(f"{collector:14}{median('build_cpu_ms'):10.0f}{median('churn_cpu_ms'):10.0f}"
              f"{churn[0]:9.0f}–{churn[-1]:<6.0f}{median('end_cpu_ms'):9.0f}{peak:9.1f}{left:9.1f}")
    ours = rows["skinflint"][0]
    print(f"skinflint: {ours['collections']} collections in {ours['slices']} slices, {ours['nodes']} nodes looked at, "
          f"longest slice {ours['longest_slice_us']:.0f} µs by the clock")
    os.makedirs(os.path.dirname(options.json), exist_ok=True)
    with open(options.json, "w", encoding="utf-8") as out:
        json.dump(rows, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
