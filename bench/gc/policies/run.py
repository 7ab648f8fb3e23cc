#!/usr/bin/env python3
"""Free-list policies on synthetic traces by seed: the ordering of the study, and ours beside the best of the twelve.

    shapes × seeds ──► skinflint gc --json (every policy, rounds in turn) ──► medians of ratios ──► bars

P1  Memory is exact and the same in every run; a ratio is the median over traces.
P2  Time is CPU time of one thread, medians over rounds and then over traces. Instructions (callgrind) decide where
    they are counted: they do not depend on what else the machine does.
P3  "The best of the twelve" is the studied policy with the smallest median of pages and descriptors.
P4  A bar that is missed is printed with its figures; the laws are not chosen by them. Other shares of what the collector
    allocates are printed beside the bar of many-origin, and do not enter it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
TARGET = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"))
TRACES = [f"{shape}:{seed}" for shape in ("steady", "phases", "independent") for seed in (1, 2, 3)]
QUICK = ["steady:1", "phases:1", "independent:1"]
STUDIED = ["legacy", "legacy-more-smalls", "fast-alloc", "full-pages", "many", "many-fast", "half-many",
           "half-many-fast", "more-1k", "more-2k", "more-2k-fast", "many-origin"]
# Those that V8 had, or could have had, before the study's own tables.
ORIGINALS = ["legacy", "legacy-more-smalls", "fast-alloc", "full-pages", "many"]
OURS = "tight"
# Of 100 objects, those that the collector allocates (the law has 77).
SHARES = [25, 50, 77, 90]
LIMIT_S = 3000


def measure(binary, traces, options, policies="studied"):
    words = [binary, "gc", "--json", "--policies", policies] + options
    for trace in traces:
        # A file, or a law by its name.
        words += [trace] if os.path.exists(trace) else ["--synthetic", trace]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        sys.exit(f"skinflint gc ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout)


def ratios(figures, key, base="legacy"):
    """Median over traces of each policy's figure over that of `base`."""
    out = {}
    for policy in [row["policy"] for row in figures[0]["rows"]]:
        each = []
        for trace in figures:
            rows = {row["policy"]: row for row in trace["rows"]}
            if rows[base].get(key) and rows[policy].get(key) is not None:
                each.append(rows[policy][key] / rows[base][key])
        if each:
            out[policy] = statistics.median(each)
    return out


def judge(pages, tables, mutator, work):
    """Bars, as (what, figure, at most). `pages`, `tables`, `mutator` by policy over legacy; `work` of ours over the best."""
    best = min(STUDIED, key=lambda policy: tables[policy])
    others = max(pages[policy] for policy in STUDIED if policy != "full-pages")
    originals = min(pages[policy] for policy in ORIGINALS if policy != "many")
    return [
        ("the largest but full-pages, over full-pages: pages", others / pages["full-pages"], 1.0),
        ("many over the best other original: pages", pages["many"] / originals, 1.0),
        ("many-origin over legacy: pages", pages["many-origin"], 0.965),
        ("many-origin over legacy: CPU time of the mutator", mutator["many-origin"], 1 / 0.99),
        (f"{OURS} over {best}, the best of the twelve: pages and descriptors", tables[OURS] / tables[best], 0.98),
        (f"{OURS} over {best}: pages alone", pages[OURS] / pages[best], 0.98),
        (f"{OURS} over {best}: {work[0]}", work[1], 1.0),
    ]


def missed(bars):
    return [bar for bar in bars if not bar[1] <= bar[2]]


def selftest():
    pages = {policy: 1.0 for policy in STUDIED}
    pages.update({"full-pages": 1.06, "many": 0.94, "many-origin": 0.96, "more-1k": 0.93, OURS: 0.90})
    mutator = {policy: 1.0 for policy in pages}
    good = (pages, pages, mutator, ("instructions", 0.99))
    assert not missed(judge(*good)), missed(judge(*good))
    for policy, worse, count in [("full-pages", 0.9, 1), ("many", 1.01, 1), ("many-origin", 0.97, 1), (OURS, 0.93, 2)]:
        bad = dict(pages, **{policy: worse})
        assert len(missed(judge(bad, bad, mutator, good[3]))) >= count, policy
    assert len(missed(judge(pages, pages, dict(mutator, **{"many-origin": 1.02}), good[3]))) == 1
    assert len(missed(judge(pages, pages, mutator, ("instructions", 1.01)))) == 1
    assert len(missed(judge(pages, pages, mutator, ("instructions", float("nan"))))) == 1
    print("bench/gc/policies/run.py: each bar can be missed")
    return 0


def print_table(title, columns):
    print(f"\n{title}\n{'':22}" + "".join(f"{name:>16}" for name, _ in columns))
    for policy in columns[0][1]:
        print(f"{policy:22}" + "".join(f"{column.get(policy, float('nan')):16.4f}" for _, column in columns))


