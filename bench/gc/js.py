#!/usr/bin/env python3
"""Boa on its own heap and on ours, and node: tabs that are closed, pauses, and the V8 suite's seven programs.

    skinflint js --json (a process for each figure) ──► rows ──► medians of alternated runs ──► bars

J1  Contents are checked: every tab says a checksum of its data when it is closed, and every heap must say the same
    ones; the seven programs check their own results.
J2  Memory is what the kernel counts, after a full collection and when it stands still. Time is processor time.
J3  A figure that is missing, or is no number, misses its bar.
J4  Pauses of the stock heap are timed from outside (js/host/src/watch.rs), ours by itself: whatever it does at an
    allocation is a pause if it takes 0.1 ms or more. Bars are for processor time of the engine's thread; wall
    time, which other work on the machine lengthens, stands beside it.
J5  What can be worked out on paper is predicted (`FORETOLD`): live objects from the programs' sources, freed ones from counts
    in an instrumented stock boa_gc, memory from tenants that are apart. What does not come true is a fault like a missed bar.
"""
import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
JS = os.path.join(HERE, "js")
OCTANE = os.path.join(JS, "node_modules", "benchmark-octane", "lib", "octane")
FOLDER = os.path.join(ROOT, "target", "bench", "gc")
SEED = "20081021 + the tab's number (js/tab.js)"
LIMIT_S = 1800
# Heap, malloc: the combinations, by the name that the tables have.
KINDS = {
    "stock": ("stock", "system"),
    "stock+malloc": ("stock", "skinflint"),
    "ours+system": ("skinflint", "system"),
    "ours": ("skinflint", "skinflint"),
}
# Program of the suite, its file, runs of its fixed work: some seconds on Boa for those that collect.
SEVEN = [
    ("Richards", "richards", [("Richards", 8)]),
    ("DeltaBlue", "deltablue", [("DeltaBlue", 8)]),
    ("Crypto", "crypto", [("Encrypt", 4), ("Decrypt", 1)]),
    ("RayTrace", "raytrace", [("RayTrace", 4)]),
    ("EarleyBoyer", "earley-boyer", [("Earley", 2), ("Boyer", 1)]),
    ("RegExp", "regexp", [("RegExp", 1)]),
    ("Splay", "splay", [("Splay", 60)]),
]
# Those that make stock Boa collect while they run.
COLLECT = {"RayTrace", "EarleyBoyer", "RegExp", "Splay"}

# Name: (at least or at most, figure, what it is).
BARS = {
    "tabs": [
        ("one_of_150", "most", 1.18, "RSS with all but one of 150 tabs closed over that of one tab"),
        ("half_of_150", "most", 0.55, "RSS with every second of 150 tabs closed over that with all open"),
    ],
    "pause": [("pause_ratio", "most", 2.0, "longest pause with one of 60 tabs allocating over that with one tab")],
    "splay": [
        ("p99_ms", "most", 5.0, "99 of 100 pauses of Splay with 80 MB alive, ms"),
        ("longest_ms", "most", 10.0, "longest pause of Splay with 80 MB alive, ms"),
        ("share_outside", "least", 0.95, "share of Splay's dead objects freed outside pauses"),
    ],
    "seven": [
        ("collecting", "least", 1.10, "score of those that collect over stock's, geometric mean"),
        ("worst", "least", 0.99, "score of the worst of the seven over stock's"),
        ("share_outside", "least", 0.95, "share of dead objects freed outside pauses, all seven"),
        ("shorter", "least", 0.20, "how much shorter the pauses of those that collect are than with sweeping in them"),
    ],
    "seven150": [("worst150", "least", 0.95, "score with 150 tabs open over that with one, the worst of the seven")],
}

