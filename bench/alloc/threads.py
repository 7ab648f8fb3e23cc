"""What threads that do nothing any more still hold, a thread: with nothing live, and with one block of 200 kept.

    start ──► "ready": RSS ──► threads at work ──► "idle": RSS ──► 2 s ──► 12 s ──► malloc_trim ──► page floor

W1  Figures are KB a thread: what Rss of /proc/PID/smaps_rollup has grown by since "ready", less 1.15 of the page floor of
    what was kept. A thread's stack and the allocator's own data are in them.
W2  Peers run as they come, and told to give memory back (peers.E5).
"""
import json
import subprocess
import time

import idle
import judge
import measure
import speed

STAGES = ("full", "soon", "late", "trim")
SOON_S, LATE_S = 2, 12
FLOOR_SHARE = 1.15
WORKLOADS = {f"idle-threads-{threads}{'-kept' if kept else ''}": (threads, kept) for kept in (0, 1) for threads in (1000, 300, 64)}


def one(bench, threads, kept, allocator):
    command = [idle.compiled(bench, "idle_threads", "-pthread"), str(threads), str(kept)]
    program = idle.Program(command, speed.environment(allocator, command[0]), silent=False)
    try:
        program.expect("ready")
        pid = program.process.pid
        before = idle.rss_kb(pid)
        program.ask("go", "idle")
        since = time.monotonic()
        rss = {"full": idle.rss_kb(pid)}
        for stage, after_s in (("soon", SOON_S), ("late", LATE_S)):
            time.sleep(max(0.0, since + after_s - time.monotonic()))
            rss[stage] = idle.rss_kb(pid)
        program.ask("trim", "trimmed")
        rss["trim"] = idle.rss_kb(pid)
        said = program.ask("floor")
        if not said:
            program.expect("a floor")
        counted = json.loads(said)
        speed.check_malloc(allocator, counted["malloc"])
    finally:
        program.end()
    row = {stage: (rss[stage] - before - FLOOR_SHARE * counted["floor_kb"]) / threads for stage in STAGES}
    return dict(row, floor=counted["floor_kb"] / threads)


def rows(bench, allocators, only=()):
    """{workload: {allocator: KB a thread}}, {(workload, allocator): reason}; one at a time, since threads take time."""
    found, failed = {}, {}
    for name in (name for name in WORKLOADS if not only or name in only):
        found[name] = {}
        for allocator in allocators:
            try:
                found[name][allocator.name] = row = one(bench, *WORKLOADS[name], allocator)
            except (measure.Failed, OSError, ValueError, subprocess.SubprocessError) as error:
                failed[name, allocator.name] = str(error)
                continue
            print(f"  {name:22} {allocator.name:17}" + "".join(f"{row[stage]:8.1f}" for stage in STAGES), flush=True)
    return found, failed


def table(rows_of, names):
    out = [f"Idle threads: KB a thread beyond {FLOOR_SHARE} of the page floor; as they begin to wait, {SOON_S} s and {LATE_S} s "
           "later, after malloc_trim(0)"]
    for workload, row in rows_of.items():
        out.append(f"{workload:22}{'':17}" + "".join(f"{stage:>8}" for stage in STAGES) + f"{'floor':>8}")
        for name in (name for name in names if name in row):
            out.append(f"{'':22}{name:17}" + "".join(f"{row[name][key]:8.1f}" for key in (*STAGES, "floor")))
    return "\n".join(out)


def judged(rows_of, subject):
    """The bar of every workload, after two seconds and after a trim."""
    out = []
    for workload, row in rows_of.items():
        for stage in ("soon", "trim"):
            held = judge.value(row, subject, stage)
            out.append(judge.verdict(held is not None and held <= judge.IDLE_THREAD_KB,
                                     f"{workload}, {stage}: {judge.said(held, 1)} KB a thread (bar {judge.IDLE_THREAD_KB})"))
    return out
