#!/usr/bin/env python3
"""A soak: threads, phases, blocks that change hands and forks, for as long as you like; is the memory flat?

    python3 bench/soak.py --minutes 30            the long form
    python3 bench/soak.py --seconds 20            the short one
    python3 bench/soak.py --library none          on the C library's own allocator, to compare

bench/soak.c checks every content. Here the resident memory, four times a second, is fitted with a line;
the first quarter is left out. The bar: the slope's 99 % confidence interval, by the medians of blocks of
time (neighbouring samples are not independent), lies below 1 % of the mean per ten minutes.

Neighbouring blocks are not quite independent either (what is left of them has a correlation of 0.4): what is resident
moves by steps that last for minutes. Of 72 windows of ten minutes in 47 minutes that ended where they had begun, 17 had
an interval without 0. Of the 36 windows as long as what is looked at of half an hour all held the bar (seed 1, a machine
at a load of 3 to 20, 2026-11-21). So the bar is for half an hour, and a failure in less is no finding.

A run of less than five minutes is no longer than a few of the program's phases, and on a busy machine one
phase may fill it: a line through it says nothing. There the bar is a gross one: the median of the last
quarter at most one and a half times that of the second. What loses blocks fails it at once.
"""
import argparse
import math
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCKS = 16
T99 = 2.977  # Student's t, 14 degrees of freedom, two-sided 99 %
SHORT_S = 300
GROSS = 1.5


def slope(points):
    """The slope of a line through block medians, and half of its confidence interval."""
    size = len(points) // BLOCKS
    blocks = [points[i * size:(i + 1) * size] for i in range(BLOCKS)]
    xs = [statistics.fmean(x for x, _ in block) for block in blocks]
    ys = [statistics.median(y for _, y in block) for block in blocks]
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    sxx = sum((x - mx) ** 2 for x in xs)
    b = sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sxx
    rest = sum((y - my - b * (x - mx)) ** 2 for x, y in zip(xs, ys))
    return b, T99 * math.sqrt(rest / (BLOCKS - 2) / sxx), my


def judge(points):
    """The verdict in words, and whether it is good."""
    if len(points) < 2 * BLOCKS:
        return f"only {len(points)} samples", False
    b, half, mean = slope(points)
    per_ten = 600 / mean * 100
    text = (f"resident {mean / 1024:.1f} MiB on average, slope {b * per_ten:+.2f} % per ten minutes "
            f"(99 %: {(b - half) * per_ten:+.2f} to {(b + half) * per_ten:+.2f})")
    return text, (b + half) * per_ten < 1


def judge_short(points):
    """The same for a run too short for a line."""
    if len(points) < 12:
        return f"only {len(points)} samples", False
    # The first quarter of the run is not among the points: these are the second, the third and the last.
    third = len(points) // 3
    early, late = (statistics.median(y for _, y in part) for part in (points[:third], points[-third:]))
    text = f"resident {early / 1024:.1f} MiB in the second quarter, {late / 1024:.1f} in the last"
    return text, late <= GROSS * early


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", default=str(ROOT / "target/release/libskinflint.so"))
    parser.add_argument("--keep", metavar="FILE", help="where every sample goes: second, resident KiB, live blocks")
    asked = parser.parse_args()
    seconds = int(asked.minutes * 60 or asked.seconds)
    folder = ROOT / "target/bench"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "soak"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-pthread", "-o", program, ROOT / "bench/soak.c"], check=True)
    environment = dict(os.environ)
    if asked.library != "none":
        if not os.path.exists(asked.library):
            sys.exit(f"soak: {asked.library} is not there: cargo build --release, or --library PATH")
        environment["LD_PRELOAD"] = asked.library
    done = subprocess.run([program, str(seconds), str(asked.seed)], env=environment, stdout=subprocess.PIPE,
                          text=True, timeout=10 * seconds + 120)
    if done.returncode != 0:
        print(f"soak: failed with status {done.returncode}, seed {asked.seed}", file=sys.stderr)
        return 1
    if asked.keep:
        pathlib.Path(asked.keep).write_text(done.stdout)
    rows = [tuple(map(float, line.split()[:2])) for line in done.stdout.splitlines()]
    text, good = (judge if seconds >= SHORT_S else judge_short)([row for row in rows if row[0] > seconds / 4])
    print(f"soak: {seconds} s, seed {asked.seed}: contents held; {text}: {'flat' if good else 'NOT FLAT'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
