"""What a recording of a sample says, held against a recording of every event of the same run: twelve real programs.

    program ─┬─ record, twice ─────────► each stack's bytes, live and acquired: the truth, where both runs agree
             └─ record --sample, seeds ► each stack's estimate with its interval ──► is the truth inside? how wide is it?

T1  The same command, input and environment in each run, and no random seed of the program's own: what it does is the same, to the byte,
    but for stacks that the two full recordings disagree on, or that neither has; their figures are left out, and counted.
T2  A stack is the same if all its functions, files and lines are; where two are (calls on one line, or a file without lines), their
    figures are left out, and counted. Each figure with an interval is a row, of what lives at the end and of
    what was acquired. A figure of fewer than three samples has no interval (analysis, sampled.P3), and is counted.
T3  Poisson's half width is 1.96 √(bytes × rate), of the true bytes: no sample of points on the line of bytes can tell more of small
    blocks. Figures whose interval is nothing (blocks as large as the rate alone) are not in the mean.
T4  Exit 0: the bars were held. 1: one was missed, or a program failed. 2: nothing could be measured.
"""
import argparse
import collections
import json
import math
import os
import subprocess
import sys
import tempfile

import inputs
import measure
import sampler
import workloads

# Of all rows, at least so many hold the truth; the mean of half widths over Poisson's is at most this.
HELD_BAR = 0.93
WIDTH_BAR = 1.15
RATES = (16 << 10, 64 << 10)
LEFT_OUT_MOST = 0.05

Truth = collections.namedtuple("Truth", "live acquired")


def recorded(skinflint, command, options, folder):
    """(report, stdout) of a recording, at its end."""
    trace = os.path.join(folder, "x.sft")
    done = subprocess.run([skinflint, "record", "--quiet", *options, "-o", trace, "--", *command], capture_output=True, cwd=folder,
                          env={**workloads.ENVIRONMENT, "USE_ZEND_ALLOC": "0"}, timeout=measure.LIMIT_S)
    if done.returncode != 0:
        raise measure.Failed(f"exit {done.returncode}: {done.stderr.decode(errors='replace')[-400:]}")
    report = subprocess.run([skinflint, "report", "--json", "--at", "end", trace], capture_output=True, timeout=measure.LIMIT_S, check=True)
    return json.loads(report.stdout), done.stdout


def chains(report):
    """A function that names the stack of a node (T2)."""
    nodes, known = report["nodes"], {0: ()}
    frames = [tuple(str(frame.get(field)) for field in ("function", "module", "file", "line")) for frame in report["frames"]]

    def chain(at):
        path = []
        while at not in known:
            path.append(at)
            at = nodes[at]["parent"]
        for one in reversed(path):
            known[one] = known[nodes[one]["parent"]] + (frames[nodes[one]["frame"]],)
        return known[path[0] if path else at]
    return chain


def truth(report):
    """{stack: Truth} of a full recording; None where several stacks have one name (T2)."""
    chain, found = chains(report), {}
    for site in report["sites"]:
        name = chain(site["node"])
        found[name] = None if name in found else Truth(site["end_requested_bytes"], site["requested_bytes"])
    return found


def compared(true, disputed, report):
    """Of one sampled recording: rows (what, true bytes, figure), and how many figures had no interval, and were left out."""
    chain, rows, counts = chains(report), [], collections.Counter()
    for stack in report["stacks"]:
        name = chain(stack["node"])
        if name in disputed or true.get(name) is None:
            why = "of one name" if name in true and true[name] is None else "left out"
            counts[why] += sum(stack[what]["low"] is not None for what in ("live", "acquired"))
            continue
        for what in ("live", "acquired"):
            figure = stack[what]
            if figure["low"] is None or figure["samples"] == 0:
                counts["too few"] += 1
            else:
                rows.append((what, getattr(true[name], what), figure))
    return rows, counts


def widths(rows, rate):
    """Half widths over Poisson's (T3)."""
    return [(figure["high"] - figure["low"]) / 2 / (1.96 * math.sqrt(bytes_ * rate))
            for _, bytes_, figure in rows if bytes_ and figure["high"] > figure["low"]]


def inside(rows):
    return [figure["low"] <= bytes_ <= figure["high"] for _, bytes_, figure in rows]


def share(values):
    return sum(values) / len(values) if values else 0.0


def program(skinflint, name, command, seeds):
    """[(rate, rows)] of one program, and its counts."""
    with tempfile.TemporaryDirectory(prefix="skinflint-sampled-") as folder:
        (first, out), (second, again) = [recorded(skinflint, command, [], folder) for _ in range(2)]
        if out != again:
            raise measure.Failed(f"{name}: two runs differ in their output")
        true, other = truth(first), truth(second)
        disputed = {stack for stack in true.keys() | other.keys() if true.get(stack) != other.get(stack)}
        found, counts = [], collections.Counter()
        for rate in RATES:
            rows = []
            for seed in range(1, seeds + 1):
                report, _ = recorded(skinflint, command, [f"--sample={rate}", f"--seed={seed}"], folder)
                more, counted = compared(true, disputed, report)
                rows += more
                counts += counted
            found.append((rate, rows))
            ratios = widths(rows, rate)
            print(f"{name:9} {rate >> 10:4} KiB {len(rows):6} rows, {share(inside(rows)):7.1%} hold the truth, half width "
                  f"{share(ratios):5.2f} of Poisson's", flush=True)
        counts["stacks"] = len(true)
        counts["disputed"] = len(disputed)
    return found, counts


def judge(found, counts):
    """[(held, sentence)]: `found` are (rate, rows) of all programs."""
    all_inside = [one for _, rows in found for one in inside(rows)]
    ratios = [one for rate, rows in found for one in widths(rows, rate)]
    left_out = counts["left out"] / max(1, counts["left out"] + len(all_inside))
    return [
        (share(all_inside) >= HELD_BAR, f"{share(all_inside):.1%} of {len(all_inside):,} figures have the truth in their interval "
                                        f"(bar {HELD_BAR:.0%}); {counts['too few']:,} have too few samples for one"),
        (0 < share(ratios) <= WIDTH_BAR, f"half widths are {share(ratios):.3f} of Poisson's in the mean (bar {WIDTH_BAR})"),
        (left_out <= LEFT_OUT_MOST, f"{counts['disputed']:,} of {counts['stacks']:,} stacks differ between two full recordings: "
                                    f"{left_out:.1%} of the figures left out (at most {LEFT_OUT_MOST:.0%}); further "
                                    f"{counts['of one name']:,} are of stacks of one name"),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_arguments(parser)
    parser.add_argument("--seeds", type=int, default=5, help="sampled recordings of each program at each rate (default: 5)")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all twelve")
    arguments = parser.parse_args()
    bench = measure.bench_of(arguments)
    programs = measure.picked(parser, arguments.programs, sampler.PROGRAMS)
    if not measure.is_installed([command[0] for command in programs.values()], sampler.PACKAGES):
        return 2
    found, counts = [], collections.Counter()
    try:
        bench.need_skinflint()
        for name, command in programs.items():
            words = [inputs.ensure(bench.inputs, word[1:-1]) if word.startswith("{sampler.") else word for word in command]
            rows, counted = program(bench.skinflint, name, words, arguments.seeds)
            found += rows
            counts += counted
    except (measure.Failed, subprocess.SubprocessError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    verdicts = judge(found, counts)
    for held, sentence in verdicts:
        print(f"{'held  ' if held else 'MISSED'} {sentence}")
    return 0 if all(held for held, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