def shares(binary, quick):
    """What many-origin holds over legacy by the share of objects that the collector allocates."""
    print("\nmany-origin over legacy, pages, by the share of objects that the collector allocates; 0.965 is the bar")
    out = {}
    for percent in SHARES:
        names = [f"{shape}:{seed}:{percent}" for shape in ("steady", "phases") for seed in ((1,) if quick else (1, 2, 3))]
        figures = measure(binary, names, ["--rounds", "1"], "many-origin,many")
        each = [ratios([trace], "committed_mean")["many-origin"] for trace in figures]
        out[percent] = statistics.median(each)
        print(f"  {percent} %: {out[percent]:.4f}, from {min(each):.4f} to {max(each):.4f}; many "
              f"{ratios(figures, 'committed_mean')['many']:.4f}")
    return out


def recorded(binary, traces):
    """Every policy on traces of real programs, one round each."""
    figures = measure(binary, traces, ["--rounds", "1"])
    for trace in figures:
        rows = {row["policy"]: row for row in trace["rows"]}
        print_table(f"{os.path.basename(trace['trace'])}: {trace['objects']} objects, {trace['bytes']} bytes; ratios to legacy", [
            ("pages", {name: row["committed_mean"] / rows["legacy"]["committed_mean"] for name, row in rows.items()}),
            ("+ descriptors", {name: row["with_tables_mean"] / rows["legacy"]["with_tables_mean"] for name, row in rows.items()}),
            ("pages, MiB", {name: row["committed_mean"] / 2 ** 20 for name, row in rows.items()})])
    return figures


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="three traces, one round, no instructions")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", default=os.path.join(TARGET, "bench", "gc", "policies.json"))
    arguments.add_argument("--selftest", action="store_true", help="see each bar missed once")
    arguments.add_argument("traces", nargs="*", help="object traces of real programs: tables beside the bars")
    options = arguments.parse_args()
    if options.selftest:
        return selftest()
    binary = os.path.join(TARGET, "release", "skinflint")
    if not os.path.exists(binary):
        sys.exit(f"{binary}: not there; cargo build --release -p skinflint-cli")
    traces = QUICK if options.quick else TRACES
    rounds = ["--rounds", "1" if options.quick else str(options.rounds)]
    figures = measure(binary, traces, rounds)
    pages, tables = ratios(figures, "committed_mean"), ratios(figures, "with_tables_mean")
    mutator = ratios(figures, "mutator_ms")
    print_table(f"Compactor as in V8; {len(traces)} traces, medians of ratios to legacy", [
        ("pages", pages), ("+ descriptors", tables), ("peak", ratios(figures, "committed_peak")),
        ("mutator CPU", mutator), ("all CPU", ratios(figures, "total_ms"))])
    # What each policy holds without the compactor, against legacy with it.
    without = measure(binary, traces, ["--rounds", "1", "--compact", "never"])
    for trace, compacted in zip(without, figures):
        compacted = {row["policy"]: row for row in compacted["rows"]}
        trace["rows"].insert(0, dict(compacted["legacy"], policy="legacy, compacted"))
        trace["rows"] += [dict(compacted[OURS], policy=OURS + ", compacted")]
    print_table("Without the compactor; medians of ratios to legacy with it", [
        ("pages", ratios(without, "committed_mean", "legacy, compacted")),
        ("all CPU", ratios(without, "total_ms", "legacy, compacted")),
        ("longest end", ratios(without, "latency_max_ms", "legacy, compacted"))])
    best = min(STUDIED, key=lambda policy: tables[policy])
    work = ("all CPU time", ratios(figures, "total_ms", best)[OURS])
    if not options.quick:
        words = [binary, "gc", "--json", "--synthetic", "steady:1", "--rounds", "1", "--max-objects", "800000",
                 "--policies", f"legacy,{best},{OURS}", "--instructions"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode:
            sys.exit(f"skinflint gc --instructions ended with {done.returncode}: {done.stderr.strip()[-400:]}")
        rows = {row["policy"]: row["instructions"] for row in json.loads(done.stdout)[0]["rows"]}
        print("\nInstructions (steady:1, 800,000 objects): " + ", ".join(f"{k} {v / 1e6:.1f} M" for k, v in rows.items()))
        work = ("instructions", rows[OURS] / rows[best])
    by_share = shares(binary, options.quick)
    real = recorded(binary, options.traces) if options.traces else []
    bars = judge(pages, tables, mutator, work)
    print()
    for what, figure, most in bars:
        print(f"{'held  ' if figure <= most else 'MISSED'} {figure:.4f}, at most {most:.4f}: {what}")
    os.makedirs(os.path.dirname(options.json), exist_ok=True)
    with open(options.json, "w", encoding="utf-8") as out:
        json.dump({"figures": figures, "without_compactor": without, "many_origin_by_share": by_share, "recorded": real,
                   "bars": bars}, out, indent=1)
    return 1 if missed(bars) else 0


if __name__ == "__main__":
    sys.exit(main())
