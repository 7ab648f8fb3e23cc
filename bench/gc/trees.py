#!/usr/bin/env python3
"""Binary trees on our heap and on gc-arena: processor time, peak and what is left after everything is freed.

    rounds × (one process for each collector; the order turns each round) ──► medians, spread ──► bars

T1  Each process builds and counts the same trees (trees/src/main.rs, B1); one that fails has no figure but the reason.
T2  Memory is what the kernel counts for the process, less what was resident before the first object.
T3  Time is processor time of all threads, the sweeper's included.
T4  Collections, and bytes in cells at the peak, are predicted on paper from the growth table; another number of them is a
    fault like a missed bar. What the peak has beyond the cells is heads, the program and its stack.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COLLECTORS = ["skinflint", "skinflint-tenant", "skinflint-adaptive", "gc-arena"]
# What live bytes are multiplied with after the first collection and after the others (trigger.rs: a table may have another
# factor while collections come often); for the table that adapts, the least and the most that it may come to.
FACTORS = {
    "skinflint": [(1.15, 1.15)],
    "skinflint-tenant": [(1.45, 1.45)],
    "skinflint-adaptive": [(1.15, 1.15), (2.0, 2.0)],
}
LONG_NODES, SHORT_NODES, TIMES, NODE_BYTES = 2**19 - 1, 2**15 - 1, 100, 16
# Figure, and at most how much of it by the tight table and by the default one.
BARS = [
    ("time_ratio", {"skinflint": 0.8, "skinflint-tenant": 0.35}, "processor time over gc-arena's"),
    ("peak_ratio", {"skinflint": 1.3, "skinflint-tenant": 1.5}, "peak over live bytes"),
    ("freed_mb", {"skinflint": 2.0, "skinflint-tenant": 2.0}, "MB left after everything was freed"),
]
LIMIT_S = 120


def build(target):
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path",
                    os.path.join(HERE, "trees", "Cargo.toml"), "--target-dir", target], check=True)
    return os.path.join(target, "release", "skinflint-bench-trees")


def one(binary, collector):
    done = subprocess.run([binary, collector], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        sys.exit(f"trees {collector} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    row = json.loads(done.stdout)
    row["cpu_ms"] = row["build_cpu_ms"] + row["churn_cpu_ms"]
    row["peak_bytes"] = (row["peak_kb"] - row["before_kb"]) * 1024
    row["left_bytes"] = max(0, row["freed_kb"] - row["before_kb"]) * 1024
    return row


def predicted(first, others):
    """Collections, and cells at the peak over live bytes. The long tree is built in one closure, so the first collection
    comes at its end; then what lives at each is the long tree, and one comes at the end of the closure that passes."""
    live, each = LONG_NODES * NODE_BYTES, SHORT_NODES * NODE_BYTES
    until_next, later = (int(live * (factor - 1)) // each + 1 for factor in (first, others))
    return 2 + (TIMES - until_next) // later, (live + max(until_next, later) * each) / (live + each)


def prediction(collector, rows):
    """A line, and whether it came true."""
    most, low = predicted(*FACTORS[collector][0])
    least, high = predicted(*FACTORS[collector][-1])
    got = sorted({row["collections"] for row in rows})
    right = all(least <= number <= most for number in got)
    said = f"{most}" if most == least else f"{least} to {most}"
    cells = f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
    factors = sorted(row["factor"] for row in rows)
    return (f"{collector}: predicted {said} collections and cells of {cells} × live at the peak; "
            f"were {', '.join(map(str, got))}, the last factor {factors[0]:.2f}–{factors[-1]:.2f}"), right


def figures(rows, reference):
    median = {key: statistics.median(row[key] for row in rows) for key in ("cpu_ms", "peak_bytes", "left_bytes")}
    times = sorted(row["cpu_ms"] for row in rows)
    return {
        "cpu_ms": median["cpu_ms"], "spread_ms": [times[0], times[-1]],
        "time_ratio": median["cpu_ms"] / reference,
        "peak_mb": median["peak_bytes"] / 1e6,
        "peak_ratio": median["peak_bytes"] / rows[0]["live_bytes"],
        "freed_mb": median["left_bytes"] / 1e6,
    }


def missed(collector, row):
    """The bars that a row of figures does not meet."""
    return [f"{collector}, {what}: {row[key]:.3f}, at most {bars[collector]}"
            for key, bars, what in BARS if not row[key] <= bars[collector]]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--target", default=os.path.join(ROOT, "target", "bench", "gc", "build"))
    arguments.add_argument("--json", default=os.path.join(ROOT, "target", "bench", "gc", "trees.json"))
    arguments.add_argument("--selftest", action="store_true", help="see each bar missed once")
    options = arguments.parse_args()
    if options.selftest:
        for collector in ("skinflint", "skinflint-tenant"):
            good = {key: bars[collector] for key, bars, _ in BARS}
            assert not missed(collector, good)
            for key, bar in good.items():
                assert len(missed(collector, dict(good, **{key: bar + 0.01}))) == 1, key
                assert len(missed(collector, dict(good, **{key: float("nan")}))) == 1, key
        # 0.15 × 8.39 MB of room are 2.4 short trees, so each third closure collects.
        assert predicted(1.15, 1.15)[0] == 1 + 33 and round(predicted(1.15, 1.15)[1], 2) == 1.12
        # 7.2 trees: each eighth of the 100 closures.
        assert predicted(1.45, 1.45)[0] == 1 + 12 and round(predicted(1.45, 1.45)[1], 2) == 1.41
        # 8.001 trees, then 16.0005: after 9 closures, and after each 17 of the other 91.
        assert predicted(1.5, 2.0)[0] == 1 + 1 + 5 and round(predicted(1.5, 2.0)[1], 2) == 1.94
        row = {"collections": 34, "factor": 1.15}
        assert prediction("skinflint", [row])[1] and not prediction("skinflint", [row, dict(row, collections=33)])[1]
        print("bench/gc/trees.py: each bar can be missed, and each prediction")
        return 0
    binary = build(options.target)
    rows = {collector: [] for collector in COLLECTORS}
    for number in range(options.rounds):
        turn = number % len(COLLECTORS)
        for collector in COLLECTORS[turn:] + COLLECTORS[:turn]:
            rows[collector].append(one(binary, collector))
    reference = statistics.median(row["cpu_ms"] for row in rows["gc-arena"])
    table = {collector: figures(rows[collector], reference) for collector in COLLECTORS}
    print(f"{'':20}{'CPU ms':>9}{'spread':>15}{'ratio':>7}{'peak MB':>9}{'× live':>8}{'left MB':>9}")
    for collector, row in table.items():
        low, high = row["spread_ms"]
        print(f"{collector:20}{row['cpu_ms']:9.1f}{low:8.1f}–{high:<6.1f}{row['time_ratio']:7.2f}"
              f"{row['peak_mb']:9.1f}{row['peak_ratio']:8.2f}{row['freed_mb']:9.2f}")
    os.makedirs(os.path.dirname(options.json), exist_ok=True)
    with open(options.json, "w", encoding="utf-8") as out:
        json.dump({"rows": rows, "table": table}, out, indent=1)
    faults = missed("skinflint", table["skinflint"]) + missed("skinflint-tenant", table["skinflint-tenant"])
    for collector in FACTORS:
        line, right = prediction(collector, rows[collector])
        print(line)
        if not right:
            faults.append(f"not as predicted: {collector}")
    for fault in faults:
        print("missed:", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
