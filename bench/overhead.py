"""What recording costs: ten real programs, plain and recorded in turn, medians, bars.

    for each program: rounds × (plain, skinflint, heaptrack; the order turns each round) ──► medians ──► ratios

O1  Output and exit status of every recorded run equal the plain ones, or the program counts as failed.
O2  CPU and peak memory are the program's own (measure.py, R1); the whole tree's CPU stands beside them.
O3  Bytes per event = size of the program's trace / events that `skinflint report --json` read from it.
O4  Exit 0: every bar held. 1: a bar was missed, or a program failed. 2: nothing could be measured.
"""
import argparse
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys

import measure
import workloads

BARS = {"cpu_geomean": 1.5, "cpu_worst": 2.0, "bytes_per_event_median": 1.5, "rss_worst": 1.10}
COSTS = ("cpu_s", "tree_cpu_s", "wall_s", "max_rss_kb", "trace_bytes")


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout or done.stderr).strip().split("\n")[0]


def package_version(package):
    return first_line("dpkg-query", "-W", "-f", "${Version}", package)


def machine(bench, picked):
    """Where and with what the figures were made."""
    with open("/proc/cpuinfo") as info:
        models = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    with open("/proc/meminfo") as info:
        memory_kb = int(info.readline().split()[1])
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": models[0] if models else platform.processor(), "cpus": os.cpu_count(), "memory_kb": memory_kb,
        "kernel": platform.release(), "libc": " ".join(platform.libc_ver()),
        "load_at_start": os.getloadavg()[0],
        "commit": first_line("git", "-C", measure.ROOT, "rev-parse", "--short", "HEAD"),
        "dirty": bool(first_line("git", "-C", measure.ROOT, "status", "--porcelain", "--untracked-files=no")),
        "versions": {"skinflint": first_line(bench.skinflint, "--version"),
                     "heaptrack": package_version("heaptrack"),
                     **{w.name: f"{w.package} {package_version(w.package)}" for w in picked}},
        "command": " ".join(sys.argv),
    }


def measure_program(bench, workload, modes, rounds, traces):
    """All rounds of one program: {mode: [Run]}, and {mode: what went wrong}."""
    runs, failed = {mode: [] for mode in modes}, {}
    for number in range(rounds):
        turn = number % len(modes)
        for mode in modes[turn:] + modes[:turn]:
            if mode in failed:
                continue
            keep = os.path.join(traces, workload.name + ".sft") if mode == "skinflint" else None
            try:
                runs[mode].append(measure.run(bench, workload, mode, keep))
            except measure.Failed as error:
                failed[mode] = str(error)
    return runs, failed


def compare_output(runs, failed):
    """O1: marks each tool that changed what the program does."""
    plain = {(run.status, run.digest) for run in runs["plain"]}
    if len(plain) != 1:
        failed["plain"] = f"the plain runs differ among themselves: {sorted(plain)}"
        return
    for mode, list_of_runs in runs.items():
        changed = [run for run in list_of_runs if (run.status, run.digest) not in plain]
        if changed:
            failed[mode] = (f"output or status differs in {len(changed)} of {len(list_of_runs)} runs: "
                            f"{changed[0].status} {changed[0].digest} instead of {plain}")


def summarise(bench, runs, failed):
    """Medians of each tool, ratios to plain, and for skinflint the events of the last trace."""
    out = {}
    for mode, list_of_runs in runs.items():
        if mode in failed or not list_of_runs:
            continue
        row = {cost: statistics.median(getattr(run, cost) for run in list_of_runs) for cost in COSTS}
        row["cpu_spread_s"] = max(r.cpu_s for r in list_of_runs) - min(r.cpu_s for r in list_of_runs)
        out[mode] = row
    for mode, row in out.items():
        if mode != "plain" and "plain" in out:
            row["ratio"] = {cost: row[cost] / out["plain"][cost] for cost in COSTS[:4]}
    if "skinflint" in out:
        try:
            add_trace_figures(bench, out["skinflint"], runs["skinflint"][-1])
        except measure.Failed as error:
            failed["skinflint"] = str(error)
    return out


def add_trace_figures(bench, row, last):
    report, _, _, _ = measure.report(bench, last.trace)
    completeness, program = report["completeness"], report["program"]
    row["events"] = completeness["events"]
    row["lost_events"] = completeness["lost_events"]
    row["truncated_stacks"] = completeness["truncated_stacks"]
    row["notes"] = completeness["notes"]
    row["recorder_bytes"] = program["recorder_bytes"]
    if not row["events"]:
        raise measure.Failed("the trace is empty: the recorder saw nothing")
    row["bytes_per_event"] = last.trace_bytes / row["events"]
    own = program.get("cpu_ns")
    # The tool's own figure, against wait4's of the same run.
    row["own_cpu_ratio"] = own / 1e9 / last.cpu_s if own else None


def geomean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values)) if values else None


