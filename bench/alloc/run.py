"""The allocator's bars: Skinflint beside eight other allocators, in speed, memory, idling and start-up.

    peers.py ──► libraries ──┬─► speed.py   real programs, patterns      CPU time, peak RSS
                             ├─► idle.py    after a big free             RSS / page floor
                             ├─► threads.py threads that wait            KB a thread
                             └─► start.py   doing nothing, forks, callgrind
                                    └──► judge.py ──► tables, bars ──► target/bench/alloc/*.json, *.txt

A1  Exit 0: every bar held. 1: one was missed. 2: nothing could be measured. Without libskinflint.so the peers are
    measured alone, no bar is judged, and that is said.
A2  The result names the machine, the kernel, every version, the seeds and the command.
"""
import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import idle  # noqa: E402
import inputs  # noqa: E402
import judge  # noqa: E402
import measure  # noqa: E402
import peers  # noqa: E402
import speed  # noqa: E402
import start  # noqa: E402
import threads as waiting  # noqa: E402
import real  # noqa: E402

PARTS = ("real", "patterns", "idle", "threads", "start")
ROUNDS = {"full": {"real": 5, "patterns": 7}, "quick": {"real": 2, "patterns": 3}}


def machine():
    with open("/proc/cpuinfo") as info:
        model = re.search(r"model name\s*:\s*(.*)", info.read())
    with open("/proc/meminfo") as info:
        memory_kb = int(info.readline().split()[1])
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as info:
        huge = re.search(r"\[(\w+)\]", info.read()).group(1)
    versions = {w.name: w.package + " " + subprocess.run(["dpkg-query", "-W", "-f", "${Version}", w.package],
                                                         capture_output=True, text=True).stdout for w in real.ALL}
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "cpu": model.group(1) if model else platform.processor(), "cpus": os.cpu_count(), "memory_kb": memory_kb,
            "kernel": platform.release(), "transparent_huge_pages": huge, "load_at_start": os.getloadavg()[0],
            "seed": inputs.SEED, "programs": versions, "command": " ".join(sys.argv)}


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  python3 bench/alloc/run.py --quick\n  python3 bench/alloc/run.py --only idle --only larson\n"
               "  python3 bench/alloc/run.py --allocators glibc,snmalloc --subject snmalloc --only patterns")
    parser.add_argument("--quick", action="store_true", help="smaller inputs and fewer rounds: a few minutes")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help=f"a part ({', '.join(PARTS)}), a program, a pattern or an idle workload; may be repeated")
    parser.add_argument("--allocators", default=",".join(peers.DEFAULT), metavar="A,B",
                        help=f"default: {','.join(peers.DEFAULT)}; also jemalloc-deb, mimalloc-deb, skinflint-thp")
    parser.add_argument("--subject", default="skinflint", help="whom the bars are for (default: skinflint)")
    parser.add_argument("--rounds", type=int, help="runs of each program under each allocator")
    parser.add_argument("--json", metavar="FILE", help="where the figures go (default: target/bench/alloc/…)")
    parser.add_argument("--work", default=os.path.join(peers.ROOT, "target", "bench"), metavar="DIR",
                        help="inputs, libraries and scratch files (default: target/bench)")
    arguments = parser.parse_args(argv)
    arguments.allocators = arguments.allocators.split(",")
    for name in arguments.allocators:
        if name not in peers.MAKERS:
            parser.error(f"--allocators: no such allocator: {name} (there are: {', '.join(peers.MAKERS)})")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    return arguments, parser


def plan(arguments, parser, bench):
    """{part: names to run, or () for all}; exits with the list if a name is unknown."""
    known = {"real": [w.name for w in real.ALL], "patterns": [pattern[0] for pattern in speed.patterns(bench)],
             "idle": list(idle.WORKLOADS), "threads": list(waiting.WORKLOADS), "start": []}
    parts = {}
    for name in arguments.only:
        if name in PARTS:
            parts[name] = ()
            continue
        owners = [part for part in PARTS if name in known[part]]
        if not owners:
            parser.error(f"--only: no such part or program: {name} (parts: {', '.join(PARTS)}; programs: "
                         f"{', '.join(sum(known.values(), []))})")
        for part in owners:
            parts.setdefault(part, [])
            if parts[part] != ():
                parts[part].append(name)
    return parts or {part: () for part in PARTS}


def measured(arguments, bench, have, tuned, parts):
    """Everything that was asked for, as one dictionary; the reasons of what failed beside it."""
    rounds = ROUNDS["quick" if arguments.quick else "full"]
    result, failed = {}, {}
    if "real" in parts:
        print("real programs, CPU seconds", flush=True)
        result["real"], lost = speed.real_rows(bench, have, arguments.rounds or rounds["real"], arguments.quick, parts["real"])
        failed.update(lost)
    if "patterns" in parts:
        print("patterns, CPU seconds", flush=True)
        result["patterns"], lost = speed.pattern_rows(bench, have, arguments.rounds or rounds["patterns"],
                                                       arguments.quick, parts["patterns"])
        failed.update(lost)
    if "idle" in parts:
        print("idle, MiB", flush=True)
        result["idle"], lost = idle.rows(bench, have + tuned, parts["idle"])
        failed.update(lost)
    if "threads" in parts:
        print("idle threads, KB a thread: " + ", ".join(waiting.STAGES), flush=True)
        result["threads"], lost = waiting.rows(bench, have + tuned, parts["threads"])
        failed.update(lost)
    if "start" in parts:
        print("start-up", flush=True)
        result["start"], lost = start.rows(bench, have, arguments.quick)
        failed.update(lost)
    return result, failed


def by_threads(rows, threads):
    return {name: row for name, row in rows.items() if any(f["threads"] == threads for f in row.values())}


