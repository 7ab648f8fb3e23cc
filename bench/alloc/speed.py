"""CPU time and peak memory of real programs and of allocation patterns, under every allocator in turn.

    rounds × (allocator A, B, C …; the order turns each round) ──► samples ──► medians, spread

S1  Every row has the same work for every allocator: outputs are compared (real.py, L2), patterns count (pattern.h, Q1).
S2  An allocator that crashes, hangs or changes the output has no figure in that row but the reason.
S3  Rounds alternate allocators, never repeat one, so that a busy minute of the machine falls on all of them.
"""
import json
import os
import statistics
import subprocess

import measure
import peers
import real

PATTERN_LIMIT_S = 120


def turned(items, number):
    turn = number % len(items)
    return items[turn:] + items[:turn]


def pattern_binary(bench):
    """The pattern program, compiled when a source is newer."""
    folder = os.path.join(peers.HERE, "programs")
    sources = [os.path.join(folder, name) for name in ("pattern.c", "single.c", "longer.c", "handed.c")]
    binary = os.path.join(bench.work, "alloc", "pattern")
    newest = max(os.path.getmtime(path) for path in sources + [os.path.join(folder, "pattern.h")])
    if not os.path.exists(binary) or os.path.getmtime(binary) < newest:
        os.makedirs(os.path.dirname(binary), exist_ok=True)
        subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-std=gnu11", "-pthread", "-o", binary, *sources, "-ldl"],
                       check=True, timeout=120)
    return binary


def patterns(bench):
    """[(name, runs in several threads, scale, what it does)]"""
    out = subprocess.run([pattern_binary(bench), "--list"], capture_output=True, text=True, check=True, timeout=20).stdout
    rows = [line.split("\t") for line in out.splitlines()]
    return [(name, threads == "1", int(scale), what) for name, threads, scale, what in rows]


def environment(allocator, program=""):
    value = peers.preload(allocator, program)
    return dict(real.ENVIRONMENT, **allocator.environment, **({"LD_PRELOAD": value} if value else {}))


def run_pattern(binary, name, allocator, scale=0):
    """One run: the pattern's own line, checked for whose malloc it used."""
    words = [binary, name, str(scale)] if scale else [binary, name]
    try:
        done = subprocess.run(words, env=environment(allocator), capture_output=True, text=True,
                              timeout=PATTERN_LIMIT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise measure.Failed(f"still running after {PATTERN_LIMIT_S} s; killed") from None
    if done.returncode:
        raise measure.Failed(f"ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    line = json.loads(done.stdout.splitlines()[-1])
    check_malloc(allocator, line["malloc"])
    return line


def check_malloc(allocator, path):
    """E3 for our own programs, which say where their malloc comes from."""
    same = os.path.realpath(path) == os.path.realpath(allocator.path) if allocator.path else peers.LIBC in path
    if not same:
        raise measure.Failed(f"malloc came from {path}, not from {allocator.name}")


def pattern_rows(bench, allocators, rounds, quick, only=()):
    """{pattern: {allocator: figures}}, {(pattern, allocator): reason}. Quick: half the work of each."""
    binary = pattern_binary(bench)
    rows, failed = {}, {}
    for name, threads, scale, _ in [pattern for pattern in patterns(bench) if not only or pattern[0] in only]:
        scale = (scale + 1) // 2 if quick else scale
        samples = {allocator.name: [] for allocator in allocators}
        for number in range(rounds):
            for allocator in turned(allocators, number):
                if (name, allocator.name) in failed:
                    continue
                try:
                    samples[allocator.name].append(run_pattern(binary, name, allocator, scale))
                except measure.Failed as error:
                    failed[name, allocator.name] = str(error)
        rows[name] = {key: pattern_summary(lines, threads) for key, lines in samples.items()
                      if lines and (name, key) not in failed}
        progress(name, rows[name])
    return rows, failed


def pattern_summary(lines, threads):
    cpu = [line["cpu_ns"] / 1e9 for line in lines]
    return {"cpu": statistics.median(cpu), "cpu_min": min(cpu), "cpu_max": max(cpu), "rounds": len(lines),
            "ns": statistics.median(line["ns_per_op"] for line in lines), "threads": threads,
            "peak": statistics.median(line["peak_kb"] for line in lines),
            "faults": statistics.median(line["faults"] for line in lines)}


def real_rows(bench, allocators, rounds, quick, only=()):
    """The same for the real programs."""
    rows, failed = {}, {}
    for workload in [w for w in real.chosen(quick) if not only or w.name in only]:
        name = workload.name
        samples = {allocator.name: [] for allocator in allocators}
        for allocator in allocators:
            try:
                peers.verify(allocator, real.probe(workload), real.ENVIRONMENT)
            except (peers.Absent, subprocess.TimeoutExpired) as error:
                failed[name, allocator.name] = str(error)
        for number in range(rounds):
            for allocator in turned(allocators, number):
                if (name, allocator.name) in failed:
                    continue
                try:
                    samples[allocator.name].append(real.run(bench, workload, allocator))
                except measure.Failed as error:
                    failed[name, allocator.name] = str(error)
        compare_outcomes(name, samples, failed)
        rows[name] = {key: real.summary(costs) for key, costs in samples.items() if costs and (name, key) not in failed}
        progress(name, rows[name])
    return rows, failed


def compare_outcomes(name, samples, failed):
    """L2: what the C library's run printed is what every run must print."""
    wanted = {cost.outcome for cost in samples.get("glibc", [])}
    if not wanted:
        wanted = {cost.outcome for costs in samples.values() for cost in costs[:1]}
    for key, costs in samples.items():
        changed = [cost.outcome for cost in costs if cost.outcome not in wanted]
        if changed or len(wanted) > 1:
            failed[name, key] = f"status and output {changed or sorted(wanted)} instead of {sorted(wanted)}"


def progress(name, row):
    cells = "  ".join(f"{key} {figures['cpu']:.3f}" for key, figures in row.items())
    print(f"  {name:14} {cells}", flush=True)
