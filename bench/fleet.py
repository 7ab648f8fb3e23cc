"""What questions to a fleet's tables cost, by the size of the tables, and how large tables get.

    skinflint-fleet generate (law, seed) ─► retain: packed ─► 64 MB, 256 MB, 1 GB of tables ─► the five questions, each
                                                                  │                                      some times
                                                                  └─► bytes a process and minute ─► 10,000 machines on paper

B1  A question is the whole program: start, tables made known, answer, text. Wall time and CPU time (user + system) are
    medians; wall time is sound only on a machine that does nothing else, so the load beside it is printed.
B2  Questions are about all days, so about all of the tables; the pages of the files are in memory after they were written.
B3  The planted leak and the planted pinning stack are the first two regressions, at every size: figures of wrong answers
    are worth nothing.
B4  The tables are of minutes: nothing is merged before it is asked. `retain` packs what was written, as it does on a day
    that ends; the bytes that count are those behind it. Making tables is no part of what is measured, and runs in the idle
    class.
B5  A condition on minutes cannot be answered from sums of days: `minutes` asks one, for the record, and is not under the bar.
B6  Exit 0: each question's median is below the bar on the largest tables. 1: one is not. 2: nothing to measure.
"""
import argparse
import json
import math
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BAR_S = 2.0
QUESTIONS = {
    "top": ["top"],
    "regressions": ["regressions", "--from", "41", "--to", "42"],
    "pinned": ["pinned"],
    "where": ["where", "build = '42' AND host > 'm00001'"],
    "whatif": ["whatif"],
}
# From the second minute on: all rows of minutes but the first ones are read (B5).
MINUTES_ONLY = {"minutes": ["where", "t >= 1767225660 AND build = '42'"]}
SEED, DAY, HOURS, PROCESSES, SERVICES, STACKS = 1, "2026-01-01", 24, 20, 4, 60
# The fleet that is too large for here.
MACHINES, PROCESSES_EACH, MINUTES = 10_000, 200, 24 * 60
# Rows that an engine reads or skips as one (fleet/tables/src/files.rs).
GROUP = 128 * 1024


def idle():
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def run(words, before=None):
    """Runs a command: wall and CPU seconds, peak in MB, what it printed."""
    with tempfile.TemporaryFile() as out:
        begin = time.monotonic()
        process = subprocess.Popen([str(word) for word in words], stdout=out, preexec_fn=before)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{' '.join(words)}: exit {process.returncode}")
        out.seek(0)
        return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out.read().decode()


class Tables:
    """Tables of so many machines."""

    def __init__(self, program, root, machines):
        self.program, self.root, self.machines = program, root, machines
        shutil.rmtree(root, ignore_errors=True)
        words = [program, "--root", root, "generate", "--seed", SEED, "--machines", machines, "--processes", PROCESSES,
                 "--services", SERVICES, "--stacks", STACKS, "--day", DAY, "--hours", HOURS]
        _, self.made_cpu_s, _, _ = run(words, idle)
        self.measure()
        self.written, self.written_files = self.bytes, self.files
        _, self.packed_cpu_s, self.packed_mb, _ = run([program, "--root", root, "retain", "--today", DAY], idle)
        self.measure()

    def measure(self):
        files = [os.path.join(folder, name) for folder, _, names in os.walk(self.root) for name in names
                 if name.endswith(".parquet")]
        self.files, self.bytes = len(files), sum(os.path.getsize(path) for path in files)
        of_table = lambda name: sum(os.path.getsize(path) for path in files
                                    if path.startswith(os.path.join(self.root, name, "")))
        self.profile_bytes, self.day_bytes = of_table("profiles"), of_table("profile_days")
        return self

    def sql(self, statement):
        words = [self.program, "--root", self.root, "sql", "--json", statement]
        return json.loads(run(words)[3])[0]

    def ask(self, words, engine):
        return run([self.program, "--root", self.root, "--engine", engine, *words, "--day", "all"])


def check(tables, engine):
    """B3."""
    _, _, _, text = tables.ask([*QUESTIONS["regressions"], "--json"], engine)
    figures = sorted(row["figure"] for row in json.loads(text)["rows"][:2])
    if figures != ["in use", "pinned"]:
        sys.exit(f"the planted faults are not the first regressions: {figures}")


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        model = re.search(r"model name\s*: (.*)", lines.read())
    return (f"{model.group(1) if model else platform.machine()}, {os.cpu_count()} processors, Linux "
            f"{platform.release()}, load {os.getloadavg()[0]:.1f}")


def versions(program):
    own = run([program, "--version"])[3].strip()
    lock = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fleet", "Cargo.lock")
    with open(lock, encoding="utf-8") as lines:
        text = lines.read()
    wanted = ["datafusion", "ballista", "arrow", "parquet"]
    found = {name: re.search(rf'name = "{name}"\nversion = "([^"]*)"', text) for name in wanted}
    return ", ".join([own, *(f"{name} {match.group(1)}" for name, match in found.items() if match)])


