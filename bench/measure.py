"""One run of one command under one tool, measured so that the tool's own processes are told apart.

    plain      self_rusage OUT -- CMD
    skinflint  skinflint record -o self.sft -- self_rusage OUT -- CMD      trace: skinflint.NAME.PID.sft
    heaptrack  self_rusage OUT -e LD_PRELOAD=… -- CMD  ──fifo──► interpret ──► zstd   (as its script does)

R1  `cpu_s` and `max_rss_kb` are wait4's for the program alone, by its own parent (self_rusage.c says why);
    `tree_cpu_s` is that of everything that was started.
R2  skinflint must be the program's ancestor and follow fork and exec to reach it, so the wrapper is recorded
    too, as a process of its own; its trace is not counted. heaptrack forgets its preload in children,
    hence the wrapper stands outside of it.
R3  Every wait is bounded; what is still alive at the limit is killed by its process group, which is ours.
"""
import contextlib
import dataclasses
import glob
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import workloads

ROOT = os.path.dirname(workloads.HERE)
LIMIT_S = 600


@dataclasses.dataclass
class Run:
    """What one run cost and produced."""
    status: int
    digest: str
    cpu_s: float
    tree_cpu_s: float
    wall_s: float
    max_rss_kb: int
    faults: int
    trace: str = ""
    trace_bytes: int = 0


class Failed(Exception):
    """The tool, not the program, went wrong; the message says what and where."""


@dataclasses.dataclass
class Bench:
    """Where things are: the recorder's binary, the generated inputs, the scratch folder."""
    skinflint: str
    work: str

    @property
    def inputs(self):
        return os.path.join(self.work, "inputs")

    def tool(self, name):
        """A small C or C++ program of this folder, compiled once per change."""
        source = os.path.join(workloads.HERE, name + ".c")
        compiler = ["gcc"]
        if not os.path.exists(source):
            source, compiler = source + "pp", ["g++", "-std=c++17", "-pthread"]
        binary = os.path.join(self.work, name)
        if not os.path.exists(binary) or os.path.getmtime(binary) < os.path.getmtime(source):
            os.makedirs(self.work, exist_ok=True)
            subprocess.run([*compiler, "-O2", "-Wall", "-Wextra", "-o", binary, source], check=True, timeout=300)
        return binary

    def scratch(self):
        os.makedirs(self.work, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=self.work, prefix="run-")

    def need_skinflint(self):
        """Raises with the next step if the recorder is not built."""
        record_so = os.path.join(os.path.dirname(self.skinflint), "libskinflint_record.so")
        for path in (self.skinflint, record_so):
            if not os.path.exists(path):
                raise Failed(f"{path} does not exist; run: cargo build --release")


def add_arguments(parser):
    """The options that every bench of this folder has."""
    default = os.path.join(ROOT, "target", "release", "skinflint")
    parser.add_argument("--skinflint", default=default, metavar="FILE", help="the binary (default: target/release)")
    parser.add_argument("--work", default=os.path.join(ROOT, "target", "bench"), metavar="DIR",
                        help="inputs and scratch files (default: target/bench)")


def bench_of(arguments):
    return Bench(os.path.abspath(arguments.skinflint), os.path.abspath(arguments.work))


def prepared(tool, arguments):
    """The bench with its folder and a recorder that is built; else None, and the next step is printed."""
    bench = bench_of(arguments)
    os.makedirs(bench.work, exist_ok=True)
    try:
        bench.need_skinflint()
    except Failed as error:
        print(f"{tool}: {error}", file=sys.stderr)
        return None
    return bench


def picked(parser, asked, there):
    """The programs that are asked for, or all that there are; ends with an error that names one that is not there."""
    unknown = [name for name in asked if name not in there]
    if unknown:
        parser.error(f"no program {', '.join(unknown)}; there are {', '.join(there)}")
    return {name: there[name] for name in asked or there}


def is_installed(tools, packages):
    """Whether tools are in PATH; prints those that are not, and what installs them."""
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        print(f"not there: {', '.join(missing)} ({packages})", file=sys.stderr)
    return not missing


def heaptrack_parts():
    """(preload library, interpreter) of an installed heaptrack, or None."""
    script = shutil.which("heaptrack")
    if not script:
        return None
    base = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(script))), "lib", "heaptrack")
    parts = (os.path.join(base, "libheaptrack_preload.so"), os.path.join(base, "libexec", "heaptrack_interpret"))
    return parts if all(os.path.exists(part) for part in parts) else None


