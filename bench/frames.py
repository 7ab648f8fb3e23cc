"""What Python's frames and objects cost: eight Python programs, plain and recorded in turn, with memray in the same run.

    for each program: rounds × (plain, frames, objects, memray; the order turns each round) ──► medians ──► ratios

F1  Output and exit status of each recorded run equal the plain ones, or the program counts as failed.
F2  CPU time and peak are the program's own: of the child that runs it (self_rusage.c), as everywhere in this folder.
F3  Each program plants objects whose number and size are known by hand (frames_programs.py); the share of their bytes that
    the report has below the function, file and line that made them is judged: the line of the statement that makes them.
F4  Exit 0: every bar held. 1: one was missed, or a program failed. 2: nothing could be measured.
"""
import argparse
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile

import measure
from frames_programs import PLANTED, PLANTED_LINE, PROGRAMS

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "frames_programs.py")
MODES = ("plain", "frames", "objects", "memray")
#: The bars: CPU time of the program with its own frames, in geometric mean; bytes of planted objects at their line.
BARS = {"frames_cpu_geomean": 1.6, "planted_share": 0.95}
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
               "OPENBLAS_NUM_THREADS": "1"}


def command_of(bench, mode, python, arguments, scratch):
    """The command of one run."""
    program = [python, SCRIPT, *arguments]
    wrapped = [bench.tool("self_rusage"), os.path.join(scratch, "rusage.json"), "--"]
    record = [bench.skinflint, "record", "--quiet", "--all", "-o", os.path.join(scratch, "wrapper.sft")]
    if mode == "plain":
        return wrapped + program
    if mode == "frames":
        return record + ["--"] + wrapped + program
    if mode == "objects":
        return record + ["--python-objects", "--"] + wrapped + program
    return wrapped + [python, "-m", "memray", "run", "-q", "--native", "--trace-python-allocators", "-o",
                      os.path.join(scratch, "memray.bin"), SCRIPT, *arguments, "end"]


def run(bench, mode, python, arguments):
    """One run: its cost, its output, and of a recorded one the share of planted bytes."""
    with tempfile.TemporaryDirectory(dir=bench.work, prefix="frames-") as scratch:
        command = command_of(bench, mode, python, arguments, scratch)
        done = subprocess.run(command, cwd=scratch, env=ENVIRONMENT, capture_output=True, text=True,
                              timeout=measure.LIMIT_S)
        use = measure.read_rusage(scratch) if os.path.exists(os.path.join(scratch, "rusage.json")) else None
        if use is None or done.returncode != 0:
            raise measure.Failed(f"{mode} {arguments[0]}: exit {done.returncode}: {done.stderr[-500:]}")
        out = {"cpu_s": (use["user_us"] + use["sys_us"]) / 1e6, "peak_kb": use["max_rss_kb"], "said": done.stdout}
        if mode in ("frames", "objects"):
            out.update(planted(bench, scratch, use["pid"]))
        return out


def planted(bench, scratch, pid):
    """The share of planted bytes that have their function and line, and how many events there were."""
    found = [os.path.join(folder, name) for folder, _, names in os.walk(scratch) for name in names
             if name.endswith(f".{pid}.sft")]
    if len(found) != 1:
        raise measure.Failed(f"no trace of process {pid}: {found}")
    done = subprocess.run([bench.skinflint, "report", "--json", "--at", "end", found[0]], capture_output=True, text=True,
                          timeout=measure.LIMIT_S)
    if done.returncode != 0:
        raise measure.Failed(f"report: {done.stderr[-500:]}")
    report = json.loads(done.stdout)
    # All are of one size: their share of blocks is that of bytes.
    right = sum(site["live_blocks"] for site in report["sites"] if is_planted(report, site["node"]))
    return {"share": right / PLANTED, "events": report["completeness"]["events"],
            "lost": report["completeness"]["lost_events"]}


def is_planted(report, node):
    """Whether the innermost frame of Python's of a stack is the statement that plants (F3)."""
    while node:
        frame = report["frames"][report["nodes"][node]["frame"]]
        if frame["module"] == "[python]":
            # The comprehension is a function of its own before Python 3.12, on the same line.
            is_function = frame["function"] in ("planted", "planted.<locals>.<listcomp>")
            file = os.path.basename(frame["file"] or "")
            return is_function and (file, frame["line"]) == (os.path.basename(SCRIPT), PLANTED_LINE)
        node = report["nodes"][node]["parent"]
    return False


