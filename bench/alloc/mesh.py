"""What stays below the page floor when the kernel merges pages: PSS of `scattered` and of Redis with meshing, without, and
without it but with every page offered to the kernel.

    scattered: blocks of seeded contents, some stay ──► rest until PSS stands still ──► checked, read, written, checked
    redis: 200,000 values, four fifths deleted      ──► the same                    ──► every value that lives is right
    plain      pages as they are                 offered    the same, but MERGEABLE: what is equal by chance
    meshed     free slots filled with partners' bytes

    sudo python3 bench/alloc/mesh.py                       # turns /sys/kernel/mm/ksm on, and back as it was
    sudo python3 bench/alloc/mesh.py --sizes 256 --kept 20 --mib 100 --no-redis
    sudo python3 bench/alloc/mesh.py --restless 3600       # contents checked in restless threads, for so many seconds
    sudo python3 bench/alloc/mesh.py --restless 600 --forks 10000

D1  PSS is Pss of /proc/PID/smaps_rollup, as it stands when it has not changed by a hundredth for five looks, less the
    program's own list of blocks. The floor is the pages that have a byte of a live block.
D2  Only one process at a time offers its pages, so that none merges with another's. Contents come from the seed.
D3  Times are of the processor, not of the clock, and are the program's: `read` is the ratio of reading all blocks, medians of
    pairs that alternate between the plain process and the meshed one; `write` is what writing every block once takes more
    than in the plain one, for each page that was merged; `copy` what the kernel takes for a page that a forked child writes:
    the same copy, made for another reason. `ksmd` is the kernel's thread, from the start until PSS stands still.
D4  `restless` runs with the kernel's thread at work without a pause, and pages looked at in every scan. It is no proof
    unless pages were merged meanwhile.
"""
import argparse
import contextlib
import ctypes
import dataclasses
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import idle  # noqa: E402
import measure  # noqa: E402
import peers  # noqa: E402
import speed  # noqa: E402

KSM = "/sys/kernel/mm/ksm"
SET_MEMORY_MERGE = 67
WAYS = {"plain": "off", "offered": "off", "meshed": "on"}
LONGEST_S = 120
PAIRS = 15
MIB = 1024 * 1024


def ksm(name, value=None):
    path = os.path.join(KSM, name)
    if value is not None:
        with open(path, "w", encoding="ascii") as file:
            file.write(str(value))
    with open(path, encoding="ascii") as file:
        return file.read().strip()


@contextlib.contextmanager
def merging(**settings):
    """KSM on, with settings; afterwards as it was."""
    known = {name: value for name, value in settings.items() if os.path.exists(os.path.join(KSM, name))}
    before = {name: ksm(name) for name in (*known, "run")}
    try:
        for name, value in known.items():
            ksm(name, value)
        ksm("run", 1)
        yield
    finally:
        for name, value in before.items():
            ksm(name, value)


