#!/usr/bin/env python3
"""How far the simulation is off: real programs under real allocators beside `skinflint what-if` over their traces.

    program ──under each allocator──► /proc/PID/smaps: heap pages resident ─┐
       └──recorded────► app.sft ──► skinflint what-if ──► resident ─────────┴──► real, simulated, difference

C1  Real: resident bytes of [heap], of anonymous mappings without a file, and of the mappings that Skinflint makes,
    less what the same program holds there that is not malloc's: what it has in them after its first
    instruction, measured by the same program started with `--version` or the like is *not* subtracted, since
    it allocates too. So real figures hold some hundred KiB of `.bss` and allocator metadata that simulated ones lack.
C2  Each program does its work, gives memory back where it has a way to, and then idles: the last figure is that of a
    program at rest, after every decay of a second or less.
C3  Simulated: with the delay that Skinflint's allocator has; glibc with what it trims from its top (`spans`),
    Skinflint with 4 KiB pages (`holes`).
C4  Samples are 10 ms apart: a peak that is shorter may be missed. The recorded run is another run: times differ,
    sizes do not, except where a load is random (redis).
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))

import inputs  # noqa: E402
import workloads  # noqa: E402

ROOT = os.path.join(HERE, "..", "..")
SAMPLE_S = 0.01
IDLE_S = 2.0
LIMIT_S = 300
DELAY_MS = 500
JQ = "[.[] | select(.weight > 250) | {id, name, t: (.tags | join(\"-\"))}] | group_by(.name) | length"


def target(name):
    folder = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(folder, "release", name)


def feed(path, after=b""):
    """Writes a file to the program's stdin, and something behind it; leaves it open."""
    def drive(process, _port):
        with open(path, "rb") as source:
            process.stdin.write(source.read() + after)
        process.stdin.flush()
    return drive


def load_redis(process, port):
    """Fills a server and empties it again."""
    workloads.wait_for_redis(port, lambda: process.poll() is None)
    subprocess.run(["redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-q", "-c", "20", "-P", "16", "-r", "50000",
                    "-d", "64", "-n", "150000", "-t", "set,hset,lpush,sadd,zadd"], check=True, timeout=LIMIT_S,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    workloads.redis_cli(port, "FLUSHALL", "SYNC")


def programs(folder):
    """Name, arguments, what drives it. Each idles when it is driven, until its stdin is closed or it is ended."""
    work = workloads.PROGRAMS
    waits = "import sys; sys.stdin.read()"
    return {
        "sqlite": (["/usr/bin/sqlite3", "work.db"],
                   feed(inputs.ensure(folder, "work.sql"), b"PRAGMA shrink_memory;\nSELECT 1;\n")),
        "python": (["/usr/bin/python3", "-c", f"exec(open({os.path.join(work, 'work.py')!r}).read()); {waits}"], None),
        "perl": (["/usr/bin/perl", "-e", f"do {os.path.join(work, 'work.pl')!r}; <STDIN>"], None),
        # jq reads 64 KiB at a time, and does nothing before it has them.
        "jq": (["/usr/bin/jq", JQ], feed(inputs.ensure(folder, "work.json"), b" " * 70_000)),
        "redis": (["/usr/bin/redis-server", "--bind", "127.0.0.1", "--port", "{port}", "--save", "", "--appendonly", "no",
                   "--daemonize", "no"], load_redis),
    }


def heap_bytes(pid):
    """C1."""
    total, counts = 0, False
    with open(f"/proc/{pid}/smaps") as smaps:
        for line in smaps:
            words = line.split()
            if "-" in words[0]:
                counts = len(words) == 5 or words[5] == "[heap]" or words[5].startswith("[anon")
            elif counts and words[0] == "Rss:":
                total += int(words[1]) << 10
    return total


class Sampler(threading.Thread):
    """Reads a process's heap until it is told to stop."""
    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.peak, self.last, self.stopped = pid, 0, 0, threading.Event()

    def run(self):
        while not self.stopped.is_set():
            try:
                now = heap_bytes(self.pid)
            except OSError:
                return
            if now:
                self.last, self.peak = now, max(self.peak, now)
            time.sleep(SAMPLE_S)


def settle(sampler, process):
    """Until the heap has not changed for IDLE_S, or the program is gone."""
    deadline = time.monotonic() + LIMIT_S
    since, before = time.monotonic(), sampler.last
    ticks = cpu_ticks(process.pid)
    while time.monotonic() - since < IDLE_S:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended before its work was done (status {process.returncode})")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{process.args[0]}: not idle after {LIMIT_S} s")
        time.sleep(0.05)
        now = cpu_ticks(process.pid)
        if sampler.last != before or now > ticks + 1:
            since, before, ticks = time.monotonic(), sampler.last, now


