"""Are all events there? Three single-threaded programs against valgrind's DHAT, to the unit.

    program + input ──► skinflint ──► totals.allocations, totals.requested_bytes ─┐
                   └──► valgrind --tool=dhat ──► sum of tbk, sum of tb ───────────┴──► equal, or exit 1

E1  DHAT counts a realloc as one more block of the new size, and a block of 0 bytes as one byte.
    Both are checked here on calls counted by hand (CALIBRATION) before anything is compared.
E2  skinflint counts a realloc as one more block of the new size, too; a block of 0 bytes as 0. So
    blocks must be equal as they stand, and DHAT's bytes = ours + our allocations of size 0.
E3  Both tools get the same environment, arguments, standard input and working folder (the name of which
    has the same length in both), and a redirected stdout: the program must have no reason to allocate
    differently. What each tool preloads is what is left, and is why startup code of the tools themselves
    may never show up in the counts.
E4  Exit 0: all equal. 1: a difference, printed with both figures. 2: it could not be measured.
"""
import argparse
import json
import os
import subprocess
import sys

import measure
import workloads
from workloads import PROGRAMS, Workload

# 10, then reallocs to 5, 100, 100; realloc(NULL, 7); calloc 3 x 11; malloc(0), as 1; memalign 40.
CALIBRATION = """
#include <malloc.h>
#include <stdlib.h>
int main(void) {
    char *volatile p = malloc(10);
    p = realloc(p, 5); p = realloc(p, 100); p = realloc(p, 100); free(p);
    p = realloc(NULL, 7); free(p);
    p = calloc(3, 11); free(p);
    p = malloc(0); free(p);
    p = memalign(64, 40); free(p);
    return 0;
}
"""
CALIBRATION_DHAT = (8, 10 + 5 + 100 + 100 + 7 + 33 + 1 + 40)

CASES = [
    Workload("perl", "perl", ["/usr/bin/perl", os.path.join(PROGRAMS, "work.pl"), "1", "1500"]),
    Workload("jq", "jq", ["/usr/bin/jq", "map(select(.weight > 250) | .tags | join(\"-\"))", "{small.json}"]),
    Workload("sqlite", "sqlite3", ["/usr/bin/sqlite3", "small.db"], stdin="small.sql", files=("small.db",)),
]


def dhat(command, scratch, stdin):
    """(blocks, bytes) over the whole run, as DHAT counts them."""
    out = os.path.join(scratch, "dhat.json")
    full = ["valgrind", "--quiet", "--tool=dhat", "--trace-children=no", f"--dhat-out-file={out}", *command]
    with open(stdin, "rb") as source, open(os.path.join(scratch, "stdout"), "wb") as stdout:
        done = subprocess.run(full, cwd=scratch, env=workloads.ENVIRONMENT, stdin=source, stdout=stdout,
                              stderr=subprocess.PIPE, timeout=measure.LIMIT_S)
    if done.returncode != 0:
        raise measure.Failed(f"valgrind: exit {done.returncode}: {done.stderr.decode(errors='replace')[-400:]}")
    with open(out) as file:
        profile = json.load(file)
    if profile.get("dhatFileVersion") != 2:
        raise measure.Failed(f"dhat wrote file version {profile.get('dhatFileVersion')}, known is 2")
    return sum(point["tbk"] for point in profile["pps"]), sum(point["tb"] for point in profile["pps"])


def check_rule(bench):
    """E1, on this valgrind."""
    with bench.scratch() as scratch:
        source = os.path.join(scratch, "calibration.c")
        with open(source, "w") as file:
            file.write(CALIBRATION)
        binary = os.path.join(scratch, "calibration")
        subprocess.run(["gcc", "-O0", "-w", "-o", binary, source], check=True, timeout=60)
        seen = dhat([binary], scratch, os.devnull)
    if seen != CALIBRATION_DHAT:
        raise measure.Failed(f"this DHAT counts by another rule: {seen} instead of {CALIBRATION_DHAT}")


def skinflint(bench, command, scratch, stdin):
    """The report of the one trace, made with the program as the recorder's own child."""
    trace = os.path.join(scratch, "exact.sft")
    full = [bench.skinflint, "record", "-o", trace, "--", *command]
    with open(stdin, "rb") as source, open(os.path.join(scratch, "stdout"), "wb") as stdout:
        done = subprocess.run(full, cwd=scratch, env=workloads.ENVIRONMENT, stdin=source, stdout=stdout,
                              stderr=subprocess.PIPE, timeout=measure.LIMIT_S)
    said = done.stderr.decode(errors="replace")[-400:]
    if done.returncode != 0 or not os.path.exists(trace):
        raise measure.Failed(f"skinflint record: exit {done.returncode}, trace "
                             f"{'written' if os.path.exists(trace) else 'missing'}: {said}")
    return measure.report(bench, trace)[0]


def zero_sized(report):
    return sum(row["allocations"] for row in report["sizes"] if row["size"] == 0)


def compare(bench, case):
    """Runs one case under both; prints and returns whether it is equal."""
    command = case.arguments(bench.inputs, 0)
    stdin = case.stdin_path(bench.inputs)
    hashes = []
    with bench.scratch() as scratch:
        theirs = dhat(command, scratch, stdin)
        hashes.append(workloads.digest(case, os.path.join(scratch, "stdout"), b"", scratch))
    with bench.scratch() as scratch:
        report = skinflint(bench, command, scratch, stdin)
        hashes.append(workloads.digest(case, os.path.join(scratch, "stdout"), b"", scratch))
    totals, zero = report["totals"], zero_sized(report)
    ours = (totals["allocations"], totals["requested_bytes"] + zero)
    equal = ours == theirs and hashes[0] == hashes[1] and report["completeness"]["lost_events"] == 0
    print(f"{case.name:8} blocks {ours[0]:12,} dhat {theirs[0]:12,} ({ours[0] - theirs[0]:+,})   "
          f"bytes {ours[1]:14,} dhat {theirs[1]:14,} ({ours[1] - theirs[1]:+,})   reallocs {totals['reallocs']:,}, "
          f"of 0 bytes {zero:,}   {'equal' if equal else 'DIFFERENT'}", flush=True)
    if hashes[0] != hashes[1]:
        print(f"{'':8} the program's own output differs: the comparison means nothing")
    return equal


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="example: python3 bench/exact.py jq")
    measure.add_arguments(parser)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="perl, jq, sqlite (default: all)")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.programs) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    bench = measure.bench_of(arguments)
    try:
        bench.need_skinflint()
        check_rule(bench)
        picked = [case for case in CASES if not arguments.programs or case.name in arguments.programs]
        results = [compare(bench, case) for case in picked]
    except FileNotFoundError as error:
        print(f"exact: {error.filename} is not installed (apt-get install -y valgrind gcc perl jq sqlite3)",
              file=sys.stderr)
        return 2
    except measure.Failed as error:
        print(f"exact: {error}", file=sys.stderr)
        return 2
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