def measured(bench, name, arguments, modes):
    """All rounds of one program: medians by mode, and what went wrong."""
    runs, failed = {mode: [] for mode in modes}, {}
    for number in range(arguments.rounds):
        turn = number % len(modes)
        for mode in modes[turn:] + modes[:turn]:
            if mode in failed:
                continue
            try:
                runs[mode].append(run(bench, mode, arguments.python, [name, str(arguments.scale)]))
            except (measure.Failed, subprocess.TimeoutExpired) as error:
                failed[mode] = str(error)
    plain = {one["said"] for one in runs["plain"]}
    rows = {}
    for mode, all_of in runs.items():
        if mode in failed or not all_of:
            continue
        if len(plain) != 1 or {one["said"] for one in all_of} != plain:
            failed[mode] = "its output differs from the plain runs'"
            continue
        rows[mode] = {key: statistics.median(one[key] for one in all_of) for key in ("cpu_s", "peak_kb")}
        for key in ("share", "events", "lost"):
            if key in all_of[-1]:
                rows[mode][key] = all_of[-1][key]
    return rows, failed


def print_program(name, rows, failed):
    plain = rows.get("plain")
    for mode, row in rows.items():
        line = f"{name if mode == 'plain' else '':8} {mode:8} {row['cpu_s']:7.2f} s CPU {row['peak_kb'] / 1024:8.1f} MB"
        if mode != "plain" and plain:
            line += f"  {row['cpu_s'] / plain['cpu_s']:6.2f} CPU {row['peak_kb'] / plain['peak_kb']:6.2f} peak"
        if "share" in row:
            line += f"  {row['events']:11,} events  planted {100 * row['share']:6.2f} %"
        print(line)
    for mode, why in failed.items():
        print(f"{name:8} {mode:8} FAILED: {why}")
    sys.stdout.flush()


def geomean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values)) if values else None


def judge(results, modes):
    """Figures over all programs, and the bars: [(text, held)]."""
    for mode in modes[1:]:
        both = [rows for rows, _ in results.values() if "plain" in rows and mode in rows]
        cpu = geomean([rows[mode]["cpu_s"] / rows["plain"]["cpu_s"] for rows in both])
        peak = geomean([rows[mode]["peak_kb"] / rows["plain"]["peak_kb"] for rows in both])
        if cpu:
            worst = max(rows[mode]["cpu_s"] / rows["plain"]["cpu_s"] for rows in both)
            print(f"{mode:8} {len(both)} programs: CPU {cpu:.3f} in geometric mean, {worst:.3f} at worst; peak {peak:.3f}")
    ratio = geomean([rows["frames"]["cpu_s"] / rows["plain"]["cpu_s"] for rows, _ in results.values()
                     if "frames" in rows and "plain" in rows])
    shares = [rows["objects"]["share"] for rows, _ in results.values() if "objects" in rows]
    least = min(shares, default=0)
    failed = [f"{name} {mode}" for name, (_, failed) in results.items() for mode in failed
              if mode != "memray"]
    return [(f"frames: CPU {ratio or 0:.3f} in geometric mean (bar {BARS['frames_cpu_geomean']})",
             ratio is not None and ratio <= BARS["frames_cpu_geomean"]),
            (f"objects: at least {100 * least:.2f} % of planted bytes at their line (bar {100 * BARS['planted_share']:.0f} %)",
             BARS["planted_share"] <= least <= 1.001),
            (f"same output and status everywhere{': not ' + ', '.join(failed) if failed else ''}", not failed)]


def version(python, module):
    code = f"import {module}; print({module}.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else ""


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_arguments(parser)
    parser.add_argument("--python", default=sys.executable, help="the Python under test, with memray and pandas if it is to have them")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program in each mode (default 3)")
    parser.add_argument("--scale", type=int, default=2, help="how much each program does (default 2)")
    parser.add_argument("programs", nargs="*", choices=[[], *PROGRAMS], metavar="PROGRAM", help="default: all eight")
    return parser.parse_args(argv)


def main(argv=None):
    arguments = parse(argv)
    bench = measure.prepared("frames", arguments)
    if not bench:
        return 2
    has = {name: version(arguments.python, name) for name in ("memray", "numpy", "pandas")}
    modes = [mode for mode in MODES if mode != "memray" or has["memray"]]
    picked = [name for name in arguments.programs or PROGRAMS if name != "pandas" or has["pandas"]]
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    python = subprocess.run([arguments.python, "-V"], capture_output=True, text=True, timeout=60).stdout.strip()
    print(f"{platform.processor() or platform.machine()} x{os.cpu_count()}, Linux {platform.release()}, {now}, {python}, "
          f"memray {has['memray'] or 'absent'}, numpy {has['numpy'] or 'absent'}, pandas {has['pandas'] or 'absent'}; load "
          f"{os.getloadavg()[0]:.1f}; medians of {arguments.rounds}, scale {arguments.scale}, seed 7")
    results = {}
    for name in picked:
        results[name] = measured(bench, name, arguments, modes)
        print_program(name, *results[name])
    verdicts = judge(results, modes)
    for text, held in verdicts:
        print(f"{'held  ' if held else 'MISSED'} {text}")
    return 0 if all(held for _, held in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
