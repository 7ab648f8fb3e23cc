#!/usr/bin/env python3
"""Finalization beside the mutator, against sweeping by the mutator and in the pause: which thread ends objects, at what cost.

    rounds × (one process for each form and program; the order turns each round) ──► medians ──► bars

N1  Each process does the same work (engines/gc/examples/finalize.rs, F1); another checksum is an error.
N2  The bars are for our allocator beneath, which the objects' strings and buffers come from (SKINFLINT_ALLOCATOR, else
    target/release/libskinflint.so). Another one's price for blocks that another thread frees is not the heap's; the C library's
    is shown, and not judged.
N3  Time is processor time of the program's thread, which finalization beside it is to spare. That of all threads stands
    beside it: the same work is done, and handing it over costs something.
N4  Peaks are the kernel's (VmHWM).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FORMS = ["beside", "lazily", "pause"]
PROGRAMS = ["computes", "allocates"]
# Figure, sense, bar, what it is.
BARS = [
    ("computes_share", "least", 0.95, "share of objects that end beside a program that computes"),
    ("allocates_share", "least", 0.60, "the same beside a program that only allocates"),
    ("computes_peak", "most", 1.10, "peak of the program that computes, over sweeping lazily"),
    ("allocates_peak", "most", 1.10, "peak of the program that only allocates, over sweeping lazily"),
    ("computes_time", "most", 1.02, "processor time of the thread that computes, over sweeping lazily"),
    ("allocates_time", "most", 1.02, "processor time of the thread that only allocates, over sweeping lazily"),
]
LIMIT_S = 120


def build():
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "-p", "skinflint-gc", "--example", "finalize"],
                   check=True, cwd=ROOT)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(target, "release", "examples", "finalize")


def one(binary, form, program, preload):
    environment = dict(os.environ)
    environment.pop("LD_PRELOAD", None)
    if preload:
        environment["LD_PRELOAD"] = preload
    done = subprocess.run([binary, form, program], capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    if done.returncode or done.stderr.strip():
        sys.exit(f"finalize {form} {program} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    row = json.loads(done.stdout)
    ended = row["background"] + row["lazily"] + row["in_pauses"]
    row["share"] = row["background"] / ended if ended else 0.0
    return row


def measure(binary, preload, rounds):
    """Medians by program and form."""
    cases = [(program, form) for program in PROGRAMS for form in FORMS]
    rows = {case: [] for case in cases}
    for number in range(rounds):
        turn = number % len(cases)
        for program, form in cases[turn:] + cases[:turn]:
            rows[program, form].append(one(binary, form, program, preload))
    for program in PROGRAMS:
        sums = {row["sum"] for form in FORMS for row in rows[program, form]}
        if len(sums) != 1:
            sys.exit(f"{program}: not the same work in all forms: {sums}")
    keys = ("share", "pauses_ms", "longest_ms", "thread_ms", "cpu_ms", "peak_kb", "collections")
    return {case: {key: statistics.median(row[key] for row in of) for key in keys} for case, of in rows.items()}, rows


def figures(table, rows):
    found = {}
    for program in PROGRAMS:
        beside, lazily = table[program, "beside"], table[program, "lazily"]
        found[f"{program}_share"] = beside["share"]
        found[f"{program}_peak"] = beside["peak_kb"] / lazily["peak_kb"]
        # By rounds: both of a round had the same machine.
        pairs = zip(rows[program, "beside"], rows[program, "lazily"])
        found[f"{program}_time"] = statistics.median(a["thread_ms"] / b["thread_ms"] for a, b in pairs)
    return found


def missed(found):
    faults = []
    for key, sense, bar, what in BARS:
        value = found.get(key)
        good = isinstance(value, (int, float)) and (value <= bar if sense == "most" else value >= bar)
        if not good:
            faults.append(f"{what}: {'not measured' if value is None else f'{value:.3f}'}, at {sense} {bar}")
    return faults


def show(name, table, found):
    print(f"\n{name:24}{'beside':>9}{'longest':>10}{'all pauses':>12}{'thread ms':>11}{'of lazily':>11}{'all threads':>13}"
          f"{'peak MB':>9}{'of lazily':>11}")
    for (program, form), row in table.items():
        lazily = table[program, "lazily"]
        time = found[f"{program}_time"] if form == "beside" else row["thread_ms"] / lazily["thread_ms"]
        print(f"{program + ', ' + form:24}{row['share']:9.1%}{row['longest_ms']:10.2f}{row['pauses_ms']:12.1f}"
              f"{row['thread_ms']:11.1f}{time:11.3f}{row['cpu_ms']:13.1f}{row['peak_kb'] / 1e3:9.1f}"
              f"{row['peak_kb'] / lazily['peak_kb']:11.3f}")


def selftest():
    good = {key: bar for key, _, bar, _ in BARS}
    assert not missed(good)
    for key, sense, bar, _ in BARS:
        worse = bar * 1.01 if sense == "most" else bar * 0.99
        for value in (worse, float("nan"), None):
            assert len(missed(dict(good, **{key: value}))) == 1, key
    print("bench/gc/finalize.py: each bar can be missed")
    return 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--quick", action="store_true", help="three rounds: a look, not a claim")
    arguments.add_argument("--json", default=os.path.join(ROOT, "target", "bench", "gc", "finalize.json"))
    arguments.add_argument("--selftest", action="store_true", help="see each bar missed once")
    options = arguments.parse_args()
    if options.selftest:
        return selftest()
    library = os.environ.get("SKINFLINT_ALLOCATOR") or os.path.join(ROOT, "target", "release", "libskinflint.so")
    if not os.path.exists(library):
        print(f"{library} is not built: cargo build --release -p skinflint-malloc-so", file=sys.stderr)
        return 2
    binary = build()
    rounds = 3 if options.quick else options.rounds
    results = {}
    for name, preload in (("our allocator", library), ("C library's", None)):
        table, rows = measure(binary, preload, rounds)
        found = figures(table, rows)
        show(name, table, found)
        results[name] = {"figures": found, "table": {", ".join(case): row for case, row in table.items()}}
    faults = missed(results["our allocator"]["figures"])
    for fault in faults:
        print("missed:", fault)
    os.makedirs(os.path.dirname(options.json), exist_ok=True)
    with open(options.json, "w", encoding="utf-8") as out:
        json.dump({"results": results, "missed": faults}, out, indent=1)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