def overall(results, mode):
    """Figures over all programs that this tool ran."""
    ratios = [p["modes"][mode]["ratio"] for p in results if mode in p["modes"] and "ratio" in p["modes"][mode]]
    out = {"programs": len(ratios)}
    if not ratios:
        return out
    for cost, name in (("cpu_s", "cpu"), ("tree_cpu_s", "tree_cpu"), ("wall_s", "wall"), ("max_rss_kb", "rss")):
        out[name + "_geomean"] = geomean([ratio[cost] for ratio in ratios])
        out[name + "_worst"] = max(ratio[cost] for ratio in ratios)
    per_event = [p["modes"][mode]["bytes_per_event"] for p in results if "bytes_per_event" in p["modes"].get(mode, {})]
    if per_event:
        out["bytes_per_event_median"] = statistics.median(per_event)
    return out


def judge(figures, results, picked):
    """The bars, each with its figure: [(text, held)]."""
    out = []
    for name, bar in BARS.items():
        value = figures.get(name)
        said = "not measured" if value is None else f"{value:.3f}"
        out.append((f"{name} {said} (bar {bar})", value is not None and value <= bar))
    good = sum(1 for p in results if not {"plain", "skinflint"} & set(p["failed"]))
    out.append((f"same output and status in {good} of {len(picked)} programs", good == len(picked)))
    return out


def print_program(result):
    for mode, row in result["modes"].items():
        if mode == "plain":
            print(f"{result['name']:8} plain     {row['cpu_s']:7.2f} s CPU {row['max_rss_kb'] / 1024:7.1f} MB")
            continue
        ratio = row["ratio"]
        line = (f"{'':8} {mode:9} {ratio['cpu_s']:6.2f} CPU {ratio['tree_cpu_s']:6.2f} tree {ratio['wall_s']:6.2f} wall "
                f"{ratio['max_rss_kb']:6.3f} RSS")
        if "events" in row:
            ns = (row["cpu_s"] - result["modes"]["plain"]["cpu_s"]) * 1e9 / row["events"]
            line += f" {row['events']:11,} events {row['bytes_per_event']:5.2f} B/event {ns:6.1f} ns/event"
            line += f" {row['lost_events']} lost" if row["lost_events"] else ""
        print(line)
    for mode, why in result["failed"].items():
        print(f"{'':8} {mode:9} FAILED: {why}")
    sys.stdout.flush()


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="examples:\n  python3 bench/overhead.py\n"
                                            "  python3 bench/overhead.py --rounds 1 --no-heaptrack jq perl")
    measure.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program under each tool (default 5)")
    parser.add_argument("--no-heaptrack", action="store_true", help="leave the peer out")
    parser.add_argument("--json", metavar="FILE", help="where the figures go (default: WORK/overhead.json)")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all ten")
    arguments = parser.parse_args(argv)
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    return arguments


def main(argv=None):
    arguments = parse(argv)
    bench = measure.bench_of(arguments)
    try:
        bench.need_skinflint()
    except measure.Failed as error:
        print(f"overhead: {error}", file=sys.stderr)
        return 2
    picked = workloads.chosen(arguments.programs)
    modes = ["plain", "skinflint"]
    if not arguments.no_heaptrack:
        if measure.heaptrack_parts():
            modes.append("heaptrack")
        else:
            print("heaptrack is not installed (apt-get install heaptrack): no peer in this run", file=sys.stderr)
    where = machine(bench, picked)
    print(f"{where['cpu']} x{where['cpus']}, Linux {where['kernel']}, {where['date']}, commit {where['commit']}"
          f"{' + changes' if where['dirty'] else ''}; heaptrack {where['versions']['heaptrack'] or 'absent'}; "
          f"medians of {arguments.rounds}; ratios to plain")
    results = []
    for workload in picked:
        runs, failed = measure_program(bench, workload, modes, arguments.rounds, os.path.join(bench.work, "traces"))
        if runs["plain"]:
            compare_output(runs, failed)
        result = {"name": workload.name, "modes": summarise(bench, runs, failed), "failed": failed}
        print_program(result)
        results.append(result)
    return conclude(arguments, bench, where, results, picked, modes)


def conclude(arguments, bench, where, results, picked, modes):
    totals = {mode: overall(results, mode) for mode in modes if mode != "plain"}
    for mode, figures in totals.items():
        line = ", ".join(f"{name} {value:.3f}" for name, value in figures.items() if name != "programs")
        print(f"{mode}, {figures['programs']} programs: {line}")
    verdicts = judge(totals["skinflint"], results, picked)
    for text, held in verdicts:
        print(f"{'held  ' if held else 'MISSED'} {text}")
    path = arguments.json or os.path.join(bench.work, "overhead.json")
    with open(path, "w") as out:
        json.dump({"machine": where, "rounds": arguments.rounds, "bars": BARS, "programs": results, "overall": totals,
                   "verdicts": verdicts}, out, indent=1)
    print(f"figures: {path}")
    return 0 if all(held for _, held in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