# On paper. An object of the engine takes 104 bytes (nine in ten do); a record of depth 5 is 31 + 32 objects and 32 arrays.
CELL, RECORD = 104, 31 + 32 + 32
# Of a tab: 150 nodes with a record each. Beside them closures, scopes, shapes: up to a fifth more.
TAB_BYTES = 150 * (1 + RECORD) * CELL
# Objects that stock boa_gc was seen to allocate in the same work; all but what lives in the end (some thousands) are freed.
ALLOCATED = {"RayTrace": 534_721, "RegExp": 717_640}
# Part: (figure, at least, at most, what it is).
FORETOLD = {
    "tabs": [
        ("tab_bytes", 1.0, 1.2, "bytes of a tab's objects over 150 nodes with a record each"),
        # Tenants are apart, so a closed tab takes along what an open one has.
        ("half_way", 0.9, 1.1, "RSS with every second tab closed over the middle between all and one"),
    ],
    "pause": [("pause_ratio", 0.5, 2.0, "only the tenant that allocates is looked at: the same pause among others")],
    "seven": [(f"freed_{name}", 0.97, 1.03, f"objects that {name} freed, over those that stock allocates")
              for name in ALLOCATED],
}


def foretold(part, figures):
    """Lines on a part's predictions, and those that did not come true (J5)."""
    lines, wrong = [], []
    for key, least, most, what in FORETOLD.get(part, []):
        value = figures.get(key)
        came = isinstance(value, (int, float)) and least <= value <= most
        line = f"predicted {least} to {most}, {'not measured' if value is None else f'was {value:.3f}'}: {what}"
        lines.append(line)
        if not came:
            wrong.append(line)
    return lines, wrong


def missed(part, figures):
    """The bars of a part that its figures do not meet (J3)."""
    faults = []
    for key, sense, bar, what in BARS[part]:
        value = figures.get(key)
        good = isinstance(value, (int, float)) and (value <= bar if sense == "most" else value >= bar)
        if not good:
            shown = "not measured" if value is None else f"{value:.3f}"
            faults.append(f"{what}: {shown}, at {sense} {bar}")
    return faults


def tool():
    for folder in ("release", "debug"):
        path = os.path.join(ROOT, "target", folder, "skinflint")
        if os.path.exists(path):
            return path
    sys.exit("skinflint is not built: run `make build js`")


def js(kind, files, *options):
    """A run of the host: its report. Everything that it printed is in it."""
    heap, malloc = KINDS[kind]
    command = [tool(), "js", *files, "--heap", heap, "--json", *options]
    if not (heap == "stock" and "--pauses" in options):
        command += ["--malloc", malloc]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    return json.loads(done.stdout)


def output(report, skip=0):
    return [line for row in report["programs"][skip:] for line in row["output"]]


def rss(report):
    return {instant["at"]: instant["rss_bytes"] for instant in report["memory"]}


