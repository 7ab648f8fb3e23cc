"""What recording costs in instructions: four real programs under callgrind, plain and recorded.

    for each program: plain, recorded [, recorded by another build] ──► instructions added ÷ events
    --sample: plain, recorded, a sample recorded                    ──► instructions ÷ plain
    --scripts: plain, recorded with their own frames: four programs of Ruby, four of PHP (script_programs.py) ──► the same
    --java:    plain, recorded with their own frames: two tools of Java's ──► the same

Time on a shared machine differs by a third from run to run; instructions differ by a thousandth. What a cache miss costs
they do not say: bench/overhead.py does.

I1  The same command, environment and output in every run; output that differs is a failure.
I2  Instructions are those of the program's process, all of its threads, as callgrind counts them: the recorder's library is
    in it, the collector is not.
I3  Exit 0: the bar was held. 1: it was missed, or a program failed. 2: nothing could be measured.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import measure
import script_programs
import workloads

# An event may add so many instructions, in geometric mean.
BAR = 620
# A recording of a sample, one block every 512 KiB, may cost so much of the plain run, in geometric mean.
SAMPLE_BAR = 1.05
# A recording of a program of Ruby's or PHP's, its own frames in it, may cost so much of the plain run, in geometric mean.
SCRIPTS_BAR = 1.6
# A recording of a program of Java's, interpreted, the start of its machine in it, may cost so much of the plain run, in geometric mean.
JAVA_BAR = 1.6
# Another build's figure may be exceeded by so much.
GROWTH = 1.05

# The line of callgrind's log that has the sum.
REFS = re.compile(r"I +refs: +([\d,]+)")

PROGRAMS = {
    "python": ["/usr/bin/python3", "-c", "x = []\nfor i in range(60000):\n x.append([i] * (i % 37))\n if i % 3 == 0: x.pop()\n"
               "d = {str(i): (i, [i]) for i in range(20000)}\nprint(len(x), len(d))"],
    "perl": ["/usr/bin/perl", "-e", 'my %h; for my $i (1..40000) { push @{$h{"k" . $i % 997}}, "v$i"; delete $h{"k" . $i % 31} '
             'if $i % 5 == 0 } my $n = 0; $n += @$_ for values %h; print "$n\\n"'],
    "sqlite": ["/usr/bin/sqlite3", ":memory:", "create table t(a integer primary key, b text); with recursive n(i) as (select 1 "
               "union all select i + 1 from n where i < 20000) insert into t select i, hex(i * 7919) from n; create index "
               "u on t(b); select count(*), max(b) from t where b like '%3%';"],
    "jq": ["/usr/bin/jq", "-n", "[range(4000) | {a: ., b: tostring}] | group_by(.a % 7) | map({n: length, s: (map(.b) | join(\",\") "
           "| length)}) | length"],
}


def counted(command, folder):
    """(instructions, stdout) of one run; `command` makes the whole line of the callgrind command."""
    log = os.path.join(folder, "callgrind.log")
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={log}", "--trace-children=no"]
    done = subprocess.run(command(tool), env=workloads.ENVIRONMENT, capture_output=True, cwd=folder, timeout=measure.LIMIT_S)
    with open(log) as text:
        found = REFS.search(text.read())
    if done.returncode != 0 or not found:
        raise measure.Failed(f"exit {done.returncode}: {done.stderr.decode(errors='replace')[-400:]}")
    return int(found.group(1).replace(",", "")), done.stdout


def sampled(skinflint, name, program):
    """How many times a program's instructions a full recording takes, and one of a sample."""
    with tempfile.TemporaryDirectory(prefix="skinflint-instructions-") as folder:
        plain, expected = counted(lambda tool: tool + program, folder)
        times = []
        for options in [], ["--sample=512K", "--seed=1"]:
            trace = os.path.join(folder, "x.sft")
            record = [skinflint, "record", *options, "-o", trace, "--"]
            spent, out = counted(lambda tool: record + tool + program, folder)
            if out != expected:
                raise measure.Failed(f"{name}: the output differs when recorded")
            times.append(spent / plain)
    print(f"{name:8} {plain / 1e6:9.1f} M plain  {times[0]:6.3f} recorded  {times[1]:6.3f} a sample recorded", flush=True)
    return times


def scripted(builds, name):
    """How many times the instructions of a program of Ruby's, PHP's or Java's a recording takes, by each build."""
    program = script_programs.command(name)
    with tempfile.TemporaryDirectory(prefix="skinflint-instructions-") as folder:
        plain, expected = counted(lambda tool: tool + program, folder)
    times = []
    for skinflint in builds:
        spent, out, events = recorded(skinflint, program)
        if out != expected:
            raise measure.Failed(f"{name}: the output differs when recorded by {skinflint}")
        times.append(spent / plain)
        print(f"{name:12} {plain / 1e6:9.1f} M plain  {spent / 1e6:9.1f} M recorded  {events:10,} events  {times[-1]:6.3f}  {skinflint}",
              flush=True)
    return times


