#!/usr/bin/env python3
"""Caches, buffers, arenas, images and the example host: figures and bars.

    peers (a workspace of its own) ──► hits, buffers, arenas, beneath several allocators ──► tables ──► bars
    tests that print their figures (images, host; needs root for the control group) ──► bars

K1  Seeds are fixed, and all play the same traces. Hit ratios and bytes do not depend on the machine; times do,
    and are printed and not judged.
K2  A peer's hit ratio is judged at the bytes that ours has: it plays again, told as much less as it had more.
"""
import argparse
import json
import os
import platform
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIBRARIES = [("glibc", ""), ("jemalloc", "libjemalloc.so.2"), ("mimalloc", "libmimalloc.so.2"), ("skinflint", None)]
# Points of a hundred by which ours may be below the better peer, at the same bytes, on each trace.
BELOW = {"zipf": 2.0, "scan": 2.0, "shift": 2.0, "loop": 2.0, "mixed": 2.0}
LIMIT_S = 600


def play(binary, what, preload):
    env = dict(os.environ, LD_PRELOAD=preload) if preload else dict(os.environ)
    done = subprocess.run([binary, what], capture_output=True, text=True, timeout=LIMIT_S, env=env)
    if done.returncode or "cannot be preloaded" in done.stderr:
        sys.exit(f"{what} beneath {preload or 'glibc'} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def judge_hits(rows):
    """Bars that hit ratios miss; of a peer's two rows of a trace the second has the same bytes as ours."""
    missed, last = [], {}
    for row in rows:
        last[row["trace"], row["who"]] = 100 * row["hits"] / row["requests"]
    for trace, below in BELOW.items():
        best = max(last[trace, "moka"], last[trace, "quick_cache"])
        ours = last[trace, "skinflint"]
        if ours < best - below:
            missed.append(f"{trace}: {ours:.1f} % hits, at least {best - below:.1f}")
    for row in rows:
        if row["who"] == "skinflint" and row["most_bytes"] > row["told"] * 1.01:
            missed.append(f"{row['trace']}: {row['most_bytes']} bytes of {row['told']}")
    return missed


def judge_arenas(rows, allocator):
    return [f"arena beneath {allocator}, {row['case']}: slop {row['slop']}"
            for row in rows if row["who"] == "Arena" and row["slop"] != 0]


def judge_buffers(rows, allocator):
    """Slop at most 0.2 %, or a page and a header. Never worse than Vec: no more calls; no more bytes asked for, or where
    more, none that Vec was not given unasked (what all calls together gave); no more slop, unless both asked for the same,
    when it is the allocator's affair. Far below just-enough's, where that was played."""
    missed, by = [], {(row["case"], row["who"]): row for row in rows}
    for case in dict.fromkeys(row["case"] for row in rows):
        buf, vec, just = (by.get((case, who)) for who in ("Buf", "Vec", "just-enough"))
        if buf["slop"] > max(0.002 * buf["usable"], 4112):
            missed.append(f"{case} beneath {allocator}: slop {buf['slop']} of {buf['usable']}")
        asks_more = buf["cumulative"] > vec["cumulative"]
        if buf["reallocs"] > vec["reallocs"]:
            missed.append(f"{case} beneath {allocator}: reallocs {buf['reallocs']}, Vec's {vec['reallocs']}")
        if asks_more and buf["given"] > vec["given"]:
            missed.append(f"{case} beneath {allocator}: asked for {buf['cumulative']} and given {buf['given']} bytes, "
                          f"Vec {vec['cumulative']} and {vec['given']}")
        if buf["slop"] > vec["slop"] and (asks_more or buf["cumulative"] < vec["cumulative"]):
            missed.append(f"{case} beneath {allocator}: slop {buf['slop']}, Vec's {vec['slop']}")
        for key in ("reallocs", "cumulative") if just else ():
            if buf[key] > just[key] / 4:
                missed.append(f"{case} beneath {allocator}: {key} {buf[key]}, just-enough {just[key]}")
    return missed


def table(rows, columns):
    widths = [max(len(name), *(len(str(row.get(name, ""))) for row in rows)) for name in columns]
    for row in [dict(zip(columns, columns))] + rows:
        print("  " + "  ".join(str(row.get(name, "")).rjust(width) for name, width in zip(columns, widths)))


def tests(target):
    """Figures that tests print, which fail by themselves if a bar is missed."""
    runs = [(["-p", "skinflint-cache", "--features", "images", "--test", "images"], "page:|animated GIF:"),
            (["-p", "skinflint-document-host", "--features", "host", "--test", "host"], "heap-unclassified|resident-by-kind|start |no limit|lives")]
    missed = []
    env = dict(os.environ, CARGO_TARGET_DIR=target)
    subprocess.run(["cargo", "build", "--quiet", "-p", "skinflint-malloc-so"], cwd=ROOT, env=env, check=True)
    for words, shown in runs:
        done = subprocess.run(["cargo", "test", "--quiet", *words, "--", "--nocapture", "--test-threads=1"],
                              cwd=ROOT, env=env, capture_output=True, text=True, timeout=3 * LIMIT_S)
        for line in done.stdout.splitlines():
            found = re.search(f"({shown}).*", line)
            if found and not line.startswith("pressure"):
                print("  " + found.group(0))
        if done.returncode:
            missed.append(f"cargo test {' '.join(words)} failed")
    return missed


def selftest():
    row = {"who": "Buf", "case": "a", "slop": 0, "usable": 100, "reallocs": 10, "cumulative": 100, "given": 120}
    vec, just = dict(row, who="Vec"), dict(row, who="just-enough", reallocs=1000, cumulative=9000)
    assert judge_buffers([row, vec, just], "x") == []
    assert judge_buffers([row, vec], "x") == []
    for worse in ({"reallocs": 11}, {"cumulative": 101, "given": 121}, {"cumulative": 99, "slop": 1}):
        assert len(judge_buffers([dict(row, **worse), vec, just], "x")) == 1, worse
    for as_good in ({"cumulative": 101}, {"given": 121}, {"slop": 1}):
        assert judge_buffers([dict(row, **as_good), vec, just], "x") == [], as_good
    assert judge_buffers([dict(row, slop=5000), dict(vec, slop=5000), just], "x")
    assert judge_buffers([row, vec, dict(just, reallocs=39)], "x")
    assert judge_arenas([{"who": "Arena", "case": "a", "slop": 8}], "x") and not judge_arenas([{"who": "Arena", "case": "a", "slop": 0}], "x")
    hits = [{"trace": t, "who": w, "hits": 50, "requests": 100, "told": 10, "most_bytes": 10}
            for t in BELOW for w in ("skinflint", "moka", "quick_cache")]
    assert judge_hits(hits) == []
    assert len(judge_hits([dict(hits[0], hits=40)] + hits[1:])) == 1
    assert len(judge_hits([dict(hits[0], most_bytes=11)] + hits[1:])) == 1
    print("bench/cache: each bar can be missed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default=os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")))
    parser.add_argument("--no-tests", action="store_true", help="without images and the example host")
    parser.add_argument("--selftest", action="store_true", help="shows that the bars can be missed")
    args = parser.parse_args()
    if args.selftest:
        return selftest()
    target = os.path.abspath(args.target)
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path",
                    os.path.join(HERE, "peers", "Cargo.toml"), "--target-dir", os.path.join(target, "bench-cache")], check=True)
    binary = os.path.join(target, "bench-cache", "release", "skinflint-bench-cache")
    with open(os.path.join(HERE, "peers", "Cargo.lock"), encoding="utf-8") as lock:
        versions = dict(re.findall(r'name = "(moka|quick_cache|bumpalo|typed-arena)"\nversion = "([^"]+)"', lock.read()))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    print(f"commit {commit}, {platform.release()}, {os.cpu_count()} cores; "
          + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) + "; seed 20080617")
    missed = []
    print("hit ratios, 16 MiB; a peer's second row: told less, so that it has the same bytes")
    rows = play(binary, "hits", "")
    for row in rows:
        row["hit_%"] = f"{100 * row['hits'] / row['requests']:.1f}"
    table(rows, ["trace", "who", "told", "most_bytes", "hit_%", "cpu_ns"])
    missed += judge_hits(rows)
    for name, library in LIBRARIES:
        preload = os.environ["SKINFLINT_ALLOCATOR"] if library is None and "SKINFLINT_ALLOCATOR" in os.environ else \
            os.path.join(target, "release", "libskinflint.so") if library is None else library
        if library is None and not os.path.exists(preload):
            sys.exit(f"{preload} is missing: cargo build --release -p skinflint-malloc-so")
        print(f"beneath {name}: arenas, buffers")
        rows = play(binary, "arenas", preload)
        table(rows, ["case", "who", "allocs", "requested", "usable", "slop", "used", "cpu_us"])
        missed += judge_arenas(rows, name)
        rows = play(binary, "buffers", preload)
        table(rows, ["case", "who", "allocs", "reallocs", "moved", "cumulative", "given", "used", "usable", "slop", "cpu_us"])
        missed += judge_buffers(rows, name)
    if not args.no_tests:
        print("images and the example host (debug builds)")
        missed += tests(target)
    for what in missed:
        print(f"missed: {what}")
    print(f"{len(missed)} bars missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
