"""Whether what a report says that malloc_trim(0) would give back is what it gives back.

    trim.c ── recorded, mark "trim" ──► report: whole free pages      ≈ resident before − after
                                        live + headers, free          ≈ mallinfo2 (uordblks, fordblks)
    tops.c ── recorded, mark "before" ─► report: free pages that go   ≈ resident at "before" − at "after"
              (threads)                         ends of arenas         ≈ what its head says that stays

T1  Each figure is within LIMIT of the heap, whatever share of the blocks survives. What differs is
    thread caches (free to us, in use to glibc) and the program's two stdio calls.
T2  What a report says that is free is its `now_bytes`: no saving is promised right before an exit.
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


def report_at(trace, mark):
    """The report of a mark: its instant, and the bytes of free pages that go and of ends of arenas that stay."""
    done = subprocess.run([SKINFLINT, "report", trace, "--at", mark, "--json"], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60)
    report = json.loads(done.stdout)

    def sums(title):
        return sum(f["now_bytes"] for f in report["findings"] if f["kind"] == "retained" and f["title"].startswith(title))
    return (report["instants"][report["at"]], sums("Free pages that the allocator keeps"),
            sums("Free memory at the ends of threads' arenas"))


def build(source, folder):
    """A program of the bench or of the tests."""
    program = os.path.join(folder, os.path.basename(source)[:-2])
    subprocess.run(["gcc", "-O1", "-pthread", "-I", os.path.join(ROOT, "include"), "-o", program, source], check=True)
    return program


def threads(program, folder, kinds, stays):
    """The figures of the kernel and of the report, for some threads of tops.c; `stays` in MiB."""
    trace = os.path.join(folder, f"tops-{kinds}.sft")
    subprocess.run([SKINFLINT, "record", "-o", trace, "--", program, kinds], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    (before, goes, ends), (after, _, _) = report_at(trace, "before"), report_at(trace, "after")
    resident = [instant["books"]["resident_bytes"] for instant in (before, after)]
    return resident[0], [("given back", resident[0] - resident[1], goes), ("ends", stays << 20, ends)]


def one(program, folder, keep):
    """The figures of glibc and of the report, for one share of survivors."""
    trace = os.path.join(folder, f"trim{keep}.sft")
    done = subprocess.run([SKINFLINT, "record", "-o", trace, "--", program, str(keep)], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60)
    back, used, free = map(int, done.stdout.split())
    instant, whole, _ = report_at(trace, "trim")
    rows = {row["id"]: row["bytes"] for row in instant["books"]["rows"]}
    live = instant["live_usable_bytes"] + 8 * instant["live_blocks"]
    return [("given back", back, whole), ("in use", used, live), ("free", free, rows["allocator-free"])]


def judge(what, heap, figures, whose):
    """Prints figures beside one another; returns how many are too far apart."""
    missed = 0
    for name, theirs, ours in figures:
        wrong = abs(theirs - ours) > LIMIT * heap
        missed += wrong
        print(f"{what:14} {name:10} {whose} {theirs:11,} report {ours:11,} {'WRONG' if wrong else 'ok'}")
    return missed


def main():
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        program = build(os.path.join(HERE, "programs", "trim.c"), folder)
        for keep in (3, 10, 100, 1000):
            figures = one(program, folder, keep)
            missed += judge(f"1 in {keep:4} lives", figures[1][1] + figures[2][1], figures, "glibc ")
        program = build(os.path.join(ROOT, "tests", "programs", "tops.c"), folder)
        for kinds, stays in (("a", 0), ("b", 8), ("c", 0), ("d", 8), ("e", 0), ("f", 4), ("m", 0), ("abcdefm", 20)):
            resident, figures = threads(program, folder, kinds, stays)
            missed += judge(f"tops {kinds}", resident, figures, "kernel")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
