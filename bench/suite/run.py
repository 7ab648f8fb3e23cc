#!/usr/bin/env python3
"""The suite: real programs recorded, simulated, replayed and run under every allocator that is found; one dated result.

    programs ─► skinflint record ─► traces ─┬─► skinflint what-if           layouts, without running
        │                                   └─► skinflint compare TRACE…    replays, all in one table
        └──────────────────────────────────────► skinflint compare -- CMD   the programs themselves
                                                          └─► RESULTS/DATE.json, DATE.txt

U1  One command from a fresh clone: `cargo xtask bench suite` builds what it needs. Peers that are not there are named in
    the result, with the way to get them (`cargo xtask peers`, or Debian's packages); nothing is fetched here.
U2  A program that is not installed is a row that names its package; one that fails is a row that says how. The rest go on.
U3  The result names the machine, the kernel, the commit, every version, seed and command. Inputs follow from a seed
    (bench/inputs.py), so two results differ by what they name.
U4  Every wait has a bound, and everything that was started is ended.

Exit: 0 everything was measured; 1 something failed or was missing (each is named); 2 nothing could be measured.
"""
import argparse
import dataclasses
import datetime
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.dirname(HERE)
ROOT = os.path.dirname(BENCH)
sys.path[:0] = [BENCH, os.path.join(BENCH, "alloc")]

import inputs  # noqa: E402
import measure  # noqa: E402
import real  # noqa: E402  (adds the quick inputs)
import speed  # noqa: E402
import workloads  # noqa: E402

SCHEMA = 1
STEP_LIMIT_S = 3600
REPLAY_IDLE_S = 2
QUICK_PROGRAMS = ("sqlite", "jq", "perl", "producer")
RUNS = {"full": 5, "quick": 2}
JQ = "[.[] | select(.weight > 250) | {id, name, t: (.tags | join(\"-\"))}] | group_by(.name) | map({n: .[0].name, c: length})"


@dataclasses.dataclass
class Program:
    """What is run. `{name}` stands for an input, `{port}` for a port, `{pattern}` for the built pattern program."""
    name: str
    package: str
    command: list
    stdin: str = ""
    drive: object = None
    options: tuple = ()


