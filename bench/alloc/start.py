"""Start-up, forks, and the instructions of the fast path.

    nothing ──► RSS        /bin/true × 200 ──► CPU, paired with glibc's        forks ──► CPU and wall
    pair48, pair48-held, pair-null: N and 2N pairs under callgrind ──► instructions of a malloc and a free

B1  /bin/true and forks are measured in pairs, the C library's malloc and another's in turn, and compared by the
    median of the pairs' ratios: what else the machine does falls on both.
    A library that holds nothing takes part: below what its preloading costs no preloaded allocator can come.
B2  `…_noise` is half the distance between the quartiles of the pairs' ratios, over the square root of their number:
    a ratio that is above its bar by less than that is not called missed.
B3  callgrind counts the same on every machine and at any load. What start-up costs goes out with the difference of
    two lengths, and the loop with pair-null: what is left is executed inside malloc(48) and free.
"""
import json
import os
import re
import shutil
import signal
import statistics
import subprocess

import idle
import judge
import measure
import peers
import speed

BATCH, BATCHES = 20, 10
EMPTY = judge.NO_ALLOCATOR
# How much of a library the kernel maps at a fault depends on where it loads it: one run says up to 200 KiB more or less.
NOTHINGS = 9
# Patterns that keep the purger at work, and how much longer than usual they run: about two seconds each.
BUSY = {"rand2k": 10, "rand100k": 10}


def run(command, environment, limit_s=120):
    """What the command printed. At the limit it is killed with all its children."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, error = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise measure.Failed(f"{command[0]}: still running after {limit_s} s; killed") from None
    if process.returncode or "cannot be preloaded" in error:
        raise measure.Failed(f"{command[0]} ended with {process.returncode}: {out.strip()} {error.strip()[-300:]}")
    return out


def nothing_rss_kb(bench, allocator):
    out = run([idle.compiled(bench, "nothing")], speed.environment(allocator))
    return int(re.search(r"Rss:\s+(\d+)", out).group(1))


def true_cpu(allocator):
    """CPU seconds of a batch of /bin/true, each started by posix_spawn and waited for."""
    total = 0.0
    environment = speed.environment(allocator)
    for _ in range(BATCH):
        pid = os.posix_spawn("/bin/true", ["/bin/true"], environment)
        _, status, used = os.wait4(pid, 0)
        if status:
            raise measure.Failed(f"/bin/true ended with status {status}")
        total += used.ru_utime + used.ru_stime
    return total


def forks(bench, allocator, count):
    return json.loads(run([idle.compiled(bench, "forks", "-pthread"), str(count)], speed.environment(allocator)))


def paired(part, sample, allocators, rounds, failed):
    """{allocator: [figures]}: in each round each allocator once, the order turning (B1). One that fails once is left out."""
    out = {allocator.name: [] for allocator in allocators}
    for number in range(rounds):
        for allocator in speed.turned(allocators, number):
            if (part, allocator.name) in failed:
                continue
            try:
                out[allocator.name].append(sample(allocator))
            except (measure.Failed, OSError, ValueError) as error:
                failed[part, allocator.name] = str(error)
    return {name: figures for name, figures in out.items() if (part, name) not in failed}


def compare(samples, name):
    """(median of the figures, median of the pairs' ratios to glibc, its noise)"""
    own = samples[name]
    ratios = sorted(a / b for a, b in zip(own, samples.get("glibc", own)) if b)
    noise = 0.0
    if len(ratios) >= 4:
        low, _, high = statistics.quantiles(ratios, n=4)
        noise = (high - low) / 2 / len(ratios) ** 0.5
    return statistics.median(own), statistics.median(ratios), noise


# Of pair-null's own instructions, those in its two functions; and the jumps through the procedure linkage table.
NULL_OWN, LINKAGE = 3, 2


def counted(bench, allocator, pattern):
    """Instructions per turn of a pattern's loop, by callgrind."""
    counts = []
    for turns in (20_000, 40_000):
        with bench.scratch() as scratch:
            out = os.path.join(scratch, "callgrind.out")
            run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", speed.pattern_binary(bench), pattern, str(turns)],
                speed.environment(allocator), 300)
            with open(out) as file:
                found = re.search(r"^(?:totals|summary): (\d+)", file.read(), re.M)
            if not found:
                raise measure.Failed("callgrind left no count")
            counts.append(int(found.group(1)))
    return (counts[1] - counts[0]) / 20_000


