"""Is a replay like the program? Two bars, measured on real programs.

    program ──► alone, under glibc: malloc's peak (heap.py) ─────────────┐
            └─► recorded ──► .sft ──► compile ──► script ──► replay: peak ┴─► within 5 %

    idle workload ──► under each allocator, for real: RSS after most was freed ─────┐
                  └─► recorded once ──► replay in recorded time under each: RSS ────┴─► the same order

R1  Both are measured by the same rule (heap.py). The program runs unrecorded; the replay's trace is of another run.
R2  An order is right if no two allocators stand the other way round in the replay by more than the difference that is
    counted as a tie: 3 % of the larger.
R3  Replays for the order take recorded time (--paced 1), idling included: allocators give back by the clock, and redis
    allocates a little ten times a second, which is when some of them do.
R4  A program that cannot be run here is a missed bar.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.dirname(HERE)
ROOT = os.path.dirname(BENCH)
sys.path[:0] = [BENCH, os.path.join(BENCH, "alloc")]

import heap        # noqa: E402
import idle        # noqa: E402
import measure     # noqa: E402
import peers       # noqa: E402
import workloads   # noqa: E402

PROGRAMS = ["redis", "sqlite", "python", "perl", "cc1plus", "jq", "xmllint", "git"]
# Without pyfrag, whose heap is mapped by Python itself and is none of malloc's.
IDLE = [name for name in idle.WORKLOADS if name != "pyfrag"]
# redis asks jemalloc for its background thread (mallctl), which no trace holds and no replay does; it is told not to.
MORE_WORDS = {"redis-idle": ["--jemalloc-bg-thread", "no"]}
WITHIN, TIE, LIMIT_S = 0.05, 0.03, 300


def library(bench):
    source, out = os.path.join(HERE, "mapwatch.c"), os.path.join(bench.work, "mapwatch.so")
    if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(source):
        os.makedirs(bench.work, exist_ok=True)
        subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", out, source], check=True, timeout=60)
    return out


def libc_first(workload):
    """Debian's redis-server is linked with another allocator: the C library is named first."""
    return [peers.LIBC] if workload.command[0].endswith("redis-server") else []


def run_workload(bench, workload, preload, prefix=(), sampled=True):
    """Runs one program of workloads.py; returns its sampler (None if not sampled)."""
    port = workloads.free_port() if workload.drive else 0
    with bench.scratch() as scratch:
        environment = dict(workloads.ENVIRONMENT, **({"LD_PRELOAD": ":".join(preload)} if preload else {}))
        command = list(prefix) + workload.arguments(bench.inputs, port)
        with open(workload.stdin_path(bench.inputs), "rb") as stdin:
            process = subprocess.Popen(command, cwd=scratch, env=environment, stdin=stdin, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, start_new_session=True)
        sampler = heap.Sampler(process.pid) if sampled else None
        try:
            if workload.drive:
                workload.drive(port, bench.inputs, lambda: process.poll() is None)
            status = process.wait(timeout=LIMIT_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if sampler:
                sampler.stop()
        if status:
            raise measure.Failed(f"{workload.name} ended with {status}")
    return sampler


def largest_trace(folder):
    """A program may start others; the trace asked for is the one with the most bytes."""
    found = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".sft")]
    if not found:
        raise measure.Failed("the recording left no trace")
    return max(found, key=os.path.getsize)


