"""Is the peak of a report a moment at which the heap was full? Programs that are full for microseconds only.

    summit.cpp × rounds ──► skinflint record ──► report --json ──► live bytes at the peak / the greatest live heap

M1  The greatest live heap is exact to the event (the instant `heap-peak`); the peak is a snapshot of the sampler's.
    A snapshot with less than 95 % of the greatest live heap does not show what holds the memory.
M2  Exit 0: every run has such a peak. 1: one has not. 2: it could not be measured.
"""
import argparse
import os
import subprocess
import sys

import measure
import workloads

PROGRAMS = ("index", "layers", "tree", "rounds", "crowd")
LEAST_SHARE = 0.95


def share_of(report):
    """Live bytes given at the report's instant, as a share of the greatest live heap (M1)."""
    instants = report["instants"]
    most = [one for one in instants if one["kind"] == "heap_peak"]
    at = instants[report["at"]]
    if at["kind"] != "peak" or not most or not most[0]["live_usable_bytes"]:
        raise measure.Failed(f"the report is about {at['kind']}, and has {len(most)} heap peaks")
    return at["live_usable_bytes"] / most[0]["live_usable_bytes"]


def one(bench, program):
    with bench.scratch() as scratch:
        trace = os.path.join(scratch, "summit.sft")
        command = [bench.skinflint, "record", "-o", trace, "--", bench.tool("summit"), program]
        done = subprocess.run(command, env=workloads.ENVIRONMENT, capture_output=True, text=True, timeout=measure.LIMIT_S)
        if done.returncode != 0:
            raise measure.Failed(f"recording summit {program}: exit {done.returncode}: {done.stderr[-300:]}")
        report = measure.report(bench, trace)[0]
        return share_of(report), report["program"]["duration_ns"] / 1e9


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="example: python3 bench/moments.py --rounds 2 index")
    measure.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=10, help="runs of each program (default 10)")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"{', '.join(PROGRAMS)} (default: all)")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.programs) - set(PROGRAMS)
    if unknown or arguments.rounds < 1:
        parser.error(f"no such program: {', '.join(sorted(unknown))}" if unknown else "--rounds: at least 1")
    bench = measure.bench_of(arguments)
    good = runs = 0
    try:
        bench.need_skinflint()
        for program in arguments.programs or PROGRAMS:
            seen = [one(bench, program) for _ in range(arguments.rounds)]
            full = sum(1 for share, _ in seen if share >= LEAST_SHARE)
            shares = " ".join(f"{share * 100:5.1f}" for share, _ in sorted(seen))
            print(f"{program:8} {full:3} of {len(seen)} full   {shares} %   (runs of "
                  f"{min(wall for _, wall in seen):.3f} to {max(wall for _, wall in seen):.3f} s)", flush=True)
            good, runs = good + full, runs + len(seen)
    except (measure.Failed, subprocess.SubprocessError, OSError) as error:
        print(f"moments: {error}", file=sys.stderr)
        return 2
    print(f"{good} of {runs} peaks have {LEAST_SHARE * 100:.0f} % of the greatest live heap or more")
    return 0 if good == runs else 1


if __name__ == "__main__":
    sys.exit(main())