def instructions(bench, allocator):
    """Instructions of one malloc(48) and one free (B3): alone, and beside other blocks of the size."""
    if not shutil.which("valgrind"):
        raise measure.Failed("valgrind is not installed; run: apt-get install -y valgrind")
    if allocator.environment:
        raise measure.Failed("valgrind has no restartable sequences: its count would be of the slow path")
    loop = counted(bench, allocator, "pair-null") - NULL_OWN + LINKAGE
    return {"pair_instructions": counted(bench, allocator, "pair48") - loop,
            "held_instructions": counted(bench, allocator, "pair48-held") - loop}


def purger_share(bench, allocator, pattern):
    """The background thread's share of the CPU time of a busy program, by the library's own account at exit."""
    scale = next(scale for name, _, scale, _ in speed.patterns(bench) if name == pattern) * BUSY[pattern]
    done = subprocess.run([speed.pattern_binary(bench), pattern, str(scale)], stdin=subprocess.DEVNULL, text=True, timeout=120,
                          capture_output=True, env=dict(speed.environment(allocator), SKINFLINT_STATS="1"))
    lines = [line for line in done.stderr.splitlines() if '"purger_cpu_ns"' in line]
    if done.returncode or not lines:
        raise measure.Failed(f"{pattern} ended with {done.returncode}, no account of the purger: {done.stderr.strip()[-300:]}")
    spent = json.loads(lines[-1])["total"]
    if not spent["purger_passes"]:
        raise measure.Failed(f"{pattern}: the purger did not run")
    return spent["purger_cpu_ns"] / json.loads(done.stdout.splitlines()[-1])["cpu_ns"]


def rows(bench, allocators, quick):
    """{allocator: figures}, {(part, allocator): reason}"""
    failed = {}
    held = paired("nothing", lambda allocator: nothing_rss_kb(bench, allocator), allocators, NOTHINGS, failed)
    empty = peers.Allocator(EMPTY, "", idle.compiled(bench, "empty", "-shared", "-fPIC"), "programs/empty.c")
    batches = paired("true", true_cpu, [*allocators, empty], BATCHES, failed)
    fork_runs = paired("forks", lambda allocator: forks(bench, allocator, 300), allocators, 2 if quick else 8, failed)
    ours = [allocator for allocator in allocators if allocator.name.startswith("skinflint")]
    shares = paired("purger", lambda allocator: max(purger_share(bench, allocator, name) for name in BUSY), ours, 1, failed)
    counts = paired("callgrind", lambda allocator: instructions(bench, allocator), allocators, 1, failed)
    out = {}
    for name in (allocator.name for allocator in [*allocators, empty]):
        row = out[name] = {}
        if name in held:
            row["rss_kb"] = statistics.median(held[name])
        if name in batches:
            seconds, row["true_cpu"], row["true_cpu_noise"] = compare(batches, name)
            row["true_ms"] = seconds / BATCH * 1000
        for key in ("cpu", "wall") if name in fork_runs else ():
            samples = {other: [line[key] for line in lines] for other, lines in fork_runs.items()}
            row[f"forks_{key}_s"], row[f"forks_{key}"], row[f"forks_{key}_noise"] = compare(samples, name)
        row.update(counts[name][0] if name in counts else {})
        if name in shares:
            row["purger_share"] = shares[name][0]
    return out, failed


COLUMNS = (("rss_kb", "RSS KiB", 0), ("true_ms", "true ms", 3), ("true_cpu", "× glibc", 3), ("true_cpu_noise", "noise", 3),
           ("forks_cpu_s", "forks CPU s", 3), ("forks_cpu", "× glibc", 3), ("forks_wall_s", "forks wall s", 3),
           ("forks_wall", "× glibc", 3), ("pair_instructions", "instructions", 1), ("held_instructions", "beside 20", 1))


def table(rows_of, names):
    out = ["Start-up: RSS of a program that does nothing; /bin/true, CPU each; 300 forks of a process whose four threads allocate; "
           "instructions inside malloc(48) and free"]
    out.append(f"{'':12}" + "".join(f"{title:>14}" for _, title, _ in COLUMNS))
    for name in (name for name in [*names, EMPTY] if name in rows_of):
        out.append(f"{name:12}" + "".join(f"{judge.said(rows_of[name].get(key), digits):>14}" for key, _, digits in COLUMNS))
    return "\n".join(out)
