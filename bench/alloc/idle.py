"""What is still held when a program has dropped most of its heap and does nothing more.

    start ──► "dropped": RSS ──► 12 s (redis 30 s) ──► RSS, CPU spent meanwhile ──► malloc_trim ──► RSS ──► floor

K1  RSS is Rss of /proc/PID/smaps_rollup, of the whole process, less the harness's own list of blocks (idle.c, H4).
K2  The page floor is the number of distinct 4 KiB pages that hold a live heap byte under that allocator: counted by
    the C programs themselves, and for python and redis by floor.so in a run of its own. Nothing that neither moves
    nor meshes objects can go below it. Floors of a library that has not changed are kept.
K3  Busy phases run one at a time; idle ones overlap: an idle process does not disturb another's memory.
K4  Every byte that lives is checked at the end: what was given back too early is seen.
"""
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time

import inputs
import judge
import measure
import real
import speed
import workloads

IDLE_S, REDIS_IDLE_S, LIMIT_S = 12, 30, 300
# So many processes stand idle at once: each holds up to 750 MiB under the allocators that give nothing back.
ALIVE = 10
KEYS, HASHES, DELETED = 200_000, 10_000, 0.8


@dataclasses.dataclass
class Workload:
    """One idle workload. `own_floor`: the program counts its own page floor."""
    command: list
    own_floor: bool = False
    environment: dict = dataclasses.field(default_factory=dict)
    idle_s: int = IDLE_S


def objects(malloc):
    return Workload(["/usr/bin/python3", os.path.join(real.PROGRAMS, "idle_objects.py")], environment={"PYTHONMALLOC": malloc})


WORKLOADS = {
    "frag1": Workload(["{idle}", "frag1"], own_floor=True),
    "prodcons": Workload(["{idle}", "prodcons"], own_floor=True),
    "thrchurn": Workload(["{idle}", "thrchurn"], own_floor=True),
    "pyfrag": objects("pymalloc"),
    "pyfragm": objects("malloc"),
    "redis-idle": Workload(["/usr/bin/redis-server", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize",
                       "no", "--port", "{port}"], idle_s=REDIS_IDLE_S),
}


def compiled(bench, name, *options):
    """A program of this folder, compiled when it is newer."""
    source = os.path.join(real.PROGRAMS, name + ".c")
    binary = os.path.join(bench.work, "alloc", name + (".so" if "-shared" in options else ""))
    if not os.path.exists(binary) or os.path.getmtime(binary) < os.path.getmtime(source):
        os.makedirs(os.path.dirname(binary), exist_ok=True)
        subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-std=gnu11", *options, "-o", binary, source, "-lpthread", "-ldl"],
                       check=True, timeout=120)
    return binary


def floor_library(bench):
    return compiled(bench, "floor", "-shared", "-fPIC", "-fno-builtin")


def status_kb(pid, field, name="status"):
    with open(f"/proc/{pid}/{name}") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    raise measure.Failed(f"/proc/{pid}/{name} has no {field}")


def rss_kb(pid):
    return status_kb(pid, "Rss", "smaps_rollup")


def cpu_ns(pid):
    """CPU of the process with all its threads, those that have ended too: its clock, as clock_getcpuclockid names it."""
    return time.clock_gettime_ns((~pid << 3) | 2)


class Program:
    """A running idle workload: what is said to it and what it answers, every wait bounded."""

    def __init__(self, command, environment, silent):
        streams = subprocess.DEVNULL if silent else subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdin=streams, stdout=streams, stderr=streams,
                                        start_new_session=True)
        self.timer = threading.Timer(LIMIT_S, self.kill)
        self.timer.start()

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def expect(self, wanted):
        line = self.process.stdout.readline().decode()
        if wanted and line.strip() != wanted:
            self.kill()
            error = self.process.stderr.read().decode(errors="replace")[-300:]
            raise measure.Failed(f"said {line.strip()!r} instead of {wanted}, ended with {self.process.wait()}: {error}")
        return line

    def ask(self, word, wanted=None):
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()
        return self.expect(wanted)

    def end(self):
        self.timer.cancel()
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