def judge_scripts(rows, bar=SCRIPTS_BAR):
    """Whether the bar of programs of Ruby and PHP, or of Java, is held."""
    means = [statistics.geometric_mean(column) for column in zip(*rows)]
    held = means[0] <= bar
    others = "".join(f"; another build {mean:.3f}" for mean in means[1:])
    print(f"{'held  ' if held else 'MISSED'} {means[0]:.3f} of the plain run's instructions in geometric mean (bar {bar}), "
          f"{max(row[0] for row in rows):.3f} at worst{others}")
    return held


def judge_samples(rows):
    """Whether the bar of sampled recordings is held."""
    means = [statistics.geometric_mean(column) for column in zip(*rows)]
    held = means[1] <= SAMPLE_BAR
    print(f"{'held  ' if held else 'MISSED'} {means[1]:.3f} of the plain run's instructions in geometric mean (bar {SAMPLE_BAR}); "
          f"a full recording {means[0]:.3f}")
    return held


def recorded(skinflint, program):
    """(instructions, stdout, events) of a recorded run."""
    with tempfile.TemporaryDirectory(prefix="skinflint-instructions-") as folder:
        trace = os.path.join(folder, "main.sft")
        spent, out = counted(lambda tool: [skinflint, "record", "-o", trace, "--"] + tool + program, folder)
        report = subprocess.run([skinflint, "report", "--json", trace], capture_output=True, timeout=measure.LIMIT_S)
        done = json.loads(report.stdout)["completeness"]
        if done["lost_events"]:
            raise measure.Failed(f"{done['lost_events']} events were lost")
        return spent, out, done["events"]


def row(name, program, builds):
    """Instructions that each build adds to an event of the program."""
    with tempfile.TemporaryDirectory(prefix="skinflint-instructions-") as folder:
        plain, expected = counted(lambda tool: tool + program, folder)
    added = []
    for skinflint in builds:
        spent, out, events = recorded(skinflint, program)
        if out != expected:
            raise measure.Failed(f"{name}: the output differs when recorded by {skinflint}")
        added.append((spent - plain) / events)
        print(f"{name:8} {plain / 1e6:9.1f} M plain  {spent / 1e6:9.1f} M recorded  {events:10,} events  {added[-1]:7.1f} an event  "
              f"{skinflint}", flush=True)
    return added


def judge(rows):
    """Whether the bars are held: `rows` has a figure of each build for each program, ours first."""
    means = [statistics.geometric_mean(max(one, 1) for one in column) for column in zip(*rows)]
    held = means[0] <= BAR
    print(f"{'held  ' if held else 'MISSED'} {means[0]:.1f} instructions an event in geometric mean (bar {BAR})")
    if len(means) > 1:
        near = means[0] <= means[1] * GROWTH
        held = held and near
        print(f"{'held  ' if near else 'MISSED'} {means[0] / means[1]:.3f} of the other build's {means[1]:.1f} (bar {GROWTH})")
    return held


def is_installed(arguments, names):
    """Whether what the programs need is installed; says the versions of those whose versions count."""
    missing = [tool for tool in ["valgrind"] if not shutil.which(tool)]
    if arguments.scripts or arguments.java:
        line, packages = script_programs.versions(names)
        print(line)
        missing += packages
    else:
        missing += [PROGRAMS[name][0] for name in names if not shutil.which(PROGRAMS[name][0])]
    if missing:
        packages = " ".join(missing) if arguments.scripts or arguments.java else "valgrind python3 perl sqlite3 jq"
        print(f"not installed: {', '.join(missing)} (apt-get install {packages})", file=sys.stderr)
    return not missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_arguments(parser)
    parser.add_argument("--against", metavar="FILE", help="another build's binary, measured beside it")
    parser.add_argument("--sample", action="store_true", help="recordings of a sample instead, against plain runs and full recordings")
    parser.add_argument("--scripts", action="store_true", help="programs of Ruby and PHP instead, against their plain runs")
    parser.add_argument("--java", action="store_true", help="programs of Java instead, against their plain runs")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all")
    arguments = parser.parse_args()
    if arguments.scripts + arguments.sample + arguments.java > 1:
        parser.error("--scripts, --sample and --java are of different programs")
    there = script_programs.PROGRAMS if arguments.scripts else script_programs.JAVA if arguments.java else PROGRAMS
    names = list(measure.picked(parser, arguments.programs, there))
    if not is_installed(arguments, names):
        return 2
    bench = measure.bench_of(arguments)
    builds = [bench.skinflint] + ([os.path.abspath(arguments.against)] if arguments.against else [])
    try:
        bench.need_skinflint()
        if arguments.java:
            return 0 if judge_scripts([scripted(builds, name) for name in names], JAVA_BAR) else 1
        if arguments.scripts:
            return 0 if judge_scripts([scripted(builds, name) for name in names]) else 1
        if arguments.sample:
            return 0 if judge_samples([sampled(bench.skinflint, name, PROGRAMS[name]) for name in names]) else 1
        rows = [row(name, PROGRAMS[name], builds) for name in names]
    except (measure.Failed, subprocess.SubprocessError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    return 0 if judge(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