def speed_rows(result):
    """The rows of the speed bar: real programs, and patterns of several threads."""
    return {**result.get("real", {}), **by_threads(result.get("patterns", {}), True)}


def tables(result, names, tuned, subject):
    out = []
    if result.get("real"):
        out.append(judge.table("Real programs, CPU seconds (user + system, median)", result["real"], names, "cpu", subject, 1, 3))
        out.append(judge.table("Real programs, peak RSS, MiB", result["real"], names, "peak", subject, 1 / 1024, 1))
        out.append(judge.table("Real programs, page faults, thousands", result["real"], names, "faults", subject, 1 / 1000, 1))
    for threads, title in ((True, "Patterns of several threads"), (False, "Patterns of one thread")):
        rows = by_threads(result.get("patterns", {}), threads)
        if rows:
            out.append(judge.table(f"{title}, ns per operation (CPU, median)", rows, names, "ns", subject, 1, 1))
            out.append(judge.table(f"{title}, peak RSS, MiB", rows, names, "peak", subject, 1 / 1024, 1))
    rows = {**result.get("real", {}), **result.get("patterns", {})}
    if result.get("real") and result.get("patterns"):
        of = [(judge.mean_ratio(rows, subject, name, "cpu"), name) for name in names if name != subject]
        each = ", ".join(f"{name}'s {ratio:.3f}" for (ratio, _), name in of if ratio is not None)
        out.append(f"CPU, geometric mean over all {len(rows)} rows, patterns of one thread too: {subject}'s is of {each}")
    if result.get("idle"):
        out.append(idle.table(result["idle"], names + tuned, subject))
    if result.get("threads"):
        out.append(waiting.table(result["threads"], names + tuned))
    if result.get("start"):
        out.append(start.table(result["start"], names))
    middle, high = judge.spread(speed_rows(result))
    if middle is not None:
        out.append(f"CPU spread, (max - min) / median over the rounds: median {middle:.1%}, 90th percentile {high:.1%}")
    return out


def verdicts(result, names, subject, failed, whole):
    out = []
    rows = speed_rows(result)
    if rows:
        out += judge.judge_speed(rows, names, subject, {key: why for key, why in failed.items() if key[0] in rows})
    if result.get("real"):
        out += judge.judge_peak(result["real"], names, subject)
    if result.get("idle"):
        out += judge.judge_idle(result["idle"], subject)
    if result.get("threads"):
        out += waiting.judged(result["threads"], subject)
    if result.get("start"):
        out += judge.judge_start(result["start"], result.get("patterns", {}), subject)
    if whole:
        counts = len(result["real"]), len(by_threads(result["patterns"], True))
        out.append(judge.verdict(counts >= (judge.MIN_REAL, judge.MIN_THREADS),
                                 f"{counts[0]} real programs, {counts[1]} patterns of several threads"))
    return out


def header(where, have, absent):
    lines = [f"{where['cpu']} x{where['cpus']}, Linux {where['kernel']}, huge pages {where['transparent_huge_pages']}, "
             f"{where['date']}, load {where['load_at_start']:.2f}, seed {where['seed']}"]
    lines += [f"  {a.name:11} {a.version:22} {a.source}"
              + "".join(f" {key}={value}" for key, value in a.environment.items() if a.name.endswith("+")) for a in have]
    lines += [f"  {name:11} ABSENT: {why}" for name, why in absent.items()]
    return "\n".join(lines)


def main(argv=None):
    arguments, parser = parse(argv)
    bench = measure.Bench("", os.path.abspath(arguments.work))
    have, absent = peers.gather(arguments.allocators, os.path.join(bench.work, "alloc"))
    if not have:
        print("bench alloc: no allocator could be had: " + "; ".join(absent.values()), file=sys.stderr)
        return 2
    parts = plan(arguments, parser, bench)
    # E5: in tables of memory at rest only.
    at_rest = "idle" in parts or "threads" in parts
    wanted = [name for name in peers.TUNED if name.rstrip("+") in arguments.allocators] if at_rest else []
    tuned, missing = peers.gather(wanted, os.path.join(bench.work, "alloc"))
    absent.update(missing)
    where, names = machine(), [allocator.name for allocator in have]
    print(header(where, have + tuned, absent), flush=True)
    result, failed = measured(arguments, bench, have, tuned, parts)
    text = tables(result, names, [allocator.name for allocator in tuned], arguments.subject)
    text += [f"{program} under {name} FAILED: {why}" for (program, name), why in failed.items()]
    judged = verdicts(result, names, arguments.subject, failed, not arguments.only) if arguments.subject in names else []
    text.append("\n".join(f"{'held  ' if v['held'] else 'MISSED'} {v['text']}" for v in judged)
                or f"{arguments.subject} is absent: no bar was judged")
    print("\n" + "\n\n".join(text))
    save(arguments, bench, {"machine": where, "quick": arguments.quick, "absent": absent, "result": result, "verdicts": judged,
                            "allocators": [vars(allocator) for allocator in have + tuned],
                            "failed": [[*key, why] for key, why in failed.items()]}, header(where, have, absent), text)
    return 0 if all(v["held"] for v in judged) else 1


def save(arguments, bench, everything, head, text):
    stamp = everything["machine"]["date"].replace(":", "").split("+")[0]
    path = arguments.json or os.path.join(bench.work, "alloc", f"{'quick' if arguments.quick else 'full'}-{stamp}.json")
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w") as out:
        json.dump(everything, out, indent=1)
    with open(os.path.splitext(path)[0] + ".txt", "w") as out:
        out.write(head + "\n\n" + "\n\n".join(text) + "\n")
    print(f"\nfigures: {path}, the same as text beside it")


if __name__ == "__main__":
    sys.exit(main())