def ksmd_s():
    """CPU seconds of the kernel's thread so far."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if name == "ksmd":
            fields = rest.split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def rollup(pid):
    """{name: KiB}"""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        lines = [line.split() for line in file if line.endswith("kB\n")]
    return {words[0].rstrip(":"): int(words[1]) for words in lines}


def ksm_of(pid):
    """{name: word} of /proc/PID/ksm_stat."""
    with open(f"/proc/{pid}/ksm_stat", encoding="ascii") as file:
        return {line.split()[0].rstrip(":"): line.split()[1] for line in file}


def at_rest(pid):
    """PSS in bytes once it stands still, and the seconds until then."""
    begin, last, same = time.monotonic(), 0, 0
    while True:
        time.sleep(1)
        now = rollup(pid)["Pss"]
        waited = time.monotonic() - begin
        same = same + 1 if abs(now - last) * 100 <= now else 0
        last = now
        # The purger waits for some quiet ticks before it meshes.
        if same >= 5 and waited > 15:
            return now * 1024, waited
        if waited > LONGEST_S:
            raise measure.Failed(f"PSS did not stand still within {LONGEST_S} s")


@contextlib.contextmanager
def offering(way):
    """What is started within offers all of its memory to the kernel, if that is the way: children inherit it."""
    prctl = ctypes.CDLL(None).prctl
    if way == "offered" and prctl(SET_MEMORY_MERGE, 1, 0, 0, 0) != 0:
        raise measure.Failed("this kernel (before 6.4) cannot be told to merge all of a process's pages")
    try:
        yield
    finally:
        if way == "offered":
            prctl(SET_MEMORY_MERGE, 0, 0, 0, 0)


@dataclasses.dataclass
class Found:
    """What one way came to, in bytes and seconds."""
    pss: int
    seconds: float
    ksmd: float
    merged_pages: int


def rested(pid, way, ksmd_before):
    pss, seconds = at_rest(pid)
    stat = ksm_of(pid)
    if (stat["ksm_merge_any"] == "yes") != (way == "offered"):
        raise measure.Failed(f"{way}: ksm_merge_any is {stat['ksm_merge_any']}")
    return Found(pss, seconds, ksmd_s() - ksmd_before, int(stat["ksm_merging_pages"]))


class Scattered:
    """A run of `scattered` one way, until it rests."""

    def __init__(self, command, allocator, way):
        environment = dict(speed.environment(allocator, command[0]), SKINFLINT_MESH=WAYS[way])
        ksmd = ksmd_s()
        with offering(way):
            self.program = idle.Program(command, environment, silent=False)
        try:
            words = self.program.expect(None).split()
            if words[:1] != ["live"]:
                raise measure.Failed(f"said {words} instead of live")
            self.live, self.floor, self.list = (int(word) for word in words[1::2])
            self.found = rested(self.program.process.pid, way, ksmd)
            self.found.pss -= self.list
            self.program.ask("c", "same")
        except BaseException:
            self.program.end()
            raise

    def ns(self, letter):
        return int(self.program.ask(letter).split()[1])

    def copy_us(self):
        """The kernel's copy of a page that a child writes."""
        words = self.program.ask("f").split()
        return int(words[1]) / int(words[2]) / 1000


def scattered_row(binary, allocator, options, size, kept):
    command = [binary, str(size), str(options.mib), str(kept), str(options.seed)]
    with contextlib.ExitStack() as stack:
        plain = Scattered(command, allocator, "plain")
        stack.callback(plain.program.end)
        offered = Scattered(command, allocator, "offered")
        offered.program.end()
        meshed = Scattered(command, allocator, "meshed")
        stack.callback(meshed.program.end)
        reads = {plain: [], meshed: []}
        for _ in range(PAIRS):
            for which, times in reads.items():
                times.append(which.ns("r"))
        read = statistics.median(reads[meshed]) / statistics.median(reads[plain])
        merged = ksm_of(meshed.program.process.pid)["ksm_merging_pages"]
        usual = plain.ns("w")
        write = (meshed.ns("w") - usual) / max(int(merged), 1) / 1000
        copy = plain.copy_us()
    row = {"name": f"{size or 'mixed'}", "kept": f"{kept} %", "live": plain.live, "floor": meshed.floor,
           "plain": plain.found, "offered": offered.found, "meshed": meshed.found, "read": read, "write": write, "copy": copy}
    show(row)
    return row


def redis_row(bench, allocator):
    """The data set of `idle`; every value that lives is looked up at the end."""
    usual = idle.WORKLOADS["redis-idle"]
    counted = idle.count_floor(bench, usual, allocator, contextlib.nullcontext())
    row = {"name": "redis", "kept": "20 %", "live": counted["live_kb"] * 1024, "floor": counted["floor_kb"] * 1024}
    for way in WAYS:
        ksmd = ksmd_s()
        with offering(way):
            workload = dataclasses.replace(usual, environment={"SKINFLINT_MESH": WAYS[way]})
            program, redis = idle.started(bench, workload, allocator, None)
        try:
            row[way] = rested(program.process.pid, way, ksmd)
            if not redis.right():
                raise measure.Failed(f"redis, {way}: a value that lives is wrong")
        finally:
            redis.close()
            program.kill()
            program.end()
    show(row)
    return row


def restless(binary, allocator, options):
    """Threads of which some work while others rest, with their contents checked; `True`: all were right, with pages merged."""
    environment = dict(speed.environment(allocator, binary), SKINFLINT_MESH="on")
    command = [binary, str(options.restless), str(options.forks), str(options.seed)]
    seen = []
    with merging(pages_to_scan=100_000, sleep_millisecs=0, smart_scan=0):
        ksmd = ksmd_s()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        while process.poll() is None:
            time.sleep(1)
            with contextlib.suppress(OSError, KeyError, ValueError):
                seen.append(int(ksm_of(process.pid)["ksm_merging_pages"]))
        said = process.stdout.read().strip()
    seen = seen or [0]
    print(f"{said}; status {process.returncode}; pages merged: {statistics.mean(seen):.0f} on average, {max(seen)} at most; "
          f"ksmd {ksmd_s() - ksmd:.0f} CPU seconds")
    words = said.split()
    ended = process.returncode == 0 and words[:1] == ["same"] and (not options.forks or int(words[3]) == options.forks)
    return ended and max(seen) >= 1000