def cpu_ticks(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def end(process):
    """By closing its stdin; by a signal if that does not do."""
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run(argv, drive, preload):
    """One run to its idle end: the most and the last resident bytes of its heap."""
    port = workloads.free_port()
    argv = [word.replace("{port}", str(port)) for word in argv]
    environment = dict(workloads.ENVIRONMENT)
    if preload:
        environment["LD_PRELOAD"] = preload
    with tempfile.TemporaryDirectory() as scratch:
        process = subprocess.Popen(argv, cwd=scratch, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        sampler = Sampler(process.pid)
        sampler.start()
        try:
            if drive:
                drive(process, port)
            settle(sampler, process)
        finally:
            sampler.stopped.set()
            sampler.join()
            end(process)
    return sampler.peak, sampler.last


def record(argv, drive, trace):
    """The same, recorded. The recorder's environment is the program's."""
    port = workloads.free_port()
    argv = [word.replace("{port}", str(port)) for word in argv]
    with tempfile.TemporaryDirectory() as scratch:
        process = subprocess.Popen([target("skinflint"), "record", "--quiet", "-o", trace, "--", *argv], cwd=scratch,
                                   env=workloads.ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        child = None
        deadline = time.monotonic() + 20
        while child is None and time.monotonic() < deadline:
            with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
                child = next((int(word) for word in children.read().split()), None)
        if child is None:
            raise RuntimeError(f"skinflint record did not start {argv[0]}")
        sampler = Sampler(child)
        sampler.start()
        try:
            if drive:
                drive(process, port)
            settle_child(child, sampler)
        finally:
            sampler.stopped.set()
            sampler.join()
            end_recorded(process, child)
    if not os.path.exists(trace):
        raise RuntimeError(f"{argv[0]} was not recorded")


def settle_child(pid, sampler):
    since, ticks = time.monotonic(), cpu_ticks(pid)
    deadline = since + LIMIT_S
    while time.monotonic() - since < IDLE_S and time.monotonic() < deadline:
        time.sleep(0.05)
        if cpu_ticks(pid) > ticks + 1:
            since, ticks = time.monotonic(), cpu_ticks(pid)


def end_recorded(process, child):
    process.stdin.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        os.kill(child, signal.SIGTERM)
        process.wait(timeout=60)


def simulate(trace, names):
    """By policy: peak and end, in the way that the allocator gives back (C3)."""
    out = subprocess.run([target("skinflint"), "what-if", "--json", "--delay", str(DELAY_MS), "--with", ",".join(names),
                          trace], capture_output=True, check=True, timeout=LIMIT_S)
    found = json.loads(out.stdout)[0]
    figures = {}
    for policy in found["policies"]:
        way = "holes" if policy["policy"].startswith("skinflint") else "spans"
        figures[policy["policy"]] = (policy["most_resident"][way], policy["at_end"]["resident"][way])
    live = (found["at_peak"]["requested_bytes"], found["at_end"]["requested_bytes"])
    return found, live, figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0],
                                     epilog="example: python3 bench/suite/calibrate.py --only sqlite,jq")
    parser.add_argument("--only", default="", help="programs, with commas")
    parser.add_argument("--runs", type=int, default=3, help="real runs of each; the median counts")
    parser.add_argument("--json", help="write the figures to this file, too")
    arguments = parser.parse_args()
    folder = os.path.join(ROOT, "target", "bench", "inputs")
    known = programs(folder)
    chosen = arguments.only.split(",") if arguments.only else list(known)
    for name in chosen:
        if name not in known:
            sys.exit(f"no such program: {name} (there are: {', '.join(known)})")
    missing = [known[name][0][0] for name in chosen if not os.access(known[name][0][0], os.X_OK)]
    if missing:
        sys.exit("not installed: " + ", ".join(missing))
    for needed in ("skinflint", "libskinflint.so", "libskinflint_record.so"):
        if not os.path.exists(target(needed)):
            sys.exit(f"{target(needed)} is missing; run: cargo build --release")
    rows = []
    mib = 1 << 20
    print(f"{'program':8} {'allocator':10} {'live':>8} {'real peak':>10} {'simulated':>10} {'off':>7}"
          f" {'real idle':>10} {'simulated':>10} {'off':>10}")
    for name in chosen:
        argv, drive = known[name]
        with tempfile.TemporaryDirectory() as scratch:
            trace = os.path.join(scratch, "app.sft")
            record(argv, drive, trace)
            found, live, simulated = simulate(trace, ["glibc", "skinflint"])
        preloads = {"glibc": None, "skinflint": target("libskinflint.so")}
        if "glibc" not in found["allocator"]:
            del preloads["glibc"]
        for allocator, preload in preloads.items():
            runs = sorted(run(argv, drive, preload) for _ in range(arguments.runs))
            peak = runs[len(runs) // 2][0]
            idle = sorted(one[1] for one in runs)[len(runs) // 2]
            row = {"program": name, "allocator": allocator, "live_peak_bytes": live[0], "live_end_bytes": live[1],
                   "real_peak_bytes": peak, "simulated_peak_bytes": simulated[allocator][0], "real_idle_bytes": idle,
                   "simulated_idle_bytes": simulated[allocator][1], "runs": runs}
            rows.append(row)
            print(f"{name:8} {allocator:10} {live[0] / mib:8.2f} {peak / mib:10.2f} {simulated[allocator][0] / mib:10.2f}"
                  f" {100 * (simulated[allocator][0] / peak - 1):+6.1f}% {idle / mib:10.2f}"
                  f" {simulated[allocator][1] / mib:10.2f} {(simulated[allocator][1] - idle) / mib:+6.2f} MiB", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