def on_paper(tables):
    """What the large fleet comes to, by the bytes and rows of the largest tables here."""
    counts = tables.sql("SELECT (SELECT sum(minutes) FROM processes) AS minutes, (SELECT count(*) FROM profiles) AS "
                        "profiles, (SELECT count(DISTINCT process) FROM processes) AS processes, (SELECT count(*) FROM "
                        "profile_days) AS days")
    a_minute = tables.bytes / counts["minutes"]
    day = a_minute * MACHINES * PROCESSES_EACH * MINUTES
    rows = counts["profiles"] / counts["minutes"] * MACHINES * PROCESSES_EACH * MINUTES
    print(f"\n{counts['profiles']:,} rows of profiles, {counts['processes']:,} processes: {a_minute:.0f} bytes a process and "
          f"minute, {tables.profile_bytes / counts['profiles']:.1f} a row, {counts['profiles'] / counts['minutes']:.1f} rows a "
          f"process and minute")
    print(f"written {tables.written / 1e6:.0f} MB in {tables.written_files:,} files; packed {tables.bytes / 1e6:.0f} MB in "
          f"{tables.files:,} files, of which {tables.day_bytes / 1e6:.1f} MB are {counts['days']:,} sums of a day; made in "
          f"{tables.made_cpu_s:.0f} CPU-seconds, packed in {tables.packed_cpu_s:.0f}, {tables.packed_mb:.0f} MB at the peak")
    print(f"on paper, {MACHINES:,} machines x {PROCESSES_EACH} processes x a day: {rows / 1e9:.0f} billion rows, "
          f"{day / 1e12:.2f} TB, {day / tables.bytes:.0f} x the largest tables here, {rows / GROUP:,.0f} row groups")
    return {"bytes_a_process_minute": a_minute, "rows": counts["profiles"], "day_rows": counts["days"],
            "processes": counts["processes"], "paper_bytes": day, "paper_rows": rows}


def merged(program, folder, machines):
    """What merging leaves of a day."""
    tables = Tables(program, os.path.join(folder, "merged"), machines)
    sizes = [("minutes", tables.bytes, tables.files)]
    for name, today in [("hours", "2026-01-04"), ("days", "2026-03-01")]:
        run([program, "--root", tables.root, "retain", "--today", today])
        sizes.append((name, tables.measure().bytes, tables.files))
    shutil.rmtree(tables.root)
    print("\nmerged: " + ", ".join(f"{name} {size / 1e6:.1f} MB in {files} files" for name, size, files in sizes))
    return sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", nargs="?", default="target/fleet/release/skinflint-fleet")
    parser.add_argument("--sizes", default="64,256,1000", help="megabytes of tables [default: %(default)s]")
    parser.add_argument("--runs", type=int, default=5, help="runs of each question [default: %(default)s]")
    parser.add_argument("--engine", default="embedded", help="[default: %(default)s]")
    parser.add_argument("--json", metavar="FILE", default="target/bench/fleet.json")
    args = parser.parse_args()
    if not os.path.exists(args.program):
        print(f"{args.program} is not there: make fleet-bench builds it", file=sys.stderr)
        sys.exit(2)
    print(f"{versions(args.program)}\n{machine()}\nseed {SEED}, {SERVICES} services, {STACKS} stacks, {PROCESSES} "
          f"processes a machine, {HOURS} hours; engine {args.engine}, {args.runs} runs, medians\n", flush=True)
    # Beside the tables of a user: not in a folder of memory.
    os.makedirs("target/bench", exist_ok=True)
    with tempfile.TemporaryDirectory(dir="target/bench") as folder:
        probe = nearest = Tables(args.program, os.path.join(folder, "probe"), 5)
        rows, paper = [], None
        asked = QUESTIONS | MINUTES_ONLY
        head = "".join(f"{name:>22}" for name in asked)
        print(f"{'tables':>9} {'files':>6} {'machines':>8}{head}   (seconds wall / CPU / peak MB)")
        for size in [int(size) * 1_000_000 for size in args.sizes.split(",")]:
            machines = max(1, math.ceil(nearest.machines * size / nearest.bytes))
            tables = nearest = Tables(args.program, os.path.join(folder, "tables"), machines)
            check(tables, args.engine)
            row = {"bytes": tables.bytes, "files": tables.files, "machines": machines, "made_cpu_s": tables.made_cpu_s,
                   "written": tables.written, "written_files": tables.written_files, "packed_cpu_s": tables.packed_cpu_s,
                   "packed_mb": tables.packed_mb, "load": os.getloadavg()[0]}
            for name, words in asked.items():
                figures = [tables.ask(words, args.engine)[:3] for _ in range(args.runs)]
                row[name] = [statistics.median(column) for column in zip(*figures)]
            cells = "".join(f"{row[name][0]:9.2f} /{row[name][1]:5.2f} /{row[name][2]:4.0f}" for name in asked)
            print(f"{tables.bytes / 1e6:6.0f} MB {tables.files:6} {machines:8}{cells}", flush=True)
            rows.append(row)
            paper = on_paper(tables) if size == max(int(one) for one in args.sizes.split(",")) * 1_000_000 else paper
        shutil.rmtree(os.path.join(folder, "tables"))
        sizes = merged(args.program, folder, probe.machines)
    result = {"versions": versions(args.program), "machine": machine(), "seed": SEED, "engine": args.engine, "rows": rows,
              "paper": paper, "merged": sizes}
    os.makedirs(os.path.dirname(args.json) or ".", exist_ok=True)
    with open(args.json, "w", encoding="utf-8") as out:
        json.dump(result, out, indent=1)
    missed = [name for name in QUESTIONS if rows[-1][name][0] > BAR_S]
    print(f"\nbar: {BAR_S} s wall: " + (f"missed by {', '.join(missed)}" if missed else "held"))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