def node(tabs):
    """The same tabs as vm contexts of node, closed in the same order."""
    script = os.path.join(JS, "node_tabs.js")
    command = ["node", "--expose-gc", script, os.path.join(JS, "tab.js"), str(tabs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    return json.loads(done.stdout)


def mb(count):
    return "–" if count is None else f"{count / 1e6:.1f}"


def tabs(options):
    """Tabs opened side by side, every second closed, all but one closed."""
    counts = [1, 20] if options.quick else [1, 20, 60, 150]
    most = counts[-1]
    runs = [(kind, []) for kind in KINDS] + [("ours", ["--no-separate"])]
    print(f"{'tabs: RSS in MB after a full collection':40}{'tabs':>6}{'open':>9}{'half':>9}{'one':>9}{'trimmed':>9}")
    table, checks = {}, {}
    for count in counts:
        for kind, extra in runs:
            name = kind + ("" if not extra else ", not apart")
            report = js(kind, [os.path.join(JS, "tab.js")], "--tabs", str(count), "--close", "all-but-one", *extra)
            checks.setdefault(count, {})[name] = sorted(output(report))
            table[name, count] = at = rss(report)
            if name == "ours":
                tab_bytes = report["memory"][0]["user_bytes"] / count
            row(name, count, at)
        answer = node(count)
        checks[count]["node"] = sorted(answer["output"])
        table["node", count] = answer["rss"]
        row("node", count, answer["rss"])
    for count, said in checks.items():
        if len({json.dumps(lines) for lines in said.values()}) != 1 or "DAMAGED" in json.dumps(said):
            raise RuntimeError(f"{count} tabs do not hold the same data on every heap: {said}")
    figures = {"tabs": most}
    for name in {name for name, _ in table}:
        one, all_of = table[name, 1], table[name, most]
        mine = {"one": all_of.get("all but one closed", 0) / one["open"],
                "half": all_of["half closed"] / all_of["open"]}
        figures[name] = mine
    of_one, of_all = table["ours", 1], table["ours", most]
    figures["half_way"] = of_all["half closed"] / ((of_all["open"] + of_one["open"]) / 2)
    figures["tab_bytes"] = tab_bytes / TAB_BYTES
    figures["one_of_150"], figures["half_of_150"] = figures["ours"]["one"], figures["ours"]["half"]
    print(f"\n{'of ' + str(most) + ' tabs':24}{'all but one closed, × one tab':>32}{'every second closed, of open':>32}")
    for name in [*KINDS, "ours, not apart", "node"]:
        print(f"{name:24}{figures[name]['one']:32.2f}{figures[name]['half']:31.0%}")
    figures["table"] = {f"{name}/{count}": at for (name, count), at in table.items()}
    return figures


def row(name, count, at):
    closed = [at.get(key) for key in ("open", "half closed", "all but one closed", "after malloc_trim")]
    print(f"{name:40}{count:6}" + "".join(f"{mb(value):>9}" for value in closed), flush=True)


def longest(report, phase, by="pauses_cpu"):
    """Longest pause of a phase in ms (J4)."""
    return report[by].get(phase, {"longest_us": math.nan})["longest_us"] / 1e3


def pause(options):
    """One tab allocates; the others hold data and stand still."""
    others = 19 if options.quick else 59
    rounds = 3 if options.quick else 5
    tab, busy = os.path.join(JS, "tab.js"), os.path.join(JS, "busy.js")
    rows = {}
    for _ in range(rounds):
        for kind in ("stock", "ours"):
            alone = js(kind, [busy], "--pauses")
            among = js(kind, [tab], "--tabs", str(others), "--then", busy, "--pauses")
            assert output(alone) == output(among, others), "the busy tab said something else among others"
            rows.setdefault(kind, []).append((longest(alone, "open"), longest(among, "then"),
                                              longest(alone, "open", "pauses"), longest(among, "then", "pauses")))
    print(f"{'one tab allocates, ms':24}{'alone: longest':>16}{'(wall)':>9}{f'of {others + 1}: longest':>20}{'(wall)':>9}{'ratio':>9}")
    figures = {}
    for kind, of in rows.items():
        alone, among, alone_wall, among_wall = (statistics.median(column) for column in zip(*of))
        figures[kind] = {"alone_ms": alone, "among_ms": among, "ratio": among / alone if alone else math.nan}
        print(f"{kind:24}{alone:16.3f}{alone_wall:9.3f}{among:20.3f}{among_wall:9.3f}{figures[kind]['ratio']:9.2f}")
    figures["pause_ratio"] = figures["ours"]["ratio"]
    return figures


def runner(name, file, work):
    """A script that loads a program of the suite and does its fixed work."""
    path = os.path.join(FOLDER, f"octane-{name}.js")
    os.makedirs(FOLDER, exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"const WORK = {json.dumps(work)};\n")
        for script in (os.path.join(OCTANE, "base.js"), os.path.join(OCTANE, file + ".js"), os.path.join(JS, "octane.js")):
            out.write(f"load({json.dumps(script)});\n")
    return path


def fetched():
    if not os.path.exists(OCTANE):
        subprocess.run(["npm", "ci", "--prefix", JS, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
                       check=True)


def work_ms(report, skip=0):
    """Processor time that the work took, and what it was."""
    lines = [line.split() for line in output(report, skip) if line.startswith("work ")]
    return sum(float(line[3]) for line in lines), [line[1:3] for line in lines]


def splay(options):
    """Splay: about 80 MB alive in the heap, and as much outside."""
    fetched()
    runs = 20 if options.quick else 150
    path = runner("Splay80", "splay", [("Splay", runs)])
    figures = {}
    print(f"{'Splay × ' + str(runs):16}{'pauses':>8}{'half, ms':>10}{'99 %':>9}{'longest':>9}{'(wall)':>9}{'together':>10}"
          f"{'of CPU':>8}{'outside':>9}{'RSS MB':>9}")
    for kind in ("stock", "ours+system", "ours"):
        report = js(kind, [path], "--pauses", "--clock", "cpu")
        said, wall = report["pauses_cpu"]["open"], report["pauses"]["open"]
        total = said["total_us"] / 1e3
        figures[kind] = mine = {
            "p50_ms": said["p50_us"] / 1e3, "p99_ms": said["p99_us"] / 1e3, "longest_ms": longest(report, "open"),
            "share_outside": report["share_outside_pauses"], "gc_share": total / report["cpu_ms"],
            "work_ms": work_ms(report)[0],
        }
        share = "–" if mine["share_outside"] is None else f"{mine['share_outside']:.1%}"
        print(f"{kind:16}{said['count']:8}{mine['p50_ms']:10.3f}{mine['p99_ms']:9.3f}{said['longest_us'] / 1e3:9.3f}"
              f"{wall['longest_us'] / 1e3:9.3f}{total:10.1f}{mine['gc_share']:8.1%}{share:>9}"
              f"{mb(rss(report)['open']):>9}", flush=True)
    figures.update({key: figures["ours"][key] for key in ("p99_ms", "longest_ms", "share_outside")})
    return figures


def paired(path, first, second, rounds):
    """Processor time of alternated pairs: medians, and the median of the ratios first / second."""
    pairs = []
    for number in range(rounds):
        turn = [first, second] if number % 2 == 0 else [second, first]
        taken = {id(run): run(path) for run in turn}
        pairs.append((taken[id(first)], taken[id(second)]))
    ratio = statistics.median(one / two for one, two in pairs)
    return statistics.median(one for one, _ in pairs), statistics.median(two for _, two in pairs), ratio


def chosen(options):
    rounds = 1 if options.quick else 5
    return rounds, [(name, runner(name, file, work)) for name, file, work in SEVEN]


def seven(options):
    """The seven programs alone in one tab: fixed work, processor time; scores are its inverse."""
    fetched()
    rounds, programs = chosen(options)
    figures, freed, pauses = {}, [0, 0], [0.0, 0.0]
    print(f"{'one tab, CPU ms':16}{'stock':>10}{'ours':>10}{'score':>9}{'ours+sys':>10}{'outside':>9}{'pauses ms':>11}"
          f"{'swept in them':>15}")
    for name, path in programs:
        run = {kind: (lambda path, kind=kind: work_ms(js(kind, [path], "--clock", "cpu"))[0]) for kind in KINDS}
        stock, ours, ratio = paired(path, run["stock"], run["ours"], rounds)
        system = run["ours+system"](path)
        report = js("ours", [path], "--clock", "cpu", "--pauses")
        swept = js("ours", [path], "--clock", "cpu", "--pauses", "--sweep-in-pause")
        total, with_sweep = (of["pauses_cpu"]["open"]["total_us"] / 1e3 for of in (report, swept))
        if name in COLLECT:
            pauses = [pauses[0] + total, pauses[1] + with_sweep]
        of = report["freed"]
        freed[0] += of["lazily"] + of["elsewhere"]
        freed[1] += sum(of.values())
        share = report["share_outside_pauses"]
        figures[name] = ratio
        if name in ALLOCATED:
            figures[f"freed_{name}"] = sum(of.values()) / ALLOCATED[name]
        print(f"{name:16}{stock:10.1f}{ours:10.1f}{ratio:9.3f}{system:10.1f}{'–' if share is None else f'{share:.1%}':>9}"
              f"{total:11.1f}{with_sweep:15.1f}", flush=True)
    figures["shorter"] = 1 - pauses[0] / pauses[1] if pauses[1] else math.nan
    collecting = [figures[name] for name in COLLECT]
    figures["collecting"] = math.exp(sum(map(math.log, collecting)) / len(collecting))
    figures["worst"] = min(figures[name] for name, _ in programs)
    figures["share_outside"] = freed[0] / freed[1] if freed[1] else math.nan
    return figures


def seven150(options):
    """The seven programs while 150 other tabs hold data: score over that with one tab."""
    fetched()
    rounds, programs = chosen(options)
    rounds = min(rounds, 3)
    others = 20 if options.quick else 150
    tab = os.path.join(JS, "tab.js")
    figures = {}
    print(f"{f'{others} tabs open':16}{'stock: one':>12}{'many':>10}{'score':>8}{'ours: one':>12}{'many':>10}{'score':>8}")
    for name, path in programs:
        line = f"{name:16}"
        for kind in ("stock", "ours"):
            alone = lambda path: work_ms(js(kind, [path], "--clock", "cpu"))[0]
            among = lambda path: work_ms(js(kind, [tab], "--tabs", str(others), "--then", path, "--clock", "cpu"), others)[0]
            one, many, ratio = paired(path, alone, among, 1 if kind == "stock" else rounds)
            figures[kind, name] = ratio
            line += f"{one:12.1f}{many:10.1f}{ratio:8.3f}"
        print(line, flush=True)
    return {"worst150": min(figures["ours", name] for name, _ in programs),
            "table": {f"{kind}/{name}": ratio for (kind, name), ratio in figures.items()}}


PARTS = {"tabs": tabs, "pause": pause, "splay": splay, "seven": seven, "seven150": seven150}


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as text:
        model = next((line.split(":")[1].strip() for line in text if line.startswith("model name")), platform.machine())
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
    return (f"Boa 0.22.0, node {version}, benchmark-octane 1.0.1; commit {commit.stdout.strip() or 'unknown'}; "
            f"{os.cpu_count()} × {model}, Linux {platform.release()}; seed {SEED}")


def selftest():
    for part, bars in BARS.items():
        good = {key: bar for key, _, bar, _ in bars}
        assert not missed(part, good), part
        for key, sense, bar, _ in bars:
            worse = bar * 1.01 if sense == "most" else bar * 0.99
            for value in (worse, math.nan, None):
                assert len(missed(part, dict(good, **{key: value}))) == 1, (part, key, value)
    for part, known in FORETOLD.items():
        good = {key: (least + most) / 2 for key, least, most, _ in known}
        assert not foretold(part, good)[1], part
        for key, least, most, _ in known:
            for value in (least * 0.99, most * 1.01, math.nan, None):
                assert len(foretold(part, dict(good, **{key: value}))[1]) == 1, (part, key, value)
    times = iter([10.0, 5.0, 5.0, 20.0])
    first, second = (lambda _: next(times)), (lambda _: next(times))
    # The second pair is run in the opposite order: 20 is the first's.
    assert paired("", first, second, 2) == (15.0, 5.0, 3.0)
    print("bench/gc/js.py: each bar can be missed, and each prediction")
    return 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default=",".join(PARTS), help="parts, with commas: " + ", ".join(PARTS))
    arguments.add_argument("--quick", action="store_true", help="fewer tabs, rounds and runs: a look, not a claim")
    arguments.add_argument("--json", default=os.path.join(FOLDER, "js.json"))
    arguments.add_argument("--selftest", action="store_true", help="see each bar missed once")
    options = arguments.parse_args()
    if options.selftest:
        return selftest()
    asked = options.only.split(",")
    wrong = [part for part in asked if part not in PARTS]
    if wrong:
        arguments.error(f"--only {','.join(wrong)}: there are {', '.join(PARTS)}")
    print(machine())
    results, faults = {}, []
    for part in asked:
        print(f"\n-- {part}: {PARTS[part].__doc__}", flush=True)
        try:
            results[part] = PARTS[part](options)
        except (RuntimeError, subprocess.SubprocessError, OSError, AssertionError) as error:
            print(f"not measured: {error}")
            results[part] = {}
        for fault in missed(part, results[part]):
            faults.append(fault)
            print("missed:", fault)
        lines, wrong = foretold(part, results[part])
        for line in lines:
            print(line)
        # A look at fewer tabs and rounds is not what was predicted.
        faults += [] if options.quick else [f"not as {line}" for line in wrong]
        held = len(BARS[part]) - len(missed(part, results[part]))
        print(f"{part}: {held} of {len(BARS[part])} bars held")
    os.makedirs(os.path.dirname(options.json), exist_ok=True)
    with open(options.json, "w", encoding="utf-8") as out:
        json.dump({"machine": machine(), "quick": options.quick, "results": results, "missed": faults}, out, indent=1,
                  default=str)
    if options.quick:
        print("\n--quick: fewer tabs than the bars are for")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