def compile_script(tools, trace, script):
    done = subprocess.run([tools.compile, trace, script], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise measure.Failed(f"compile: {done.stderr.strip()[-300:]}")
    return done.stderr.splitlines()


class Replay:
    """What a replay said and what was seen of it."""

    def __init__(self, tools, script, allocator=None, options=(), sampled=True):
        environment = dict(workloads.ENVIRONMENT, **(allocator.environment if allocator else {}))
        if allocator and allocator.path:
            environment["LD_PRELOAD"] = allocator.path
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            process = subprocess.Popen([tools.replay, script, "--report", report.name, *options], env=environment,
                                       stderr=subprocess.PIPE)
            sampler = heap.Sampler(process.pid) if sampled else None
            try:
                _, said = process.communicate(timeout=LIMIT_S)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                self.peak = sampler.stop() if sampler else 0
            lines = [json.loads(line) for line in report.read().splitlines()]
        self.samples = sampler.samples if sampler else 0
        if process.returncode or not lines or lines[-1]["line"] != "end":
            raise measure.Failed(f"replay ended with {process.returncode}: {said.decode(errors='replace')[-300:]}")
        self.end = lines[-1]
        self.points = {line["name"]: line for line in lines if line["line"] == "point"}
        self.rss_peak = max(line["rss_bytes"] for line in lines if line["line"] == "point")
        # A replay is fast and samples are few: its own points are exact, but hold what is not malloc's too.
        self.peak = max(self.peak, self.rss_peak - ((sampler.others if sampler else 0) or 0))


def mib(count):
    return f"{count / (1 << 20):8.2f}"


def peaks(bench, tools, names):
    """Bar 1: [(name, ratio)]"""
    print("Peak of malloc's memory under glibc, MiB: the program, its replay (samples from outside)")
    print(f"{'':10}{'program':>9}{'replay':>9}{'ratio':>8}{'samples':>14}   replay's own RSS peak, operations, violations")
    rows = []
    for workload in workloads.WORKLOADS:
        if workload.name not in names:
            continue
        try:
            real = max((run_workload(bench, workload, [library(bench), *libc_first(workload)]) for _ in range(tools.rounds)),
                       key=lambda sampler: sampler.peak)
            with tempfile.TemporaryDirectory(dir=bench.work) as folder:
                record = [bench.skinflint, "record", "-o", os.path.join(folder, "app.sft"), "--"]
                run_workload(bench, workload, libc_first(workload), record, sampled=False)
                trace, script = largest_trace(folder), os.path.join(folder, "app.sfp")
                said = compile_script(tools, trace, script)
                replay = max((Replay(tools, script) for _ in range(tools.rounds)), key=lambda replay: replay.peak)
                if tools.keep:
                    for path in (trace, script):
                        os.replace(path, os.path.join(tools.keep, workload.name + os.path.splitext(path)[1]))
        except (measure.Failed, OSError, subprocess.SubprocessError) as error:
            print(f"{workload.name:10} no figure: {error}")
            rows.append((workload.name, None))
            continue
        ratio = replay.peak / real.peak
        bad = replay.end["order_violations"] + replay.end["double_uses"]
        print(f"{workload.name:10} {mib(real.peak)} {mib(replay.peak)}{ratio:8.3f}{real.samples:7}{replay.samples:7}   "
              f"{mib(replay.rss_peak)} {replay.end['ops']:10} {bad:3}", flush=True)
        for line in said[1:]:
            print(f"{'':10} {line.split(': ', 1)[-1]}")
        rows.append((workload.name, ratio))
    return rows


def workload_of(name):
    workload = idle.WORKLOADS[name]
    return dataclasses.replace(workload, command=workload.command + MORE_WORDS.get(name, []))


def kill_child(process):
    """Kills the recorded program, so that it frees nothing at its end; the recorder ends by itself."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        for child in file.read().split():
            os.kill(int(child), signal.SIGKILL)
    process.wait(timeout=60)


def idle_trace(bench, tools, name, folder):
    """Records an idle workload under glibc until it has dropped most of its heap and idled."""
    workload = workload_of(name)
    command = [bench.skinflint, "record", "-o", os.path.join(folder, name + ".sft"), "--", *workload.command]
    recorded = dataclasses.replace(workload, command=command)
    if workload.command[0].endswith("redis-server"):
        program, redis = started_redis(recorded)
    else:
        program, redis = idle.started(bench, recorded, peers.Allocator("glibc", "", "", ""), None)
    try:
        time.sleep(tools.idle_s)
        kill_child(program.process)
    finally:
        if redis:
            redis.close()
        program.kill()
        program.end()
    return largest_trace(folder)


def started_redis(recorded):
    """As idle.started, for a redis-server behind the recorder."""
    port = workloads.free_port()
    command = [word.replace("{port}", str(port)) for word in recorded.command]
    program = idle.Program(command, dict(workloads.ENVIRONMENT, LD_PRELOAD=peers.LIBC), silent=True)
    try:
        workloads.wait_for_redis(port, lambda: program.process.poll() is None)
        redis = idle.Redis(port)
        redis.fill_and_delete()
    except (RuntimeError, OSError, measure.Failed):
        program.kill()
        program.end()
        raise
    return program, redis


def both(bench, tools, name, script, allocator):
    """(bytes of the program, bytes of its replay) after the idle time."""
    with concurrent.futures.ThreadPoolExecutor(1) as one:
        real = one.submit(real_idle, bench, name, allocator, tools.idle_s)
        replay = Replay(tools, script, allocator, ["--paced", "1"], sampled=False)
        return real.result(), replay.points["end"]["rss_bytes"]


def ranks(bench, tools, names, allocators):
    """Bar 2: [(name, pairs the other way round)]"""
    return [(name, rank(bench, tools, name, allocators)) for name in names]


def rank(bench, tools, name, allocators):
    """Pairs of one workload that stand the other way round in the replay; None if a figure is missing."""
    found = {}
    with tempfile.TemporaryDirectory(dir=bench.work) as folder:
        trace, script = idle_trace(bench, tools, name, folder), os.path.join(folder, name + ".sfp")
        compile_script(tools, trace, script)
        with concurrent.futures.ThreadPoolExecutor(tools.at_once) as pool:
            tasks = {a.name: pool.submit(both, bench, tools, name, script, a) for a in allocators}
        for allocator, task in tasks.items():
            try:
                found[allocator] = task.result()
            except (measure.Failed, OSError, subprocess.SubprocessError, ValueError) as error:
                print(f"{name:10} {allocator}: no figure: {error}")
        if tools.keep:
            os.replace(trace, os.path.join(tools.keep, name + ".sft"))
    order = sorted(found, key=lambda n: found[n][0])
    print(f"{name}: anonymous memory {tools.idle_s} s after most was freed, MiB, in the program's order")
    for n in order:
        real, replay = found[n]
        print(f"    {n:12} program {mib(real)}   replay {mib(replay)}  {replay / real:6.3f}")
    wrong = [(a, b) for i, a in enumerate(order) for b in order[i + 1:] if is_other_way(found[a], found[b])]
    for a, b in wrong:
        print(f"    other way round in the replay: {a} and {b}")
    sys.stdout.flush()
    return wrong if len(found) == len(allocators) else None


def is_other_way(less, more):
    """R2: `less` is below `more` in the program, and above it in the replay, by more than a tie."""
    return more[0] - less[0] > TIE * more[0] and less[1] - more[1] > TIE * less[1]


def real_idle(bench, name, allocator, idle_s):
    """Anonymous and shared memory of the program, idle, less its harness's own."""
    workload = workload_of(name)
    program, redis = idle.started(bench, workload, allocator, None)
    try:
        time.sleep(idle_s)
        pid = program.process.pid
        kb = idle.status_kb(pid, "RssAnon") + idle.status_kb(pid, "RssShmem")
        own = 0
        if workload.own_floor:
            own = json.loads(program.ask("floor"))["own_kb"]
        return (kb - own) * 1024
    finally:
        if redis:
            redis.close()
            program.kill()
        program.end()


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    measure.add_arguments(parser)
    release = os.path.join(ROOT, "target", "release")
    parser.add_argument("--replay", default=os.path.join(release, "skinflint-replay"), metavar="FILE")
    parser.add_argument("--compile", default=os.path.join(release, "examples", "compile"), metavar="FILE",
                        help="cargo build --release -p skinflint-compare --example compile")
    parser.add_argument("--only", default="", help="of the programs and idle workloads, only these (commas)")
    parser.add_argument("--allocators", default=",".join(peers.DEFAULT), help="for the order after a free (commas)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program; the highest peak counts")
    parser.add_argument("--idle-s", type=int, default=12)
    parser.add_argument("--at-once", type=int, default=3, help="allocators measured at once in ranks")
    parser.add_argument("--keep", default="", metavar="DIR", help="keep traces and scripts there")
    parser.add_argument("part", nargs="?", choices=["peaks", "ranks"])
    return parser.parse_args(argv)


def main(argv=None):
    tools = parse(argv)
    bench = measure.bench_of(tools)
    bench.need_skinflint()
    for path in (tools.replay, tools.compile):
        if not os.path.exists(path):
            sys.exit(f"{path} is not built; run: cargo build --release -p skinflint-replay -p skinflint-compare "
                     "--bin skinflint-replay --example compile")
    only = [name for name in tools.only.split(",") if name]
    missed = 0
    if tools.part != "ranks":
        rows = peaks(bench, tools, [n for n in PROGRAMS if not only or n in only])
        near = [name for name, ratio in rows if ratio and abs(ratio - 1) <= WITHIN]
        held = len(near) >= min(6, len(rows)) and len(near) == len(rows)
        missed += not held
        print(f"{'held' if held else 'MISSED'}: within {WITHIN:.0%}: {len(near)} of {len(rows)}")
    if tools.part != "peaks":
        have, absent = peers.gather([n for n in tools.allocators.split(",") if n], os.path.join(bench.work, "alloc"))
        for name, why in absent.items():
            print(f"{name}: {why}", file=sys.stderr)
        rows = ranks(bench, tools, [n for n in IDLE if not only or n in only], have)
        held = rows and all(wrong == [] for _, wrong in rows)
        missed += not held
        right = sum(wrong == [] for _, wrong in rows)
        print(f"{'held' if held else 'MISSED'}: the same order after a free: {right} of {len(rows)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
