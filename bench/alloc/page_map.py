#!/usr/bin/env python3
"""What the page map saves end to end: the allocator built with trees in its place, beneath four real programs.

    cargo build, three times ──► libskinflint.so: page map │ red-black trees │ treaps
      node, python, cc1plus, redis × rounds, in turn ──► CPU time, peak          each once under callgrind ──► instructions

Jason Evans told in 2008 what jemalloc won when it put a map of pages in the place of its trees of runs: about a tenth of a
browser's JavaScript time, and one to two percent of memory. `cargo bench -p skinflint-pages` compares the bookkeeping alone,
on recorded requests; this compares whole programs. The trees (engines/pages/src/index/) are features of a build for this
bench and in nothing that ships.

E1  The three libraries differ in one feature of skinflint-pages. What free(p) asks, whose block p is, is answered by the map
    in all three: only free runs of pages are in trees.
E2  CPU time is wait4's, of rounds in which the libraries take turns; each figure is the median over rounds of the ratio to
    the map's run of the same round. Peaks likewise.
E3  Instructions are callgrind's, one run each, on shorter inputs: they do not depend on what else the machine does. A program
    with threads (node) varies by itself, so its ratio is good to a percent or so.
E4  Outputs equal those under the C library's malloc, or the row has failed (exit 1). Nothing is judged: this is a
    measurement, not a bar.
"""
import argparse
import dataclasses
import os
import platform
import re
import statistics
import subprocess
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]

import measure  # noqa: E402
import peers  # noqa: E402
import real  # noqa: E402
import workloads  # noqa: E402

NAMES = ("python", "node", "cc1plus", "redis")
MAP = "page map"
# Name, feature of skinflint-pages, folder of the build beneath target/ ("": that of the ordinary release).
BUILDS = ((MAP, "", ""), ("red-black", "bench-trees", "page-map/red-black"), ("treap", "bench-treap", "page-map/treap"))


def built(name, feature, folder):
    """Builds a library; returns it as an allocator."""
    target = os.path.join(peers.ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), folder)
    words = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "skinflint-malloc-so", "--target-dir", target]
    if feature:
        words += ["-p", "skinflint-pages", "--features", f"skinflint-pages/{feature}"]
    subprocess.run(words, cwd=peers.ROOT, check=True, timeout=1800)
    return peers.Allocator(name, "", os.path.join(target, "release", "libskinflint.so"), "this tree")


def instructions(bench, workload, allocator):
    """Callgrind's count of one run, all threads, with the outcome of the run."""
    port = workloads.free_port() if workload.drive else 0
    with bench.scratch() as scratch:
        log = os.path.join(scratch, "callgrind.log")
        command = ["/usr/bin/env", f"LD_PRELOAD={allocator.path}", "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                   "--smc-check=all-non-file", "--trace-children=no", f"--log-file={log}", *workload.arguments(bench.inputs, port)]
        process, driven = measure.start(bench, workload, command, scratch, port)
        status, _ = measure.reap(process)
        with open(log) as text:
            found = re.search(r"(?:I +refs:|Collected :) +([\d,]+)", text.read())
        if status or not found:
            raise measure.Failed(f"{workload.name} under callgrind: exit {status}\n{measure.tail(scratch)}")
        return int(found.group(1).replace(",", ""))


def pairs(bench, workload, allocators, rounds):
    """{name: [Cost]} of rounds in turn, and what is wrong."""
    expected = real.run(bench, workload, peers.Allocator("glibc", "", "", "")).outcome
    costs, wrong = {allocator.name: [] for allocator in allocators}, []
    for turn in range(rounds):
        for step in range(len(allocators)):
            allocator = allocators[(turn + step) % len(allocators)]
            cost = real.run(bench, workload, allocator)
            costs[allocator.name].append(cost)
            if cost.outcome != expected:
                wrong.append(f"{workload.name} under {allocator.name}: another outcome than under the C library's malloc")
    return costs, wrong


def ratio(costs, name, figure):
    """Median over rounds of a library's figure over the map's."""
    return statistics.median(figure(own) / figure(first) for own, first in zip(costs[name], costs[MAP]))


def geometric_mean(values):
    values = list(values)
    return statistics.geometric_mean(values) if values else float("nan")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="of each library (default: 9)")
    parser.add_argument("--only", default="", metavar="NAMES", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="shorter inputs")
    parser.add_argument("--no-instructions", action="store_true", help="no callgrind")
    parser.add_argument("--work", default=os.path.join(peers.ROOT, "target", "bench"), metavar="DIR")
    arguments = parser.parse_args(argv)
    wanted = arguments.only.split(",") if arguments.only else NAMES
    bench = measure.Bench("", os.path.abspath(arguments.work))
    allocators = [built(*build) for build in BUILDS]
    full = {workload.name: workload for workload in real.chosen(arguments.quick)}
    print(f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}; {arguments.rounds} rounds; CPU time and "
          "peak over those of the page map, medians of pairs")
    print(f"{'program':9} {'index':10} {'CPU s':>8} {'×':>7} {'peak MiB':>9} {'×':>7} {'M instr.':>10} {'×':>8}")
    sums, failed = {}, []
    for name in wanted:
        costs, wrong = pairs(bench, full[name], allocators, arguments.rounds)
        failed += wrong
        counts = {} if arguments.no_instructions else counted(bench, name, allocators)
        for allocator in allocators:
            own = costs[allocator.name]
            cpu = ratio(costs, allocator.name, lambda cost: cost.cpu_s)
            peak = ratio(costs, allocator.name, lambda cost: cost.peak_kb)
            work = counts.get(allocator.name, float("nan"))
            share = work / counts[MAP] if counts else float("nan")
            for what, value in (("cpu", cpu), ("peak", peak), ("work", share)):
                sums.setdefault((allocator.name, what), []).append(value)
            print(f"{name:9} {allocator.name:10} {statistics.median(c.cpu_s for c in own):8.3f} {cpu:7.3f} "
                  f"{statistics.median(c.peak_kb for c in own) / 1024:9.1f} {peak:7.3f} {work / 1e6:10.1f} {share:8.4f}", flush=True)
    for allocator in allocators[1:]:
        means = [geometric_mean(sums[allocator.name, what]) for what in ("cpu", "peak", "work")]
        print(f"{allocator.name} over the page map, geometric means: CPU {means[0]:.3f}, peak {means[1]:.3f}, instructions {means[2]:.4f}")
    for line in failed:
        print(line)
    return 1 if failed else 0


def counted(bench, name, allocators):
    """{library: instructions} of a program with short inputs; empty without callgrind."""
    requests = workloads.REDIS_REQUESTS
    short = {workload.name: workload for workload in real.chosen(True)}[name]
    if name == "redis":
        workloads.REDIS_REQUESTS = 3000
    try:
        return {allocator.name: instructions(bench, short, allocator) for allocator in allocators}
    except FileNotFoundError:
        print("no valgrind: instructions are not counted", file=sys.stderr)
        return {}
    finally:
        workloads.REDIS_REQUESTS = requests


def selftest():
    @dataclasses.dataclass
    class Cost:
        cpu_s: float
    costs = {MAP: [Cost(1.0), Cost(2.0), Cost(4.0)], "treap": [Cost(1.1), Cost(2.2), Cost(8.0)]}
    assert abs(ratio(costs, "treap", lambda cost: cost.cpu_s) - 1.1) < 1e-9
    assert ratio(costs, MAP, lambda cost: cost.cpu_s) == 1.0


if __name__ == "__main__":
    selftest()
    sys.exit(main())
