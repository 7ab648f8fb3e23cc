"""The tables and the verdicts: every figure beside the best peer's and the C library's.

    rows {program: {allocator: figures}} ──► table (value, × best peer, × glibc) ──► geometric means ──► bars

J1  A row in which the subject has no figure is a missed bar, not a row left out.
J2  A mean over two allocators is taken over the rows that both have; how many that is stands beside it.
J3  The verdict names the worst row with its margin, whether the bar was held or missed.
"""
import math
import statistics

SPEED_MEAN, SPEED_WORST = 1.00, 1.10
PEAK_MEAN, PEAK_WORST = 0.99, 1.05
IDLE_MEAN = 1.12
# Of the last two seconds: an idle process that is clean does nothing. redis has a clock of its own and is left out.
LATE_CPU_MS = 0.1
REDIS_IDLE_MIB = 170
# KB that a thread may hold which has freed all it had, beyond 1.15 of the page floor of what it has kept.
IDLE_THREAD_KB = 40
# What start.py calls a preloaded library without an allocator: what preloading itself costs.
NO_ALLOCATOR = "(empty .so)"
# The second is of such a library's, with the same program.
START_RSS_KB, START_CPU = 1280, 1.03
PURGER_SHARE = 0.01
PAIR_400K_NS, LARGE_PAIR_NS, REALLOC_STEP_NS, FREEONLY_PEAK_KB = 25, 40, 40, 40 * 1024
MIN_REAL, MIN_THREADS = 12, 10


def geomean(values):
    values = list(values)
    return math.exp(statistics.fmean(math.log(value) for value in values)) if values else None


def value(row, name, key):
    return row[name][key] if name in row and row[name].get(key) else None


def best_peer(row, names, key, subject):
    """(name, figure) of the best of the others in this row."""
    have = [(value(row, name, key), name) for name in names if name != subject and value(row, name, key)]
    return (min(have)[1], min(have)[0]) if have else (None, None)


def mean_ratio(rows, name, other, key):
    """(geometric mean of name/other over the rows that both have, how many)"""
    ratios = [value(row, name, key) / value(row, other, key) for row in rows.values()
              if value(row, name, key) and value(row, other, key)]
    return geomean(ratios), len(ratios)


def said(number, digits=2):
    return "-" if number is None else f"{number:.{digits}f}"


def table(title, rows, names, key, subject, scale=1.0, digits=2):
    """One block of text: a line for each program, then the means."""
    width = max([12] + [len(name) for name in rows]) + 1
    out = [title, " " * width + "".join(f"{name[:11]:>12}" for name in names) + f"{'best peer':>12}{'× best':>8}{'× glibc':>8}"]
    for program, row in rows.items():
        best, least = best_peer(row, names, key, subject)
        own, libc = value(row, subject, key), value(row, "glibc", key)
        cells = "".join(f"{said(v * scale if v is not None else None, digits):>12}" for v in (value(row, n, key) for n in names))
        against = own / least if own and least else None
        out.append(f"{program:{width}}{cells}{best or '-':>12}{said(against):>8}{said(own / libc if own and libc else None):>8}")
    means = "".join(f"{said(mean_ratio(rows, name, 'glibc', key)[0], 3):>12}" for name in names)
    out.append(f"{'mean/glibc':{width}}{means}")
    return "\n".join(out)


def spread(rows):
    """Median and 90th percentile of (max − min) / median of the CPU times: below it a difference is a tie."""
    shares = sorted((f["cpu_max"] - f["cpu_min"]) / f["cpu"] for row in rows.values() for f in row.values()
                    if f.get("rounds", 0) > 1 and f["cpu"])
    return (statistics.median(shares), shares[int(len(shares) * 0.9)]) if shares else (None, None)


def worst(rows, names, key, subject, against):
    """(ratio, program, other) of the row in which the subject stands worst."""
    found = []
    for program, row in rows.items():
        own = value(row, subject, key)
        other, least = (best_peer(row, names, key, subject) if against == "best" else (against, value(row, against, key)))
        if own and least:
            found.append((own / least, program, other))
    return max(found) if found else (None, "-", "-")


def verdict(held, text):
    return {"held": bool(held), "text": text}


def below(number, bar):
    return number is not None and round(number, 4) <= bar


def judge_speed(rows, names, subject, failed):
    """At most the best single peer's CPU time in geometric mean, on none more than 1.10 of that program's best."""
    out = []
    lost = sorted({program for program, name in failed if name == subject})
    out.append(verdict(not lost, f"every row has a figure{': not ' + ', '.join(lost) if lost else ''}"))
    others = [(mean_ratio(rows, subject, name, "cpu")[0], name) for name in names if name != subject]
    others = [pair for pair in others if pair[0] is not None]
    ratio, rival = max(others) if others else (None, "-")
    out.append(verdict(below(ratio, SPEED_MEAN),
                       f"CPU, geometric mean over {len(rows)} rows: {said(ratio, 3)} of {rival}'s, the best single peer (bar {SPEED_MEAN})"))
    ratio, program, rival = worst(rows, names, "cpu", subject, "best")
    out.append(verdict(below(ratio, SPEED_WORST),
                       f"CPU, worst row: {program}, {said(ratio, 3)} of {rival} (bar {SPEED_WORST})"))
    over = [p for p, row in rows.items() if (value(row, subject, "cpu") or 0) > SPEED_WORST * (best_peer(row, names, "cpu", subject)[1] or 1e99)]
    if over:
        out.append(verdict(False, f"CPU above the bar in {len(over)} rows: {', '.join(over)}"))
    return out


