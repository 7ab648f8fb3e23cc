"""How fast and in how much memory traces are analysed: all passes, symbols, JSON, as users run it.

    traces of bench/overhead.py ─┐
    churn.c, recorded for real ──┴──► skinflint report --json ──► M events per CPU second, peak memory

A1  Throughput = events / (user + system CPU of the whole `skinflint report`), so it is per core whatever
    the number of threads; wall stands beside it.
A2  Bars: 10 million events per second per core on the large trace; under 1 GB for 100 million events.
A3  Exit 0: the bars held. 1: missed. 2: nothing to measure.
"""
import argparse
import datetime
import glob
import json
import os
import statistics
import subprocess
import sys

import measure
import workloads

EVENTS_PER_CORE_S = 10e6
PEAK_KB = 1_000_000_000 / 1024


def record_churn(bench, events):
    """Records churn for `events` events; the trace is kept and made again only if it is missing."""
    trace = os.path.join(bench.work, "traces", f"churn-{events}.sft")
    if os.path.exists(trace):
        print(f"using {trace} as it is; remove it to record again")
        return trace
    os.makedirs(os.path.dirname(trace), exist_ok=True)
    part = trace + ".part"
    command = [bench.skinflint, "record", "-o", part, "--", bench.tool("churn"), str(events)]
    done = subprocess.run(command, env=workloads.ENVIRONMENT, capture_output=True, text=True, timeout=measure.LIMIT_S)
    if done.returncode != 0 or f"{events} events, 0 damaged" not in done.stdout:
        raise measure.Failed(f"recording churn: exit {done.returncode}: {done.stdout[-200:]} {done.stderr[-400:]}")
    os.rename(part, trace)
    return trace


def analyse(bench, trace, rounds):
    """Median cost of reading one trace."""
    costs = []
    for _ in range(rounds):
        report, cpu_s, wall_s, peak_kb = measure.report(bench, trace)
        costs.append((cpu_s, wall_s, peak_kb))
    events = report["completeness"]["events"]
    cpu_s, wall_s, peak_kb = (statistics.median(column) for column in zip(*costs))
    row = {"trace": os.path.basename(trace), "bytes": os.path.getsize(trace), "events": events, "cpu_s": cpu_s,
           "wall_s": wall_s, "peak_kb": peak_kb, "events_per_core_s": events / cpu_s,
           "live_blocks_peak": max((at["live_blocks"] for at in report["instants"]), default=0),
           "sites": len(report["sites"]), "lost_events": report["completeness"]["lost_events"]}
    print(f"{row['trace']:26} {events:12,} events {row['bytes'] / max(events, 1):5.2f} B/event  {cpu_s:7.2f} s CPU "
          f"{wall_s:7.2f} s wall  {row['events_per_core_s'] / 1e6:6.2f} M/s/core  peak {peak_kb / 1024:7.1f} MB  "
          f"{row['sites']:,} stacks", flush=True)
    return row


def verdicts(large, wanted):
    speed, peak = large["events_per_core_s"], large["peak_kb"]
    return [
        (f"{large['events']:,} events read of {wanted:,} made", large["events"] + large["lost_events"] >= wanted),
        (f"{speed / 1e6:.2f} M events per second per core (bar {EVENTS_PER_CORE_S / 1e6:.0f})",
         speed >= EVENTS_PER_CORE_S),
        (f"peak {peak * 1024 / 1e6:.0f} MB (bar 1000)", peak <= PEAK_KB),
    ]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="example: python3 bench/analyse.py --events 10000000 --rounds 1")
    measure.add_arguments(parser)
    parser.add_argument("--events", type=int, default=100_000_000, help="size of the large trace (default 100 million)")
    parser.add_argument("--rounds", type=int, default=3, help="readings of each trace (default 3)")
    parser.add_argument("--json", metavar="FILE", help="where the figures go (default: WORK/analyse.json)")
    arguments = parser.parse_args(argv)
    if arguments.rounds < 1 or arguments.events < 1:
        parser.error("--rounds and --events: at least 1")
    bench = measure.bench_of(arguments)
    try:
        bench.need_skinflint()
        small = [path for path in sorted(glob.glob(os.path.join(bench.work, "traces", "*.sft")))
                 if not os.path.basename(path).startswith("churn-")]
        if not small:
            print("no traces of programs yet (python3 bench/overhead.py makes them): the large one only",
                  file=sys.stderr)
        rows = [analyse(bench, path, arguments.rounds) for path in small]
        large = analyse(bench, record_churn(bench, arguments.events), arguments.rounds)
    except (measure.Failed, subprocess.SubprocessError, OSError) as error:
        print(f"analyse: {error}", file=sys.stderr)
        return 2
    said = verdicts(large, arguments.events)
    for text, held in said:
        print(f"{'held  ' if held else 'MISSED'} {text}")
    path = arguments.json or os.path.join(bench.work, "analyse.json")
    with open(path, "w") as out:
        json.dump({"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                   "traces": rows + [large], "verdicts": said}, out, indent=1)
    print(f"figures: {path}")
    return 0 if all(held for _, held in said) else 1


if __name__ == "__main__":
    sys.exit(main())
