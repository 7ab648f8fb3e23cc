"""Are all events there? Three single-threaded programs against valgrind's DHAT, to the unit.

    program + input ──► skinflint ──► totals.allocations, totals.requested_bytes ─┐
                   └──► valgrind --tool=dhat ──► sum of tbk, sum of tb ───────────┴──► equal, or exit 1

E1  DHAT counts a realloc as one more block of the new size, and a block of 0 bytes as one byte.
    Both are checked here on calls counted by hand (CALIBRATION) before anything is compared.
E2  skinflint counts a realloc as one more block of the new size, too; a block of 0 bytes as 0. So
    blocks must be equal as they stand, and DHAT's bytes = ours + our allocations of size 0.
E3  The program must have no reason to allocate differently: same arguments, standard input, kind of stdout,
    working folder of a name of the same length, and an environment with the same names and lengths of
    values. perl copies its environment, so that a longer LD_PRELOAD alone is some bytes more: what each
    tool adds is looked up by running env(1) under it, given to the other too, and LD_PRELOAD is padded
    with colons, which the loader skips.
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


def dhat_prefix(scratch):
    out = os.path.join(scratch, "dhat.json")
    return ["valgrind", "--quiet", "--tool=dhat", "--trace-children=no", f"--dhat-out-file={out}"]


def skinflint_prefix(bench, scratch):
    return [bench.skinflint, "record", "-o", os.path.join(scratch, "exact.sft"), "--"]


def run_under(prefix, command, scratch, stdin, environment):
    """Runs the program under a tool, its output into the scratch folder."""
    with open(stdin, "rb") as source, open(os.path.join(scratch, "stdout"), "wb") as stdout:
        done = subprocess.run(prefix + command, cwd=scratch, env=environment, stdin=source, stdout=stdout,
                              stderr=subprocess.PIPE, timeout=measure.LIMIT_S)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace")[-400:]
        raise measure.Failed(f"{os.path.basename(prefix[0])}: exit {done.returncode}: {said}")


def seen_under(prefix_of, bench, environment):
    """The environment as a program sees it that is started under the tool."""
    with bench.scratch() as scratch:
        run_under(prefix_of(scratch), ["/usr/bin/env", "-0"], scratch, os.devnull, environment)
        with open(os.path.join(scratch, "stdout"), "rb") as stdout:
            pairs = stdout.read().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def shape(environment):
    """What an allocation can depend on."""
    return {name: len(value) for name, value in environment.items()}


def equal_environments(bench):
    """(for DHAT, for skinflint): what to start each with, so that the program sees the same shape (E3)."""
    prefixes = [dhat_prefix, lambda scratch: skinflint_prefix(bench, scratch)]
    given = [dict(workloads.ENVIRONMENT), dict(workloads.ENVIRONMENT)]
    seen = [seen_under(prefix, bench, environment) for prefix, environment in zip(prefixes, given)]
    for own, other in ((0, 1), (1, 0)):
        for name in seen[other].keys() - seen[own].keys():
            given[own][name] = ":" if name == "LD_PRELOAD" else seen[other][name]
    seen = [seen_under(prefix, bench, environment) for prefix, environment in zip(prefixes, given)]
    lengths = [len(environment.get("LD_PRELOAD", "")) for environment in seen]
    # One colon stands between what the tool preloads and what it was given; hence both are given some.
    for own in (0, 1):
        given[own]["LD_PRELOAD"] = ":" * (8 + max(lengths) - lengths[own])
    seen = [seen_under(prefix, bench, environment) for prefix, environment in zip(prefixes, given)]
    shapes = [shape(environment) for environment in seen]
    if shapes[0] != shapes[1]:
        differing = dict(set(shapes[0].items()) ^ set(shapes[1].items()))
        raise measure.Failed(f"the environments could not be made equal: {sorted(differing)} differ in length")
    return given


def dhat(command, scratch, stdin, environment):
    """(blocks, bytes) over the whole run, as DHAT counts them."""
    run_under(dhat_prefix(scratch), command, scratch, stdin, environment)
    with open(os.path.join(scratch, "dhat.json")) as file:
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
        seen = dhat([binary], scratch, os.devnull, workloads.ENVIRONMENT)
    if seen != CALIBRATION_DHAT:
        raise measure.Failed(f"this DHAT counts by another rule: {seen} instead of {CALIBRATION_DHAT}")


def skinflint(bench, command, scratch, stdin, environment):
    """The report of the one trace, made with the program as the recorder's own child."""
    run_under(skinflint_prefix(bench, scratch), command, scratch, stdin, environment)
    trace = os.path.join(scratch, "exact.sft")
    if not os.path.exists(trace):
        raise measure.Failed("skinflint record ended well and wrote no trace")
    return measure.report(bench, trace)[0]


def zero_sized(report):
    return sum(row["allocations"] for row in report["sizes"] if row["size"] == 0)


def compare(bench, case, environments):
    """Runs one case under both; prints and returns whether it is equal."""
    command = case.arguments(bench.inputs, 0)
    stdin = case.stdin_path(bench.inputs)
    hashes = []
    with bench.scratch() as scratch:
        theirs = dhat(command, scratch, stdin, environments[0])
        hashes.append(workloads.digest(case, os.path.join(scratch, "stdout"), b"", scratch))
    with bench.scratch() as scratch:
        report = skinflint(bench, command, scratch, stdin, environments[1])
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
        environments = equal_environments(bench)
        results = [compare(bench, case, environments) for case in picked]
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