def judge_peak(rows, names, subject):
    ratio, count = mean_ratio(rows, subject, "glibc", "peak")
    out = [verdict(below(ratio, PEAK_MEAN), f"peak RSS, geometric mean over {count} real programs: {said(ratio, 3)} of glibc's (bar {PEAK_MEAN})")]
    ratio, program, _ = worst(rows, names, "peak", subject, "glibc")
    out.append(verdict(below(ratio, PEAK_WORST), f"peak RSS, worst: {program}, {said(ratio, 3)} of glibc's (bar {PEAK_WORST})"))
    return out


def idle_ratio(rows, name, stage):
    """Geometric mean of RSS / page floor at that stage, and over how many workloads."""
    ratios = [row[name][stage] / row[name]["floor"] for row in rows.values()
              if name in row and row[name].get(stage) and row[name].get("floor")]
    return geomean(ratios), len(ratios)


def judge_idle(rows, subject):
    out = []
    lost = [workload for workload, row in rows.items() if not value(row, subject, "idle")]
    out.append(verdict(not lost, f"every idle workload has a figure{': not ' + ', '.join(lost) if lost else ''}"))
    ratio, count = idle_ratio(rows, subject, "idle")
    out.append(verdict(below(ratio, IDLE_MEAN), f"RSS while idle / page floor, geometric mean over {count}: {said(ratio, 3)} (bar {IDLE_MEAN})"))
    ratio, count = idle_ratio(rows, subject, "trim")
    out.append(verdict(below(ratio, IDLE_MEAN), f"RSS after malloc_trim / page floor, geometric mean over {count}: {said(ratio, 3)} (bar {IDLE_MEAN})"))
    late = [(row[subject]["late_cpu_ms"], workload) for workload, row in rows.items()
            if workload != "redis-idle" and "late_cpu_ms" in row.get(subject, {})]
    if late:
        spent, workload = max(late)
        out.append(verdict(spent <= LATE_CPU_MS,
                           f"CPU in the last 2 s of idling: {said(spent)} ms, {workload} (bar {LATE_CPU_MS})"))
    redis = value(rows.get("redis-idle", {}), subject, "idle")
    if "redis-idle" in rows:
        mib = redis / 1024 if redis else None
        out.append(verdict(below(mib, REDIS_IDLE_MIB), f"redis 30 s idle: {said(mib, 0)} MiB (bar {REDIS_IDLE_MIB})"))
    return out


def judge_start(start, patterns, subject):
    own, libc, empty = start.get(subject, {}), start.get("glibc", {}), start.get(NO_ALLOCATOR, {})
    rss = own.get("rss_kb")
    out = [verdict(below(rss, START_RSS_KB), f"a program that does nothing: {said(rss, 0)} KiB RSS (bar {START_RSS_KB})")]
    for key, bar, what, of, whose in (
            ("true_cpu", START_CPU, "/bin/true, CPU of 200", empty, "an empty library's"),
            ("forks_cpu", 1.0, "300 forks under churn, CPU", libc, "glibc's"),
            ("forks_wall", 1.0, "300 forks under churn, wall", libc, "glibc's")):
        # A paired difference below the noise of the pairs is a tie (start.py, B2).
        ratio = own[key] / of[key] if own.get(key) and of.get(key) else None
        noise = max(own.get(key + "_noise", 0), of.get(key + "_noise", 0))
        out.append(verdict(ratio is not None and round(ratio, 4) <= bar + noise,
                           f"{what}: {said(ratio, 3)} of {whose} (bar {bar}, noise {said(noise, 3)})"))
    share = own.get("purger_share")
    out.append(verdict(below(share, PURGER_SHARE), f"background thread's share of a busy program's CPU: "
                       f"{said(share * 100 if share is not None else None, 3)} % (bar {PURGER_SHARE:.0%})"))
    for pattern, key, bar, what in (("pair400k", "ns", PAIR_400K_NS, "ns for a 400 KiB pair"),
                                    ("pair5m", "ns", LARGE_PAIR_NS, "ns for a 5 MiB pair"),
                                    ("realloc16", "ns", REALLOC_STEP_NS, "ns for a step of a growing realloc to 64 KiB"),
                                    ("realloc-big", "ns", REALLOC_STEP_NS, "ns for a step of a growing realloc to 2 MiB"),
                                    ("freeonly", "peak", FREEONLY_PEAK_KB, "KiB peak where a thread only frees")):
        if pattern in patterns:
            figure = value(patterns[pattern], subject, key)
            out.append(verdict(below(figure, bar), f"no bad case: {said(figure, 1)} {what} (bar {bar})"))
    return out