def show(row):
    times = "".join(f"{row[name]:>7.2f}" if name in row else f"{'-':>7}" for name in ("read", "write", "copy"))
    print(f"{row['name']:>6}{row['kept']:>7}{row['live'] / MIB:>8.1f}{row['floor'] / MIB:>8.1f}"
          + "".join(f"{row[way].pss / MIB:>9.1f}" for way in WAYS)
          + f"{row['meshed'].pss / row['floor']:>8.2f}{row['meshed'].seconds:>6.0f}{row['meshed'].ksmd:>6.2f}" + times,
          flush=True)


def verdict(rows):
    """Prints the bars; `True`: all hold."""
    bars = []

    def bar(what, value, most):
        bars.append(value <= most)
        print(f"{what}: {value:.2f}, bar {most}: {'held' if value <= most else 'MISSED'}")
    bar("PSS to the floor, geometric mean", statistics.geometric_mean(row["meshed"].pss / row["floor"] for row in rows), 0.65)
    offered = statistics.geometric_mean(row["offered"].pss / row["plain"].pss for row in rows)
    bar("gain by chance, offered without filling, per cent", (1 - offered) * 100, 2)
    for row in rows:
        if row["name"] == "redis":
            bar("Redis, MiB of PSS", row["meshed"].pss / MIB, 95)
    timed = [row for row in rows if "read" in row]
    if timed:
        bar("reading, the slowest row to plain", max(row["read"] for row in timed), 1.03)
        bar("writing, microseconds more for a merged page, median", statistics.median(row["write"] for row in timed), 1.3)
        print(f"    the kernel's own copy of a page in a forked child, median: {statistics.median(row['copy'] for row in timed):.2f}")
    return all(bars)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="64,256,1024,0", metavar="A,B", help="bytes of a block; 0: 16 to 1,024")
    parser.add_argument("--kept", default="10,20,40", metavar="A,B", help="per cent of the blocks that stay")
    parser.add_argument("--mib", type=int, default=100, help="MiB of blocks (default: 100)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--restless", type=int, metavar="SECONDS", help="only: contents checked in threads that do not rest")
    parser.add_argument("--forks", type=int, default=0, metavar="N", help="with --restless: ends after N children, all checked")
    parser.add_argument("--no-redis", action="store_true", help="without the row of Redis")
    parser.add_argument("--work", default=os.path.join(peers.ROOT, "target", "bench"), metavar="DIR")
    options = parser.parse_args()
    if not os.access(os.path.join(KSM, "run"), os.W_OK):
        print(f"{KSM}/run cannot be written: run as root, on a kernel with same-page merging", file=sys.stderr)
        return 2
    bench = measure.Bench("", os.path.abspath(options.work))
    have, absent = peers.gather(["skinflint"], os.path.join(bench.work, "alloc"))
    if absent:
        print(f"skinflint is absent: {absent}", file=sys.stderr)
        return 2
    if options.restless:
        return 0 if restless(idle.compiled(bench, "restless"), have[0], options) else 1
    binary = idle.compiled(bench, "scattered")
    rows = []
    with merging(pages_to_scan=2000, sleep_millisecs=20):
        print(f"Linux {os.uname().release}, pages_to_scan 2000, seed {options.seed}; MiB; ksmd: CPU seconds; read: to plain; "
              "write, copy: microseconds a page")
        print(f"{'bytes':>6}{'kept':>7}{'live':>8}{'floor':>8}" + "".join(f"{way:>9}" for way in WAYS)
              + f"{'/floor':>8}{'s':>6}{'ksmd':>6}{'read':>7}{'write':>7}{'copy':>7}", flush=True)
        for size in filter(None, options.sizes.split(",")):
            for kept in options.kept.split(","):
                rows.append(scattered_row(binary, have[0], options, int(size), int(kept)))
        if not options.no_redis:
            rows.append(redis_row(bench, have[0]))
    return 0 if verdict(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