@contextlib.contextmanager
def heaptrack_pipeline(scratch):
    """The two processes behind heaptrack's preload; yields (variables for the program, processes)."""
    parts = heaptrack_parts()
    if parts is None:
        raise Failed("heaptrack is not installed (apt-get install heaptrack)")
    fifo = os.path.join(scratch, "heaptrack.fifo")
    os.mkfifo(fifo)
    # Opened for both directions, so that neither side waits for ever if the other never comes.
    keep = os.open(fifo, os.O_RDWR)
    reader = os.open(fifo, os.O_RDONLY)
    interpret = subprocess.Popen([parts[1]], stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with open(os.path.join(scratch, "heaptrack.zst"), "wb") as trace:
        zstd = subprocess.Popen(["zstd", "-c", "-q"], stdin=interpret.stdout, stdout=trace)
    interpret.stdout.close()
    os.close(reader)
    try:
        yield ["-e", f"LD_PRELOAD={parts[0]}", "-e", f"DUMP_HEAPTRACK_OUTPUT={fifo}"]
    finally:
        os.close(keep)
        finish(interpret)
        finish(zstd)


def finish(process, limit_s=LIMIT_S):
    try:
        process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def reap(process, limit_s=LIMIT_S):
    """Waits for the child; returns (status, seconds of wall)."""
    start = time.monotonic()
    try:
        status = process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise Failed(f"still running after {limit_s} s; killed") from None
    return status, time.monotonic() - start


def children_cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start(bench, workload, command, scratch, port):
    """Starts the command in its scratch folder, in a process group of its own; returns (process, driven bytes)."""
    with open(workload.stdin_path(bench.inputs), "rb") as stdin, \
            open(os.path.join(scratch, "stdout"), "wb") as stdout, \
            open(os.path.join(scratch, "stderr"), "wb") as stderr:
        process = subprocess.Popen(command, cwd=scratch, env=workloads.ENVIRONMENT, stdin=stdin, stdout=stdout,
                                   stderr=stderr, start_new_session=True)
    driven = b""
    if workload.drive:
        try:
            driven = workload.drive(port, bench.inputs, lambda: process.poll() is None)
        except (RuntimeError, subprocess.SubprocessError) as error:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Failed(f"{workload.name}: {error}\n{tail(scratch)}") from None
    return process, driven


def tail(scratch, lines=6):
    with open(os.path.join(scratch, "stderr"), errors="replace") as stderr:
        return "".join("    stderr: " + line for line in stderr.readlines()[-lines:])


def run(bench, workload, mode, keep_trace=None):
    """One run. The trace is moved to `keep_trace` if that is given.

    Raises Failed if the tool left no measurement or no trace."""
    port = workloads.free_port() if workload.drive else 0
    with bench.scratch() as scratch:
        measured = os.path.join(scratch, "rusage.json")
        wrapper = [bench.tool("self_rusage"), measured]
        command = ["--"] + workload.arguments(bench.inputs, port)
        before = children_cpu_s()
        started = time.monotonic()
        if mode == "heaptrack":
            with heaptrack_pipeline(scratch) as preload:
                process, driven = start(bench, workload, wrapper + preload + command, scratch, port)
                status, _ = reap(process)
        elif mode == "skinflint":
            record = [bench.skinflint, "record", "-o", os.path.join(scratch, "self.sft"), "--"]
            process, driven = start(bench, workload, record + wrapper + command, scratch, port)
            status, _ = reap(process)
        else:
            process, driven = start(bench, workload, wrapper + command, scratch, port)
            status, _ = reap(process)
        wall = time.monotonic() - started
        # redis-benchmark's own CPU is in here too, in every mode alike.
        tree = children_cpu_s() - before
        result = collect(workload, mode, scratch, status, driven, tree, wall)
        if mode == "skinflint":
            attach_trace(result, scratch, read_rusage(scratch)["pid"], keep_trace)
        elif mode == "heaptrack":
            result.trace_bytes = os.path.getsize(os.path.join(scratch, "heaptrack.zst"))
        return result


def read_rusage(scratch):
    try:
        with open(os.path.join(scratch, "rusage.json")) as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Failed(f"no measurement of the program was left ({error})\n{tail(scratch)}") from None


def collect(workload, mode, scratch, status, driven, tree, wall):
    use = read_rusage(scratch)
    seen = use["status"] if use["status"] >= 0 else 128 - use["status"]
    if status != seen:
        raise Failed(f"{mode}: the program ended with {seen}, the tool with {status}\n{tail(scratch)}")
    try:
        hashed = workloads.digest(workload, os.path.join(scratch, "stdout"), driven, scratch)
    except OSError as error:
        raise Failed(f"{mode}: {workload.name} did not write its output ({error})\n{tail(scratch)}") from None
    return Run(status=use["status"], digest=hashed, cpu_s=(use["user_us"] + use["sys_us"]) / 1e6, tree_cpu_s=tree,
               wall_s=wall, max_rss_kb=use["max_rss_kb"], faults=use["minor_faults"])


def attach_trace(result, scratch, pid, keep_trace):
    """Finds the program's own trace beside the wrapper's (R2)."""
    found = glob.glob(os.path.join(scratch, f"*.{pid}.sft"))
    if not found:
        there = sorted(os.path.basename(path) for path in glob.glob(os.path.join(scratch, "*.sft")))
        raise Failed(f"no trace of process {pid}: fork and exec were not followed (traces: {there})\n{tail(scratch)}")
    path = max(found, key=os.path.getsize)
    result.trace_bytes = os.path.getsize(path)
    if keep_trace:
        os.makedirs(os.path.dirname(keep_trace), exist_ok=True)
        shutil.move(path, keep_trace)
        result.trace = keep_trace


def report(bench, trace, limit_s=LIMIT_S):
    """`skinflint report --json` of a trace: (the report, CPU seconds, wall seconds, peak kB of the analyser)."""
    with bench.scratch() as scratch:
        measured = os.path.join(scratch, "rusage.json")
        command = [bench.tool("self_rusage"), measured, "--", bench.skinflint, "report", trace, "--json"]
        with open(os.path.join(scratch, "stdout"), "wb") as out, open(os.path.join(scratch, "stderr"), "wb") as err:
            process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
            status, wall = reap(process, limit_s)
        if status != 0:
            raise Failed(f"skinflint report {trace}: exit {status}\n{tail(scratch)}")
        use = read_rusage(scratch)
        with open(os.path.join(scratch, "stdout")) as printed:
            try:
                parsed = json.load(printed)
            except ValueError as error:
                raise Failed(f"skinflint report {trace} --json printed no JSON: {error}") from None
        return parsed, (use["user_us"] + use["sys_us"]) / 1e6, wall, use["max_rss_kb"]
