#!/usr/bin/env python3
"""Pages that come and go beside objects of the runtime's own: in the same arenas, in the same chunks, or apart.

    rounds × (one process for each form; the order turns each round) ──► chunks, held, resident ──► bars

C1  Each form makes the same objects in the same order (engines/gc/examples/chunks.rs, P2); other counts are an error.
C2  Chunks and held bytes are exact and the same in each round; resident memory is the kernel's, the median of the rounds.
C3  What is open has no figure to win: the forms must not differ there by more than a twentieth.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FORMS = ["mixed", "typed", "apart"]
INSTANTS = ["all open", "half closed", "all closed"]
# Figure, at most, what it is. 108 to 21 MB is what Mozilla came to with all pages closed.
BARS = [
    ("chunks", 21 / 108, "chunks left when all pages are closed, apart over mixed"),
    ("held", 21 / 108, "bytes held then, apart over mixed"),
    ("rss", 21 / 108, "resident memory then, apart over mixed"),
    ("chunks_typed", 21 / 108, "chunks left then, apart over a type of their own among the program's"),
    ("half", 0.60, "resident memory with every second page closed, apart, over all open"),
    ("open", 1.05, "resident memory with all open, apart over mixed"),
]
LIMIT_S = 120


def build():
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "-p", "skinflint-gc", "--example", "chunks"],
                   check=True, cwd=ROOT)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(target, "release", "examples", "chunks")


def one(binary, form, pages):
    done = subprocess.run([binary, form, str(pages)], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        sys.exit(f"chunks {form} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["at"]: row for row in rows}


def figures(table):
    def over(key, at, form="mixed"):
        return table["apart", at][key] / table[form, at][key]

    last = "all closed"
    return {
        "chunks": over("chunks", last), "held": over("held_bytes", last), "rss": over("rss_kb", last),
        "chunks_typed": over("chunks", last, "typed"), "open": over("rss_kb", "all open"),
        "half": table["apart", "half closed"]["rss_kb"] / table["apart", "all open"]["rss_kb"],
    }


def missed(found):
    faults = []
    for key, bar, what in BARS:
        value = found.get(key)
        if not (isinstance(value, (int, float)) and value <= bar):
            faults.append(f"{what}: {'not measured' if value is None else f'{value:.3f}'}, at most {bar:.3f}")
    return faults


def measure(binary, pages, rounds):
    runs = {form: [] for form in FORMS}
    for number in range(rounds):
        turn = number % len(FORMS)
        for form in FORMS[turn:] + FORMS[:turn]:
            runs[form].append(one(binary, form, pages))
    table = {}
    for at in INSTANTS:
        counts = {(run[at]["objects"]) for form in FORMS for run in runs[form]}
        if len(counts) != 1:
            sys.exit(f"{at}: not the same objects in all forms: {counts}")
        for form in FORMS:
            rows = [run[at] for run in runs[form]]
            exact = {(row["chunks"]["chunks"], row["held_bytes"]) for row in rows}
            if len(exact) != 1:
                sys.exit(f"{form}, {at}: chunks and bytes differ between rounds: {exact}")
            table[form, at] = {"chunks": rows[0]["chunks"]["chunks"], "lone": rows[0]["chunks"]["lone"],
                               "held_bytes": rows[0]["held_bytes"], "rss_kb": statistics.median(row["rss_kb"] for row in rows)}
    return table


def selftest():
    good = {key: bar for key, bar, _ in BARS}
    assert not missed(good)
    for key, bar, _ in BARS:
        for value in (bar * 1.01, float("nan"), None):
            assert len(missed(dict(good, **{key: value}))) == 1, key
    print("bench/gc/chunks.py: each bar can be missed")
    return 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pages", type=int, default=120)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--quick", action="store_true", help="one round: a look, not a claim")
    arguments.add_argument("--json", default=os.path.join(ROOT, "target", "bench", "gc", "chunks.json"))
    arguments.add_argument("--selftest", action="store_true", help="see each bar missed once")
    options = arguments.parse_args()
    if options.selftest:
        return selftest()
    table = measure(build(), options.pages, 1 if options.quick else options.rounds)
    print(f"{options.pages} pages{'':16}{'chunks':>8}{'by one':>8}{'held MB':>10}{'RSS MB':>9}")
    for (form, at), row in table.items():
        print(f"{at + ', ' + form:26}{row['chunks']:8}{row['lone']:8}{row['held_bytes'] / 1e6:10.2f}"
              f"{row['rss_kb'] * 1024 / 1e6:9.2f}")
    found = figures(table)
    faults = missed(found)
    for fault in faults:
        print("missed:", fault)
    os.makedirs(os.path.dirname(options.json), exist_ok=True)
    with open(options.json, "w", encoding="utf-8") as out:
        rows = {", ".join(key): row for key, row in table.items()}
        json.dump({"figures": found, "table": rows, "missed": faults}, out, indent=1)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
