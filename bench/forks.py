"""Is what a copy of a copy holds exact? A thousand forks three deep against what each grandchild says of itself.

    generations.c ──► "PID BLOCKS BYTES" of each grandchild ─┐
                └──► PID's trace ──► report --json --at end ─┴──► equal, to the unit

F1  Blocks and bytes asked for that live at the end, of all three generations; the recording must call itself complete.
F2  A number of processes that came again would make two traces of one PID: then it is not measured, but said.
F3  Exit 0: every grandchild's figures are exact. 1: one's are not, or its trace is missing. 2: not measured.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import time

import measure
import workloads


def record(bench, scratch, chains):
    """Records all generations; {pid: (blocks, bytes)} as the grandchildren said."""
    command = [bench.skinflint, "record", "-o", os.path.join(scratch, "forks.sft"), "--",
               bench.tool("generations"), str(chains)]
    done = subprocess.run(command, env=workloads.ENVIRONMENT, capture_output=True, text=True, timeout=measure.LIMIT_S)
    if done.returncode != 0:
        raise measure.Failed(f"recording generations: exit {done.returncode}: {done.stderr[-400:]}")
    said = [tuple(int(word) for word in line.split()) for line in done.stdout.splitlines()]
    if len({pid for pid, _, _ in said}) != chains:
        raise measure.Failed(f"{len(said)} lines of {chains} grandchildren, {len({one[0] for one in said})} of them apart")
    return {pid: (blocks, size) for pid, blocks, size in said}


def judge(report, said):
    """What is wrong with a grandchild's report: "" if nothing is."""
    at = report["instants"][report["at"]]
    seen = (at["live_blocks"], at["live_requested_bytes"])
    if at["kind"] != "end":
        return f"the report is about {at['kind']}"
    if not report["completeness"]["complete"]:
        return f"not complete: {'; '.join(report['completeness']['notes'])}"
    return "" if seen == said else f"{seen[0]} blocks of {seen[1]} bytes live, {said[0]} of {said[1]} it said"


def judge_trace(bench, scratch, pid, said):
    traces = glob.glob(os.path.join(scratch, f"*.{pid}.sft"))
    if len(traces) != 1:
        return f"{len(traces)} traces"
    done = subprocess.run([bench.skinflint, "report", traces[0], "--json", "--at", "end"], capture_output=True,
                          timeout=measure.LIMIT_S)
    if done.returncode != 0:
        return f"report: exit {done.returncode}: {done.stderr[-200:]}"
    return judge(json.loads(done.stdout), said)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="example: python3 bench/forks.py --chains 20")
    measure.add_arguments(parser)
    parser.add_argument("--chains", type=int, default=1000, help="grandchildren (default 1000)")
    arguments = parser.parse_args(argv)
    if arguments.chains < 1:
        parser.error("--chains: at least 1")
    bench = measure.bench_of(arguments)
    try:
        bench.need_skinflint()
        with bench.scratch() as scratch:
            begun = time.monotonic()
            said = record(bench, scratch, arguments.chains)
            print(f"{2 * arguments.chains} forks recorded in {time.monotonic() - begun:.1f} s, "
                  f"{len(os.listdir(scratch))} files", flush=True)
            faults = {pid: judge_trace(bench, scratch, pid, blocks) for pid, blocks in said.items()}
    except (measure.Failed, subprocess.SubprocessError, OSError) as error:
        print(f"forks: {error}", file=sys.stderr)
        return 2
    wrong = {pid: fault for pid, fault in faults.items() if fault}
    for pid, fault in list(wrong.items())[:20]:
        print(f"grandchild {pid}: {fault}")
    print(f"{len(faults) - len(wrong)} of {len(faults)} grandchildren exact")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