class Redis:
    """The data set, the same for every allocator: what is sent follows from the seed."""

    def __init__(self, port):
        self.rng = random.Random(inputs.SEED)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.reader = self.socket.makefile("rb")
        self.sizes = {}

    @staticmethod
    def packed(*words):
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)

    def value(self, number, size):
        return (b"%08x" % (number * 2654435761 % (1 << 32)) * (size // 8 + 1))[:size]

    def send(self, commands):
        """In batches of 500, the answers read in between; an error stops the run."""
        batch = []
        for command in commands:
            batch.append(self.packed(*command))
            if len(batch) == 500:
                self.flush(batch)
        self.flush(batch)

    def flush(self, batch):
        self.socket.sendall(b"".join(batch))
        for _ in batch:
            line = self.reader.readline()
            if line[:1] not in b"+:":
                raise measure.Failed(f"redis answered {line[:80]!r}")
        batch.clear()

    def sets(self):
        for number in range(KEYS):
            self.sizes[number] = int(16 * 512 ** self.rng.random())
            yield b"SET", b"key:%d" % number, self.value(number, self.sizes[number])

    def hashes(self):
        for number in range(HASHES):
            words = [b"HSET", b"hash:%d" % number]
            for field in range(10):
                words += [b"field:%d" % field, self.value(field, self.rng.randrange(65, 200))]
            yield words

    def deletes(self):
        for name, count in ((b"key", KEYS), (b"hash", HASHES)):
            for number in range(count):
                if self.rng.random() < DELETED:
                    if name == b"key":
                        del self.sizes[number]
                    yield b"DEL", name + b":%d" % number

    def fill_and_delete(self):
        for commands in (self.sets(), self.hashes(), self.sets(), self.deletes()):
            self.send(commands)

    def right(self):
        """Whether every key that lives has its value."""
        for number, size in self.sizes.items():
            self.socket.sendall(self.packed(b"GET", b"key:%d" % number))
            if self.reader.readline() != b"$%d\r\n" % size or self.reader.read(size + 2)[:-2] != self.value(number, size):
                return False
        return True

    def close(self):
        self.reader.close()
        self.socket.close()


def started(bench, workload, allocator, extra):
    """(Program, Redis or None) with the heap built and dropped."""
    port = workloads.free_port()
    words = {"{idle}": lambda: compiled(bench, "idle", "-pthread"), "{port}": lambda: str(port)}
    command = [words[word]() if word in words else word for word in workload.command]
    environment = dict(speed.environment(allocator, command[0]), **workload.environment)
    if extra:
        before = environment.get("LD_PRELOAD")
        environment.update(extra, LD_PRELOAD=extra["LD_PRELOAD"] + (":" + before if before else ""))
    is_redis = command[0].endswith("redis-server")
    program = Program(command, environment, silent=is_redis)
    if is_redis:
        try:
            workloads.wait_for_redis(port, lambda: program.process.poll() is None)
            redis = Redis(port)
            redis.fill_and_delete()
        except (RuntimeError, OSError, measure.Failed) as error:
            program.kill()
            program.end()
            raise measure.Failed(f"redis-server: {error}") from None
        return program, redis
    try:
        program.expect("dropped")
    except measure.Failed:
        program.end()
        raise
    return program, None


def count_floor(bench, workload, allocator, busy):
    """K2: the floor in a run of its own, from outside (floor.so, floor_read)."""
    key = floor_key(bench, workload, allocator)
    path = os.path.join(bench.work, "alloc", "floors.json")
    with busy:
        known = load_floors(path)
        if key in known:
            return known[key]
        with bench.scratch() as scratch:
            table = os.path.join(scratch, "blocks")
            extra = {"LD_PRELOAD": floor_library(bench), "BENCH_FLOOR_FILE": table}
            program, redis = started(bench, workload, allocator, extra)
            try:
                out = subprocess.run([compiled(bench, "floor_read"), table, str(program.process.pid)],
                                     capture_output=True, text=True, timeout=60)
                if out.returncode:
                    raise measure.Failed(f"floor_read: {out.stderr.strip()}")
                found = json.loads(out.stdout)
            finally:
                if redis:
                    redis.close()
                    program.kill()
                program.end()
        known[key] = found
        with open(path, "w") as file:
            json.dump(known, file, indent=1)
    return found


def load_floors(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def floor_key(bench, workload, allocator):
    hashed = hashlib.sha256(repr((workload, KEYS, HASHES, DELETED)).encode())
    for path in (allocator.path or "/etc/debian_version", __file__, floor_library(bench), workload.command[-1]):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                hashed.update(file.read())
    return f"{allocator.name} {hashed.hexdigest()[:16]}"


def one(bench, workload, allocator, busy):
    """The figures of one workload under one allocator."""
    with busy:
        program, redis = started(bench, workload, allocator, None)
        pid = program.process.pid
        row = {"drop": rss_kb(pid), "peak": status_kb(pid, "VmHWM")}
        spent, since = cpu_ns(pid), time.monotonic()
    try:
        time.sleep(max(0.0, since + workload.idle_s - 2 - time.monotonic()))
        late = cpu_ns(pid)
        time.sleep(max(0.0, since + workload.idle_s - time.monotonic()))
        row["idle"] = rss_kb(pid)
        row["idle_cpu_ms"], row["late_cpu_ms"] = (cpu_ns(pid) - spent) / 1e6, (cpu_ns(pid) - late) / 1e6
        row["mapped_files"] = status_kb(pid, "RssFile")
        finish(workload, allocator, program, redis, row)
    finally:
        if redis:
            redis.close()
            program.kill()
        program.end()
    if not workload.own_floor:
        counted = count_floor(bench, workload, allocator, busy)
        row.update(floor=counted["floor_kb"], live=counted["live_kb"], own=0)
    for stage in ("drop", "peak", "idle", "trim"):
        if stage in row:
            row[stage] -= row["own"]
    return row


def finish(workload, allocator, program, redis, row):
    """malloc_trim, and the check of what lives (K4)."""
    pid = program.process.pid
    if redis:
        if not redis.right():
            raise measure.Failed("redis: a value that lives is wrong")
        return
    program.ask("trim", "trimmed")
    row["trim"] = rss_kb(pid)
    if not workload.own_floor:
        program.ask("check", "right")
        return
    said = program.ask("floor")
    if not said:
        program.expect("a floor")
    counted = json.loads(said)
    speed.check_malloc(allocator, counted["malloc"])
    row.update(floor=counted["floor_kb"], live=counted["live_kb"], own=counted["own_kb"])


def rows(bench, allocators, only=()):
    """{workload: {allocator: figures in KiB}}, {(workload, allocator): reason}"""
    picked = [name for name in WORKLOADS if not only or name in only]
    found, failed, busy = {}, {}, threading.Lock()

    def work(task):
        name, allocator = task
        try:
            found[name, allocator.name] = one(bench, WORKLOADS[name], allocator, busy)
        except (measure.Failed, OSError, ValueError, subprocess.SubprocessError) as error:
            failed[name, allocator.name] = str(error)
            return
        row = found[name, allocator.name]
        print(f"  {name:11} {allocator.name:11} {row['idle'] / 1024:7.1f} floor {row['floor'] / 1024:7.1f}", flush=True)
    compiled(bench, "idle", "-pthread")
    with concurrent.futures.ThreadPoolExecutor(ALIVE) as pool:
        list(pool.map(work, [(name, allocator) for name in picked for allocator in allocators]))
    return {name: {a.name: found[name, a.name] for a in allocators if (name, a.name) in found} for name in picked}, failed


def table(rows_of, names, subject):
    """For each workload every stage, then the means of RSS / floor."""
    out = ["Idle: RSS in MiB; floor = pages that hold a live byte; ÷floor = RSS while idle / floor; "
           "CPU = ms spent while idle (of those in the last 2 s)"]
    columns = ("live", "floor", "peak", "drop", "idle", "trim")
    for workload, row in rows_of.items():
        out.append(f"{workload:12}{'':12}" + "".join(f"{name:>8}" for name in columns) + f"{'÷floor':>8}{'trim÷':>8}{'files':>8}{'CPU':>14}")
        for name in (name for name in names if name in row):
            f = row[name]
            cells = "".join(f"{f[key] / 1024:8.1f}" if key in f else f"{'-':>8}" for key in columns)
            trim = f"{f['trim'] / f['floor']:8.2f}" if "trim" in f else f"{'-':>8}"
            spent = f"{f['idle_cpu_ms']:.0f} ({f['late_cpu_ms']:.2f})"
            out.append(f"{'':12}{name:12}{cells}{f['idle'] / f['floor']:8.2f}{trim}{f['mapped_files'] / 1024:8.1f}{spent:>14}")
    for stage, what in (("idle", "idle / floor"), ("trim", "after trim / floor")):
        ratios = ", ".join(f"{name} {judge.said(judge.idle_ratio(rows_of, name, stage)[0])}" for name in names)
        out.append(f"geometric mean of RSS {what}: {ratios}")
    floors = {w: min((f["floor"] for f in row.values()), default=None) for w, row in rows_of.items()}
    strict = {name: judge.geomean([rows_of[w][name]["idle"] / floors[w] for w in rows_of if name in rows_of[w]]) for name in names}
    out.append("the same while idle, to the lowest floor of any: " + ", ".join(f"{n} {judge.said(r)}" for n, r in strict.items()))
    return "\n".join(out)
