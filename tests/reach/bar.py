#!/usr/bin/env python3
"""Planted leaks and cycles, and controls, under several allocators: are they found, and nothing else?

    python3 -B tests/reach/bar.py [--only NAME] [--allocator NAME] [--keep FOLDER]

Each case of planted.cpp and planted.rs is recorded with --reachable and judged by the report's rows. A planted case is
found if at least 95 % of its live blocks are in rows, and of a cycle most of them in rows of cycles; a control is right
if none of its blocks is. The bar: 95 % of the planted cases found, no control called leaked. Exit 1 below it.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BAR = 0.95


def build(out):
    subprocess.run(["make", "--silent", "-C", ROOT / "tests/reach", f"OUT={out}", "all"], check=True)
    cases = []
    for program in ("planted", "planted-rs"):
        names = subprocess.run([out / program], check=True, capture_output=True, text=True).stdout.split()
        cases += [(out / program, name) for name in names]
    return cases


def functions(report, node):
    names = []
    while node:
        names.append(report["frames"][report["nodes"][node]["frame"]]["function"])
        node = report["nodes"][node]["parent"]
    return names


def bears(report, node, prefix):
    return any(f"{prefix}_" in name for name in functions(report, node))


def judge(report, name):
    """(right?, what was seen)"""
    reach = report.get("reach")
    if not reach or reach["missing"]:
        return False, f"no verdict: {reach and reach['missing']}"
    rows = reach["rows"]
    foreign = sum(row["all"]["blocks"] for row in rows
                  if not bears(report, row["node"], "planted") and not bears(report, row["node"], "kept"))
    beside = f", {foreign} of others" if foreign else ""
    if name.startswith("keep_"):
        called = sum(row["all"]["blocks"] for row in rows if not bears(report, row["node"], "planted"))
        kept = reach["certain"]["blocks"] + reach["likely"]["blocks"]
        return called == 0 and kept >= 40, f"{called} of {kept} called leaked{beside}"
    live = sum(site["end_blocks"] for site in report["sites"] if bears(report, site["node"], "planted"))
    mine = [row for row in rows if bears(report, row["node"], "planted")]
    found = sum(row["all"]["blocks"] for row in mine)
    cycles = sum(row["all"]["blocks"] for row in mine if row["cycle"])
    wrong = sum(row["all"]["blocks"] for row in rows if bears(report, row["node"], "kept"))
    right = live > 0 and found >= BAR * live and wrong == 0 and foreign == 0
    if name.startswith("cycle_"):
        right = right and cycles >= BAR * live
    return right, f"{found} of {live} found, {cycles} by cycles{beside}"


def run(tool, program, name, allocator, folder):
    trace = folder / f"{name}.{allocator}.sft"
    preload = {"glibc": [], "jemalloc": ["--preload", "libjemalloc.so.2"], "skinflint": ["--preload", "libskinflint.so"]}
    command = [tool, "record", "--quiet", "--reachable", *preload[allocator], "-o", trace, "--", program, name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if ended.returncode != 0:
        return False, f"recording ended with {ended.returncode}: {ended.stderr.strip()}", 0
    report = subprocess.run([tool, "report", "--json", "--at", "end", trace], capture_output=True, text=True, timeout=300)
    if report.returncode != 0:
        return False, report.stderr.strip(), 0
    report = json.loads(report.stdout)
    right, seen = judge(report, name)
    return right, seen, report["reach"]["stopped_ns"] if report.get("reach") else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--allocator", choices=["glibc", "jemalloc", "skinflint"])
    parser.add_argument("--tool", type=pathlib.Path, default=TARGET / "release/skinflint")
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    cases = [case for case in build(TARGET / "reach-programs") if options.only in case[1]]
    if not cases:
        sys.exit(f"no case is called {options.only}")
    missed = False
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or pathlib.Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        for allocator in [options.allocator] if options.allocator else ["glibc", "jemalloc", "skinflint"]:
            tally, stops = {True: [0, 0], False: [0, 0]}, []
            for program, name in cases:
                right, seen, stopped_ns = run(options.tool, program, name, allocator, folder)
                is_control = name.startswith("keep_")
                tally[is_control][0] += right
                tally[is_control][1] += 1
                stops.append(stopped_ns)
                if not right:
                    print(f"{allocator:10} {name:24} WRONG: {seen}")
                elif options.only:
                    print(f"{allocator:10} {name:24} {seen}")
            (found, planted), (kept, controls) = tally[False], tally[True]
            stops.sort()
            print(f"{allocator:10} planted: {found} of {planted} found; controls: {kept} of {controls} called held; "
                  f"stood still: median {stops[len(stops) // 2] / 1e6:.1f} ms, longest {stops[-1] / 1e6:.1f} ms", flush=True)
            missed |= found < BAR * planted or kept < controls
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
