#!/usr/bin/env python3
"""A heap snapshot of a million objects: processor time, memory beside the heap, and whether DevTools opens it.

    example snapshot ─► a heap of two tenants, its .heapsnapshot, figures ─► medians ─► bars
                                   └─► Chromium, DevTools, Memory, Load ─► nodes, bytes, a class: as they were written

P1  Time is processor time of all threads while the snapshot is written, the collection before it included.
P2  Memory is the most that the writer has asked of malloc at once, and what the kernel says the process grew by, both
    over the bytes of the heap's objects. A figure that is missing, or is no number, misses its bar.
P3  The sizes of the nodes sum to what the heap says that its objects take.
P4  Objects, edges and bytes are predicted on paper from the example's source (`predicted`); others are a fault like a missed
    bar.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Figure, at most, what it is.
BARS = [
    ("cpu_ms", 2000.0, "processor time in ms"),
    ("asked_ratio", 0.10, "memory asked for beside the heap, over the heap"),
    ("resident_ratio", 0.10, "resident memory that it grew by, over the heap"),
]
LIMIT_S = 120
# Of the example: people for each place, tenants' shares of the objects in tenths.
PEOPLE, SHARES = 99, (1, 9)


def build(target):
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "-p", "skinflint-gc", "--example", "snapshot",
                    "--target-dir", target], cwd=ROOT, check=True)
    return os.path.join(target, "release", "examples", "snapshot")


def one(binary, objects, file):
    done = subprocess.run([binary, str(objects), file], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        sys.exit(f"snapshot ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    row = json.loads(done.stdout)
    row["asked_ratio"] = row["writer_peak_bytes"] / row["cell_bytes"]
    grown = row["peak_rss_after_kb"] - row["peak_rss_before_kb"]
    row["resident_ratio"] = grown * 1024 / row["cell_bytes"]
    return row


def predicted(objects):
    """At least and at most, on paper. A place has 99 people and keeps them (99 edges) and, weakly, one (1 edge). Each has a
    home, a shape that is shared, a friend but for the first of a place, and a next but for the first of a tenant. Roots and the
    made-up nodes above them have few edges. A person is three slots, a shape and eight words, 96 bytes; a place is a vector
    in a cell, a weak edge and a word: 48 to 64."""
    tenths = objects * SHARES[0] // sum(SHARES)
    places = [max(1, part // (PEOPLE + 1)) for part in (tenths, objects - tenths)]
    each, tenants = sum(places), len(places)
    people = PEOPLE * each
    edges = people * 2 + (people - each) + (people - tenants) + people + each
    # A shared object for each tenant.
    return {
        "objects": (people + each + tenants, people + each + tenants),
        "edges": (edges, edges + 100),
        "cell_bytes": (96 * people + 48 * each, 96 * people + 64 * each + 64 * tenants),
        # Three numbers for an edge, of which one is a node's place (7 digits for a million), 9 to 16 characters; seven for a
        # node, 17 to 34.
        "file_bytes": (9 * edges + 17 * (people + each), 16 * edges + 34 * (people + each)),
    }


def prediction(row, objects):
    """Lines, and those that did not come true."""
    lines, wrong = [], []
    for key, (least, most) in predicted(objects).items():
        came = least <= row[key] <= most
        said = f"{least}" if least == most else f"{least} to {most}"
        lines.append(f"predicted {said} {key.replace('_', ' ')}; were {row[key]}")
        if not came:
            wrong.append(f"not as predicted: {key.replace('_', ' ')} {row[key]}, {said}")
    return lines, wrong


def missed(row):
    """The bars that a row of figures does not meet."""
    faults = [f"{what}: {row[key]:.3f}, at most {bar}" for key, bar, what in BARS if not row[key] <= bar]
    if row["cell_bytes"] != row["heap_cell_bytes"]:
        faults.append(f"nodes sum to {row['cell_bytes']} bytes, the heap holds {row['heap_cell_bytes']}")
    return faults


def devtools(file, figures):
    """Whether DevTools counts what was written."""
    subprocess.run(["make", "--no-print-directory", "-s", "browser-deps"], cwd=ROOT, check=True)
    script = os.path.join(ROOT, "crates", "gc", "tests", "browser", "devtools.mjs")
    done = subprocess.run(["node", script, file, figures], timeout=LIMIT_S + 60)
    return [] if done.returncode == 0 else ["DevTools does not count what was written"]


def selftest():
    good = {"cpu_ms": 2000.0, "asked_ratio": 0.1, "resident_ratio": 0.1, "cell_bytes": 1, "heap_cell_bytes": 1}
    assert not missed(good)
    for key, bar, _ in BARS:
        assert len(missed(dict(good, **{key: bar + 0.01}))) == 1, key
        assert len(missed(dict(good, **{key: float("nan")}))) == 1, key
    assert len(missed(dict(good, cell_bytes=2))) == 1
    # A place with its 99 people, for each of two tenants: 200 objects and two shapes.
    small = predicted(200)
    assert small["objects"] == (202, 202), small
    # Homes and shapes 396, friends 196, nexts 196, people of places 198, latest 2.
    assert small["edges"][0] == 988, small
    right = {key: most for key, (_, most) in small.items()}
    assert not prediction(right, 200)[1]
    for key in right:
        assert len(prediction(dict(right, **{key: small[key][1] + 1}), 200)[1]) == 1, key
        assert len(prediction(dict(right, **{key: small[key][0] - 1}), 200)[1]) == 1, key
    print("bench/gc/snapshot.py: each bar can be missed, and each prediction")
    return 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", choices=["snapshot"], help="this part (for `cargo xtask bench gc`)")
    arguments.add_argument("--objects", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--quick", action="store_true", help="one round")
    arguments.add_argument("--no-browser", action="store_true", help="do not open the file in Chromium")
    arguments.add_argument("--target", default=os.path.join(ROOT, "target", "bench", "gc", "build"))
    arguments.add_argument("--json", default=os.path.join(ROOT, "target", "bench", "gc", "snapshot.json"))
    arguments.add_argument("--selftest", action="store_true", help="see each bar missed once")
    options = arguments.parse_args()
    if options.selftest:
        return selftest()
    binary = build(options.target)
    folder = os.path.dirname(os.path.abspath(options.json))
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, "bench.heapsnapshot")
    rows = [one(binary, options.objects, file) for _ in range(1 if options.quick else options.rounds)]
    row = dict(rows[-1], **{key: statistics.median(r[key] for r in rows) for key, _, _ in BARS})
    with open(options.json, "w", encoding="utf-8") as out:
        json.dump(row, out, indent=1)
    times = [r["cpu_ms"] for r in rows]
    print(f"{row['objects']} objects, {row['edges']} edges, {row['cell_bytes'] / 1e6:.1f} MB; "
          f"a file of {row['file_bytes'] / 1e6:.1f} MB")
    print(f"processor time  {row['cpu_ms']:.0f} ms ({min(times):.0f} to {max(times):.0f} in {len(rows)} rounds)")
    print(f"beside the heap {row['writer_peak_bytes'] / 1e6:.2f} MB asked for at once ({row['asked_ratio']:.1%}), "
          f"{row['resident_ratio']:.1%} more resident")
    faults = missed(row)
    lines, wrong = prediction(row, options.objects)
    print("\n".join(lines))
    faults += wrong
    if not options.no_browser:
        faults += devtools(file, options.json)
    os.remove(file)
    for fault in faults:
        print("missed:", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