def load_redis(port):
    """Fills the server, empties it, lets it idle, ends it."""
    requests = str(real.QUICK_REDIS_REQUESTS if workloads.REDIS_REQUESTS == real.QUICK_REDIS_REQUESTS else 150_000)
    subprocess.run(["redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-q", "-c", "20", "-P", "16", "-r", "50000",
                    "-d", "64", "-n", requests, "-t", "set,hset,lpush,sadd,zadd"], timeout=300, check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    workloads.redis_cli(port, "FLUSHALL", "SYNC")
    time.sleep(2)
    workloads.redis_cli(port, "SHUTDOWN", "NOSAVE")


PROGRAMS = [
    Program("sqlite", "sqlite3", ["/usr/bin/sqlite3", ":memory:"], stdin="work.sql"),
    Program("python", "python3", ["/usr/bin/python3", os.path.join(workloads.PROGRAMS, "work.py")]),
    Program("perl", "perl", ["/usr/bin/perl", os.path.join(workloads.PROGRAMS, "work.pl")]),
    Program("jq", "jq", ["/usr/bin/jq", JQ, "{work.json}"]),
    Program("xmllint", "libxml2-utils", ["/usr/bin/xmllint", "--xpath", "count(//item[price > 500]/note)", "{work.xml}"]),
    Program("git", "git", ["/usr/bin/git", "--no-pager", "-C", "{history.git}", "log", "--stat", "-n", "1500"]),
    Program("cc1plus", "g++", [workloads.compiler_proper(), "-quiet", "-fpreprocessed", "-std=c++17", "-O2", "{work.ii}",
                               "-dumpbase", "work.cc", "-o", "/dev/null"]),
    Program("redis", "redis-server", ["/usr/bin/redis-server", "--bind", "127.0.0.1", "--port", "{port}", "--save", "",
                                      "--appendonly", "no", "--daemonize", "no"], drive=load_redis,
            options=("--ignore-output",)),
    Program("producer", "gcc", ["{pattern}", "xmalloc"], options=("--ignore-output",)),
    Program("larson", "gcc", ["{pattern}", "larson"], options=("--ignore-output",)),
]


class Failed(Exception):
    """A step went wrong; the message says which and what to do."""


def target(name):
    folder = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(ROOT, folder, "release", name)


def text_of(command):
    """What a command prints, or nothing if it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def machine(arguments):
    with open("/proc/cpuinfo") as info:
        model = re.search(r"model name\s*:\s*(.*)", info.read())
    with open("/proc/meminfo") as info:
        memory_kb = int(info.readline().split()[1])
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "date": now.isoformat(timespec="seconds"), "cpu": model.group(1) if model else platform.processor(),
        "cpus": len(os.sched_getaffinity(0)), "memory_kb": memory_kb, "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()), "load_at_start": os.getloadavg()[0],
        "commit": text_of(["git", "rev-parse", "HEAD"]), "changed_files": len(text_of(["git", "status", "--short"]).splitlines()),
        "skinflint": text_of([target("skinflint"), "--version"]), "input_seed": inputs.SEED, "draw_seed": arguments.seed,
        "mode": "quick" if arguments.quick else "full", "command": " ".join(sys.argv),
    }


class Suite:
    """One run of it: where things lie, and what came out."""
    def __init__(self, arguments):
        self.arguments = arguments
        self.work = os.path.join(ROOT, "target", "bench")
        self.bench = measure.Bench(skinflint=target("skinflint"), work=self.work)
        self.result = {"schema": SCHEMA, "machine": machine(arguments), "programs": [], "faults": []}
        self.lines = []

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def fault(self, text):
        self.result["faults"].append(text)
        self.say(f"suite: {text}")

    def command(self, program, port):
        def fill(word):
            if word == "{port}":
                return str(port)
            if word == "{pattern}":
                return speed.pattern_binary(self.bench)
            quick = real.QUICK_INPUTS.get(word, word) if self.arguments.quick else word
            return inputs.ensure(self.bench.inputs, quick[1:-1]) if quick.startswith("{") else quick
        return [fill(word) for word in program.command]

    def stdin(self, program):
        name = real.QUICK_INPUTS.get(program.stdin, program.stdin) if self.arguments.quick else program.stdin
        return inputs.ensure(self.bench.inputs, name) if name else os.devnull

    def run(self, command, stdin=os.devnull, drive=None, port=0, folder=None):
        """A step of the tool, in a folder of its own unless one is named: its stdout. Its messages go to stderr."""
        stop = threading.Event()
        driver = None
        with tempfile.TemporaryDirectory(dir=self.work, prefix="suite-") as scratch, open(stdin, "rb") as source, \
                open(os.path.join(scratch, "stdout"), "w+") as out:
            process = subprocess.Popen(command, cwd=folder or scratch, env=workloads.ENVIRONMENT, stdin=source, stdout=out,
                                       start_new_session=True)
            if drive:
                driver = threading.Thread(target=serve, args=(drive, port, stop), daemon=True)
                driver.start()
            try:
                status = process.wait(timeout=STEP_LIMIT_S)
            except subprocess.TimeoutExpired:
                status = f"none within {STEP_LIMIT_S} s"
            finally:
                end(process)
                stop.set()
                if driver:
                    driver.join(timeout=330)
            out.seek(0)
            return status, out.read()

    def record(self, program, traces):
        """The program's trace: its path, or the reason why there is none."""
        trace = os.path.join(traces, program.name + ".sft")
        port = workloads.free_port()
        command = [target("skinflint"), "record", "--quiet", "-o", trace, "--", *self.command(program, port)]
        status, _ = self.run(command, self.stdin(program), program.drive, port)
        if status != 0:
            raise Failed(f"{program.name}: recording ended with status {status}")
        if not os.path.exists(trace):
            raise Failed(f"{program.name}: no trace was written")
        return trace

    def tool(self, name, words, **more):
        """A command of skinflint that writes JSON: what it said, and its text."""
        with tempfile.TemporaryDirectory(dir=self.work) as scratch:
            file = os.path.join(scratch, "out.json")
            status, text = self.run([target("skinflint"), *words[:1], "--json", file, *words[1:]], **more)
            if not os.path.exists(file) or not os.path.getsize(file):
                raise Failed(f"{name}: skinflint {words[0]} ended with status {status} and wrote nothing")
            with open(file) as written:
                found = json.load(written)
        if status != 0:
            self.fault(f"{name}: skinflint {words[0]} ended with status {status}")
        return found, text

    def compare_options(self):
        options = ["--runs", str(self.arguments.runs), "--seed", str(self.arguments.seed)]
        if self.arguments.allocators:
            options += ["--with", self.arguments.allocators]
        return options

    def traces(self, recorded):
        """All traces in one table of simulations and one of replays; named by their files alone."""
        folder, recorded = os.path.dirname(recorded[0]), [os.path.basename(trace) for trace in recorded]
        steps = (("what_if", ["compare", "--what-if", *recorded]),
                 ("replayed", ["compare", *self.compare_options(), "--idle", str(REPLAY_IDLE_S), *recorded]))
        for name, words in steps:
            self.say(f"suite: {name} of {len(recorded)} traces")
            try:
                self.result[name], text = self.tool(name, words, folder=folder)
                self.lines += [f"== {name}", text]
            except Failed as reason:
                self.fault(str(reason))
        self.beside()

    def beside(self):
        """Simulations beside the replays of the same traces: page floor at the peak, and the most that was resident."""
        simulated = {os.path.splitext(one["trace"])[0]: one for one in self.result.get("what_if", [])}
        rows = []
        for program in self.result.get("replayed", {}).get("programs", []):
            policies = {one["policy"]: one for one in simulated.get(program["name"], {}).get("policies", [])}
            for column in program["columns"]:
                policy, runs = policies.get(column["allocator"]), [run["figures"] for run in column["runs"] if run["figures"]]
                if not policy or not runs:
                    continue
                way = "holes" if policy["policy"] == "skinflint" else "spans"
                rows.append({
                    "program": program["name"], "allocator": column["allocator"],
                    "floor_bytes": [policy["at_peak"]["floor_bytes"], median(runs, "floor_peak_bytes")],
                    "resident_bytes": [policy["most_resident"][way], median(runs, "peak_bytes")]})
        self.result["simulated_beside_replayed"] = rows
        text = [f"{'':10} {'':10} {'floor at the peak, MiB':^26} {'most resident, MiB':^26}",
                f"{'trace':10} {'allocator':10}" + f" {'simulated':>9} {'replayed':>9} {'off':>7}" * 2]
        for row in rows:
            cells = "".join(f" {one / 2**20:9.2f} {other / 2**20:9.2f} {100 * (one / other - 1) if other else 0:+6.1f}%"
                            for one, other in (row["floor_bytes"], row["resident_bytes"]))
            text.append(f"{row['program']:10} {row['allocator']:10}{cells}")
        self.lines += ["== simulated beside replayed", *text, ""]

    def program(self, program, row):
        """The program itself, under every allocator."""
        port = workloads.free_port()
        words = ["compare", *self.compare_options(), *program.options]
        stdin = self.stdin(program)
        if stdin != os.devnull:
            words += ["--input", stdin]
        self.say(f"suite: {program.name} under each allocator")
        row["compared"], text = self.tool(program.name, [*words, "--", *self.command(program, port)], drive=program.drive,
                                          port=port)
        self.lines += [f"== {program.name}", text]

    def all(self, programs, traces):
        recorded = []
        for program in programs:
            row = {"name": program.name, "package": program.package, "command": program.command}
            self.result["programs"].append(row)
            if not self.installed(program, row):
                continue
            row["version"] = text_of(["dpkg-query", "-W", "-f", "${Version}", program.package])
            try:
                self.say(f"suite: recording {program.name}")
                trace = self.record(program, traces)
                with open(trace, "rb") as file:
                    row["trace"] = {"bytes": os.path.getsize(trace), "sha256": hashlib.sha256(file.read()).hexdigest()}
                recorded.append(trace)
            except (Failed, OSError, subprocess.SubprocessError) as reason:
                row["fault"] = str(reason)
                self.fault(str(reason))
        if recorded and not self.arguments.no_traces:
            self.traces(recorded)
            self.write(self.arguments.results)
        for program, row in zip(programs, self.result["programs"]):
            if "trace" not in row or self.arguments.no_programs:
                continue
            try:
                self.program(program, row)
            except (Failed, OSError, subprocess.SubprocessError) as reason:
                row["fault"] = str(reason)
                self.fault(str(reason))
            # A full run takes long: who ends it early keeps what there is.
            self.write(self.arguments.results)
        return bool(recorded)

    def installed(self, program, row):
        first = program.command[0]
        needed = shutil.which("gcc") if first == "{pattern}" else first
        if needed and os.access(needed, os.X_OK):
            return True
        row["missing"] = f"apt-get install -y {program.package}"
        self.fault(f"{program.name} is not installed: apt-get install -y {program.package}")
        return False

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        where = self.result["machine"]
        stamp = where["date"][:16].replace(":", "").replace("T", "-") + "-" + where["mode"]
        paths = [os.path.join(folder, f"{stamp}.{kind}") for kind in ("json", "txt")]
        with open(paths[0], "w") as out:
            json.dump(self.result, out, indent=1)
            out.write("\n")
        head = [f"{key:14} {value}" for key, value in where.items()]
        rows = [f"{row['name']:14} {row['package']} {row.get('version', '')} {row.get('missing', row.get('fault', ''))}".rstrip()
                for row in self.result["programs"]]
        faults = ["", "what is missing or failed:"] + self.result["faults"] if self.result["faults"] else []
        with open(paths[1], "w") as out:
            out.write("\n".join([*head, "", *rows, *faults, "", *self.lines]))
        return paths


def median(runs, key):
    """Of a figure that all runs have; 0 if one lacks it."""
    values = sorted(run.get(key) or 0 for run in runs)
    return values[len(values) // 2]


def serve(drive, port, stop):
    """Drives every server that comes up on the port, one after the other."""
    while not stop.is_set():
        try:
            if workloads.redis_cli(port, "PING").strip() == b"PONG":
                drive(port)
        except (OSError, subprocess.SubprocessError):
            pass
        stop.wait(0.05)


def end(process):
    """The tool's whole session, which is ours: asked first, then killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="examples:\n  cargo xtask bench suite --quick\n"
                                            "  python3 bench/suite/run.py --only sqlite,redis --runs 10")
    parser.add_argument("--quick", action="store_true",
                        help=f"smaller inputs, {RUNS['quick']} runs, and only {', '.join(QUICK_PROGRAMS)}")
    parser.add_argument("--only", default="", metavar="A,B", help="these programs")
    parser.add_argument("--runs", type=int, help=f"rounds of each comparison (default {RUNS['full']})")
    parser.add_argument("--allocators", default="", metavar="A,B", help="these allocators (default: all that are found)")
    parser.add_argument("--seed", type=int, default=1, help="of the intervals' random draws")
    parser.add_argument("--no-traces", action="store_true", help="no simulations and no replays")
    parser.add_argument("--no-programs", action="store_true", help="only what needs the traces")
    parser.add_argument("--results", default=os.path.join(ROOT, "target", "bench", "suite"), metavar="DIR",
                        help="where the result is written (default: target/bench/suite)")
    arguments = parser.parse_args(argv)
    mode = "quick" if arguments.quick else "full"
    arguments.runs = arguments.runs or RUNS[mode]
    known = {program.name: program for program in PROGRAMS}
    names = arguments.only.split(",") if arguments.only else list(QUICK_PROGRAMS if arguments.quick else known)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"--only: no such program: {', '.join(unknown)} (there are: {', '.join(known)})")
    return arguments, [known[name] for name in names]


def main(argv):
    arguments, programs = parse(argv)
    needed = ("skinflint", "skinflint-replay", "libskinflint.so", "libskinflint_record.so", "libskinflint_probe.so")
    missing = [name for name in needed if not os.path.exists(target(name))]
    if missing:
        print(f"suite: not built: {', '.join(missing)}; run: cargo xtask bench suite", file=sys.stderr)
        return 2
    if arguments.quick:
        workloads.REDIS_REQUESTS = real.QUICK_REDIS_REQUESTS
    suite = Suite(arguments)
    os.makedirs(suite.work, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=suite.work, prefix="suite-traces-") as traces:
        measured = suite.all(programs, traces)
    for path in suite.write(arguments.results):
        print(path)
    if not measured:
        return 2
    return 1 if suite.result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
