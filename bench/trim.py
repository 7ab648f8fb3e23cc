"""Whether what a report says that malloc_trim(0) would give back is what it gives back.

    trim.c ── recorded, mark "trim" ──► report: whole free pages      ≈ resident before − after
                                        live + headers, free          ≈ mallinfo2 (uordblks, fordblks)

T1  Each figure is within LIMIT of the heap, whatever share of the blocks survives. What differs is
    thread caches (free to us, in use to glibc) and the program's two stdio calls.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SKINFLINT = os.environ.get("SKINFLINT", os.path.join(ROOT, "target", "release", "skinflint"))
LIMIT = 0.02


def one(program, folder, keep):
    """The figures of glibc and of the report, for one share of survivors."""
    trace = os.path.join(folder, f"trim{keep}.sft")
    done = subprocess.run([SKINFLINT, "record", "-o", trace, "--", program, str(keep)], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60)
    back, used, free = map(int, done.stdout.split())
    done = subprocess.run([SKINFLINT, "report", trace, "--at", "trim", "--json"], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60)
    report = json.loads(done.stdout)
    instant = report["instants"][report["at"]]
    rows = {row["id"]: row["bytes"] for row in instant["books"]["rows"]}
    whole = sum(f["saved_bytes"] for f in report["findings"] if f["kind"] == "retained" and f["node"] is None)
    live = instant["live_usable_bytes"] + 8 * instant["live_blocks"]
    return [("given back", back, whole), ("in use", used, live), ("free", free, rows["allocator-free"])]


def main():
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "trim")
        subprocess.run(["gcc", "-O1", "-o", program, os.path.join(HERE, "programs", "trim.c")], check=True)
        for keep in (3, 10, 100, 1000):
            figures = one(program, folder, keep)
            heap = figures[1][1] + figures[2][1]
            for name, glibc, ours in figures:
                wrong = abs(glibc - ours) > LIMIT * heap
                missed += wrong
                print(f"1 in {keep:4} lives: {name:10} glibc {glibc:10,} report {ours:10,} {'WRONG' if wrong else 'ok'}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
