"""The real programs: those of bench/workloads.py and some that lean on malloc in other ways.

    workloads.WORKLOADS ─┐
    here: gs z3 gawk … ──┴──► Real(workload, probe, environment) ──► one run under one allocator ──► Cost

L1  CPU time and peak memory are wait4's, for the program alone, by its own parent (self_rusage.c). redis-server is
    driven from outside; its CPU is its own, and how fast it answers is not judged.
L2  Output and exit status equal those under the C library's malloc, or the row counts as failed.
L3  Where a program has an allocator of its own above malloc (python, php), it is switched off.
"""
import dataclasses
import os
import random
import statistics

import inputs
import measure
import peers
import workloads

PROGRAMS = os.path.join(peers.HERE, "programs")
ENVIRONMENT = dict(workloads.ENVIRONMENT, USE_ZEND_ALLOC="0")


def write_words(path):
    """Text for gawk: sentences over a vocabulary of 30,000 words."""
    rng = random.Random(inputs.SEED + 3)
    vocabulary = [rng.choice(inputs.WORDS) + "".join(rng.choice("aeioukmst") for _ in range(rng.randrange(2, 9)))
                  for _ in range(30_000)]
    with open(path, "w") as out:
        for _ in range(30_000):
            out.write(" ".join(rng.choice(vocabulary) for _ in range(rng.randrange(3, 15))) + "\n")


def write_smt(path):
    """Bit-vector multiplications that must factor, and random 3-clauses over integers."""
    rng = random.Random(inputs.SEED + 4)
    with open(path, "w") as out:
        out.write("(set-option :smt.random_seed 7)\n(set-logic ALL)\n")
        for n in range(300):
            out.write(f"(declare-const x{n} Int)\n(assert (and (<= 0 x{n}) (<= x{n} 60)))\n")
        for _ in range(900):
            a, b, c = (rng.randrange(300) for _ in range(3))
            out.write(f"(assert (or (< (+ x{a} x{b}) {rng.randrange(20, 90)}) (> x{c} (+ x{a} {rng.randrange(9)}))"
                      f" (= (- x{b} x{c}) {rng.randrange(-9, 9)})))\n")
        for n in range(6):
            out.write(f"(declare-const p{n} (_ BitVec 20))\n(declare-const q{n} (_ BitVec 20))\n"
                      f"(assert (= (bvmul p{n} q{n}) #x{rng.randrange(1 << 19) * 2 + 1:05x}))\n"
                      f"(assert (bvugt p{n} #x00010))\n(assert (bvugt q{n} #x00100))\n")
        out.write("(check-sat)\n")


inputs.MAKERS.update({"words.txt": write_words, "work.smt2": write_smt,
                      "quick.json": lambda path: inputs.write_json(path, 10_000),
                      "quick.ii": lambda path: inputs.write_ii(path, 2)})
# Quick mode takes these in place of the full inputs: the same programs, a shorter time.
QUICK_INPUTS = {"{work.json}": "{quick.json}", "{work.ii}": "{quick.ii}", "work.sql": "demo.sql", "1500": "300"}
QUICK_REDIS_REQUESTS = 30_000

MORE = [
    workloads.Workload("pyjson", "python3", ["/usr/bin/python3", os.path.join(PROGRAMS, "json_rounds.py"), "{work.json}"]),
    workloads.Workload("gs", "ghostscript", ["/usr/bin/gs", "-q", "-dNOPAUSE", "-dBATCH", "-dSAFER", "-sDEVICE=ppmraw", "-r72",
                                             "-sOutputFile=page-%02d.ppm", os.path.join(PROGRAMS, "pages.ps")],
                       files=("page-01.ppm", "page-30.ppm")),
    workloads.Workload("z3", "z3", ["/usr/bin/z3", "{work.smt2}"]),
    workloads.Workload("gawk", "gawk", ["/usr/bin/gawk", "-f", os.path.join(PROGRAMS, "words.awk"), "{words.txt}"]),
    workloads.Workload("php", "php-cli", ["/usr/bin/php", "-n", "-d", "memory_limit=-1", os.path.join(PROGRAMS, "objects.php")]),
    workloads.Workload("git-pack", "git", ["/usr/bin/git", "-C", "{history.git}", "pack-objects", "--revs", "--all", "--stdout",
                                           "--no-reuse-delta", "--no-reuse-object", "--threads=1", "--window=40", "-q"]),
]
ALL = workloads.WORKLOADS + MORE


def chosen(quick):
    """The programs, with the inputs of the mode."""
    if not quick:
        return ALL
    workloads.REDIS_REQUESTS = QUICK_REDIS_REQUESTS
    swap = QUICK_INPUTS
    return [dataclasses.replace(w, command=[swap.get(word, word) for word in w.command], stdin=swap.get(w.stdin, w.stdin))
            for w in ALL]


def probe(workload):
    """A short command that starts the same program, for peers.verify."""
    flags = ["-n"] if workload.name == "php" else []
    return [workload.command[0], *flags, "--version"]


@dataclasses.dataclass
class Cost:
    cpu_s: float
    peak_kb: int
    faults: int
    outcome: str


def run(bench, workload, allocator):
    """One run (L1). Raises measure.Failed if it could not be measured, or the preload was refused."""
    port = workloads.free_port() if workload.drive else 0
    with bench.scratch() as scratch:
        wrapper = [bench.tool("self_rusage"), os.path.join(scratch, "rusage.json"), "-e", "USE_ZEND_ALLOC=0"]
        value = peers.preload(allocator, workload.command[0])
        for name, word in {**allocator.environment, **({"LD_PRELOAD": value} if value else {})}.items():
            wrapper += ["-e", f"{name}={word}"]
        command = wrapper + ["--"] + workload.arguments(bench.inputs, port)
        process, driven = measure.start(bench, workload, command, scratch, port)
        status, wall = measure.reap(process)
        with open(os.path.join(scratch, "stderr"), errors="replace") as said:
            if "cannot be preloaded" in said.read():
                raise measure.Failed(f"{allocator.name} was not preloaded\n{measure.tail(scratch)}")
        result = measure.collect(workload, allocator.name, scratch, status, driven, 0.0, wall)
    return Cost(result.cpu_s, result.max_rss_kb, result.faults, f"{result.status} {result.digest}")


def summary(costs):
    """Medians of the rounds, with the spread of the CPU time."""
    cpu = [cost.cpu_s for cost in costs]
    return {"cpu": statistics.median(cpu), "cpu_min": min(cpu), "cpu_max": max(cpu),
            "peak": statistics.median(cost.peak_kb for cost in costs),
            "faults": statistics.median(cost.faults for cost in costs), "rounds": len(costs)}
