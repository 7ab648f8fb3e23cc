"""Whether two builds say the same of the same traces, to the byte: for changes that are only to be faster.

    OLD report --json TRACE ──┐
    NEW report --json TRACE ──┴──► equal, for every trace of bench/overhead.py and bench/analyse.py

S1  Exit 0: all are equal. 1: one differs, or one of the two failed. 2: nothing to compare.
"""
import argparse
import glob
import os
import subprocess
import sys

LIMIT_S = 600


def report(skinflint, trace):
    done = subprocess.run([skinflint, "report", trace, "--json"], capture_output=True, timeout=LIMIT_S)
    return done.returncode, done.stdout


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="example: python3 bench/same.py /tmp/skinflint-before target/release/skinflint")
    parser.add_argument("old", help="the skinflint of before")
    parser.add_argument("new", help="the skinflint of now")
    parser.add_argument("--traces", default=os.path.join("target", "bench", "traces"),
                        help="folder of the traces (default %(default)s)")
    arguments = parser.parse_args(argv)
    traces = sorted(glob.glob(os.path.join(arguments.traces, "*.sft")))
    if not traces:
        print(f"same: no traces in {arguments.traces}; python3 bench/overhead.py makes them", file=sys.stderr)
        return 2
    differ = 0
    for trace in traces:
        (old_status, old), (new_status, new) = report(arguments.old, trace), report(arguments.new, trace)
        held = old_status == new_status == 0 and old == new
        differ += not held
        print(f"{'same  ' if held else 'DIFFER'} {os.path.basename(trace)}: {len(old):,} and {len(new):,} bytes, "
              f"exit {old_status} and {new_status}", flush=True)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
