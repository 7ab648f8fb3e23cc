#!/usr/bin/env python3
"""Does advice pay? Programs with one planted fault each, beside a twin in which the fault is mended as the advice says.

    expect.toml ──► build, twice ──► record ──► report --json ──► claims │ found │ predicted against real ──► bars

python3 tests/truth/truth.py [--only TEXT] [--jobs N] [--keep] [--verbose] [--selftest]

T1  A claim is a finding that promises at least a hundredth of resident memory (of live memory, where no page was looked at;
    or, over the run, of what was asked for).
    It pays if it is of the planted kind and function and the twin saves at least half of it; free memory that the fault
    has left behind (retained, or pinned by the planted function) pays if the twin's resident memory is smaller by at
    least half of the claim. A control has none to make.
T2  A fault is found if a finding of its kind names its function: the innermost frame that only passes on is none.
T3  Real is the difference of the twins by the report's own moment, in the measure that expect.toml names. Resident is without
    pages of files and without the recorder's own, which are as large as it happens.
T4  A prediction holds if it is within 15 % of what is real.
T5  What is called certain and does not pay, or does not hold, is wrong.
T6  No byte is promised twice: what findings save of live blocks is together no more than the blocks hold, of the
    process and of each function; what they save of free memory no more than is free: pages that recorded blocks were on
    ("free, kept by the allocator"), not those that no block was ever seen on ("touched, no block ever seen").

Sets are judged apart, and together: the programs beside this file, with which the advice was made, and those of fresh/,
written from the documents alone. What the first shows and the second does not was learned by heart.
unseen/ was written in the same way when the advice had been changed for fresh/.

Needs target/release/skinflint with its libraries, gcc, g++, rustc, libjemalloc.so.2 and libmimalloc.so.2.0.
Exit status: 0 if every bar is met, 1 if one is missed, 2 if the suite cannot run.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Folders with an expect.toml and its programs.
SETS = {"known": HERE, "fresh": HERE / "fresh", "unseen": HERE / "unseen"}
# A script's own functions are not on the stack: any is right.
ANY = "*"
TOOL = pathlib.Path(os.environ.get("SKINFLINT", ROOT / "target/release/skinflint"))
LIMIT_S = 120
PRELOAD = {
    "glibc": None,
    "jemalloc": "libjemalloc.so.2",
    "mimalloc": "libmimalloc.so.2.0",
    "skinflint": str(TOOL.parent / "libskinflint.so"),
}
# What a fault of another kind leaves behind.
CONSEQUENCES = ("retained", "pinned")
# The bars: share at least, or at most.
BARS = (
    ("claims that pay", "pay", 0.95),
    ("faults found", "found", 0.95),
    ("of these certain", "certain", 0.50),
    ("predictions within 15 %", "held", 0.90),
    ("certain and wrong", "wrong", 0),
    ("claims in controls", "control", 0),
    ("promised twice", "twice", 0),
)
# What a block may have beside its usable size: a header, which asking for less may save.
HEADER_BYTES = 16
# The row of the books that free memory is promised of (T6). "heap-unseen" is none: nothing shows that its pages are free.
FREE_ROWS = ("allocator-free",)
LIVE_KINDS = ("clownshoes", "slop", "growth", "placebo", "leak", "zombie")
FREE_KINDS = ("retained", "pinned")


class Broken(Exception):
    """The suite cannot run."""


def run(command, env=None):
    whole = dict(os.environ, **(env or {}))
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=LIMIT_S, env=whole)
    if done.returncode != 0:
        raise Broken(f"{' '.join(map(str, command))}: {done.stderr[-2000:]}")
    return done.stdout


def source_of(program):
    return SETS[program["set"]] / "programs" / program["source"]


def build(program, mended, folder):
    """The command that runs a program or its twin."""
    source = source_of(program)
    flags = program.get("with", "").split()
    target = folder / re.sub(r"\W+", "-", f"{program['name']}-{'mended' if mended else 'planted'}")
    if source.suffix == ".py":
        return ["/usr/bin/python3", "-B", source, *flags, *(["mended"] if mended else [])]
    if source.suffix == ".rs":
        cfg = [part for flag in flags + (["mended"] if mended else []) for part in ("--cfg", flag)]
        # Inlined functions keep their names in debug information; optimized as a release is.
        run([os.environ.get("RUSTC", "rustc"), "-O", "-g", *cfg, "-A", "unexpected_cfgs", "-o", target, source])
        return [target]
    compiler = "gcc" if source.suffix == ".c" else "g++"
    defines = [f"-D{flag}" for flag in flags + (["MENDED=1"] if mended else [])]
    run([compiler, "-O1", "-g", "-w", f"-I{ROOT}/include", *defines, "-o", target, source])
    return [target]


def report(program, command, under, env, trace):
    preload = PRELOAD[under]
    beneath = ["--preload", preload] if preload else []
    run([TOOL, "record", "--quiet", *beneath, "-o", trace, "--", *command], env)
    at = ["--at", program["at"]] if "at" in program else []
    return json.loads(run([TOOL, "report", "--json", *at, trace]))


def unbracketed(name):
    """A name without its parameters and template arguments, whichever is in the other."""
    name, depth, out = name.replace("->", ""), 0, []
    for letter in name:
        depth += (letter in "<(") - (letter in ">)")
        if depth == 0 and letter not in ">)":
            out.append(letter)
    return "".join(out)


def function_of(report, finding):
    """The name of the function that a finding is about."""
    node = finding.get("node")
    if node is None:
        return None
    plumbing = set(report["plumbing"])
    while node and report["nodes"][node]["frame"] in plumbing:
        node = report["nodes"][node]["parent"]
    name = report["frames"][report["nodes"][node]["frame"]]["function"]
    # Without parameters, paths and what a compiler adds.
    name = unbracketed(name)
    return re.split(r"::|\.", name.split(".constprop")[0].split(".isra")[0])[-1].strip()


# What no change to a program's allocations saves: pages of files as they are touched, and what the recorder itself takes.
NOT_THE_HEAPS = ("mapped-files", "program-files", "recorder")


def resident(report):
    """Of the program: resident bytes that its allocations may be the cause of."""
    books = report["instants"][report["at"]].get("books")
    if not books:
        return 0
    return books["resident_bytes"] - sum(row["bytes"] for row in books["rows"] if row["id"] in NOT_THE_HEAPS)


def size_of(report):
    """What a claim is measured by (T1): resident memory, or live memory where no page was looked at."""
    instant = report["instants"][report["at"]]
    books = instant.get("books")
    return books["resident_bytes"] if books else instant["live_usable_bytes"]


def measure(report, by):
    instant = report["instants"][report["at"]]
    if by == "resident":
        return resident(report)
    if by == "live":
        return instant["live_usable_bytes"]
    if by == "copied":
        return sum(row["copied_bytes"] for row in report["growth"])
    if by == "calls":
        return report["totals"]["allocations"]
    return 0


def promised(finding, by):
    """What a finding predicts, in a measure."""
    if by in ("resident", "live"):
        return finding["saved_bytes"]
    if by == "copied":
        return finding["saved_cumulative_bytes"]
    return finding["saved_allocations"] if by == "calls" else 0


def is_claim(finding, resident_bytes, requested_bytes):
    """T1."""
    if finding["saved_bytes"] > 0:
        return finding["saved_bytes"] * 100 >= resident_bytes
    return finding["kind"] == "growth" and finding["saved_cumulative_bytes"] * 100 >= max(requested_bytes, 1)


def twice(report):
    """T6: where more is promised than there is, in words."""
    out = []
    instant = report["instants"][report["at"]]
    held, promised = {}, {}
    for site in report["sites"]:
        name = function_of(report, site)
        held[name] = held.get(name, 0) + site["live_usable_bytes"] + HEADER_BYTES * site["live_blocks"]
    for finding in report["findings"]:
        # One of several functions: only the sum over the process is known.
        several = {function_of(report, {"node": node}) for node in finding["more_nodes"]} - {function_of(report, finding)}
        if finding["kind"] in LIVE_KINDS and not several:
            name = function_of(report, finding)
            promised[name] = promised.get(name, 0) + finding["saved_bytes"]
    out += [f"{name}: {amount(all)} of {amount(held.get(name, 0))}" for name, all in promised.items() if all > held.get(name, 0)]

    def saved(kinds):
        return sum(finding["saved_bytes"] for finding in report["findings"] if finding["kind"] in kinds)

    if saved(LIVE_KINDS) > instant["live_usable_bytes"] + HEADER_BYTES * instant["live_blocks"]:
        out.append(f"live blocks: {amount(saved(LIVE_KINDS))} of {amount(instant['live_usable_bytes'])}")
    # Free memory may be told of another moment, which has books of its own.
    books = [one["books"] for one in report["instants"] if one.get("books")]
    rows = [row["bytes"] for book in books for row in book["rows"] if row["id"] in FREE_ROWS]
    if saved(FREE_KINDS) > max(rows, default=0):
        out.append(f"free memory: {amount(saved(FREE_KINDS))} of {amount(max(rows, default=0))}")
    return out


def judge(program, planted, mended):
    """What came of one program: `planted` and `mended` are reports."""
    by = program.get("by", "nothing")
    result = {"claims": [], "found": None, "confidence": "", "predicted": 0, "real": 0, "also": []}
    result["twice"] = twice(planted)
    fault = program["kind"] != "none"
    if fault:
        result["real"] = measure(planted, by) - measure(mended, by)
    smaller = resident(planted) - resident(mended)
    for finding in planted["findings"]:
        named = function_of(planted, finding)
        meant = program.get("function") in (named, ANY)
        planned = fault and finding["kind"] == program["kind"] and meant
        claims = is_claim(finding, size_of(planted), planted["totals"]["requested_bytes"])
        if planned and finding["kind"] != "holder" and result["found"] is None:
            # The first is the largest; of leaks the one that lives at exit names whoever holds most.
            if finding["kind"] == "leak" and finding["title"].endswith("still live at exit"):
                continue
            result["found"] = finding["title"]
            result["confidence"] = finding["confidence"]
            result["predicted"] = promised(finding, by)
        if claims:
            # A second measure of the same fault is judged by bytes at the moment.
            own = by if promised(finding, by) else "resident"
            saves = result["real"] if own == by else 0
            pays = planned and saves * 2 >= promised(finding, own)
            if finding["kind"] in CONSEQUENCES and (meant or named is None):
                pays = pays or fault and smaller * 2 >= finding["saved_bytes"]
            result["claims"].append({
                "title": finding["title"], "function": named, "kind": finding["kind"],
                "certain": finding["confidence"] == "certain", "pays": pays, "bytes": promised(finding, own),
            })
    return result


def holds(result):
    """T4."""
    return abs(result["predicted"] - result["real"]) <= 0.15 * abs(result["real"])


def figures(rows):
    """The share for each bar, and what it is of: rows of (program, allocator, result)."""
    faults = [(program, result) for program, _, result in rows if program["kind"] != "none"]
    claims = [claim for _, _, result in rows for claim in result["claims"]]
    found = [(program, result) for program, result in faults if result["found"]]
    measured = [result for program, result in found if program["by"] != "nothing" and result["predicted"]]
    certain = [result for _, result in found if result["confidence"] == "certain"]
    wrong = sum(1 for claim in claims if claim["certain"] and not claim["pays"])
    wrong += sum(1 for result in certain if result["predicted"] and not holds(result))
    control = sum(len(result["claims"]) for program, _, result in rows if program["kind"] == "none")
    return {
        "pay": (sum(claim["pays"] for claim in claims), len(claims)),
        "found": (len(found), len(faults)),
        "certain": (len(certain), len(found)),
        "held": (sum(holds(result) for result in measured), len(measured)),
        "wrong": (wrong, None),
        "control": (control, None),
        "twice": (sum(len(result["twice"]) for _, _, result in rows), None),
    }


def missed(figures):
    """Bars that are missed, in words."""
    out = []
    for words, key, bar in BARS:
        part, whole = figures[key]
        if whole is None:
            if part > bar:
                out.append(f"{words}: {part}, at most {bar}")
        elif whole == 0 or part < bar * whole:
            out.append(f"{words}: {part} of {whole}, at least {bar:.0%}")
    return out


def amount(n):
    for unit in ("", " Ki", " Mi"):
        if abs(n) < 10_000:
            return f"{n:.0f}{unit}"
        n /= 1024
    return f"{n:.0f} Gi"


def table(rows, verbose):
    print(f"{'program':36} {'under':10} {'fault':11} {'found':9} {'predicted':>10} {'real':>10}  claims that pay")
    for program, under, result in rows:
        fault = program["kind"] != "none"
        found = result["confidence"] if result["found"] else ("NOT FOUND" if fault else "")
        pays = sum(claim["pays"] for claim in result["claims"])
        sure = "" if not result["predicted"] or holds(result) else "  OFF"
        figures = (amount(result["predicted"]), amount(result["real"])) if fault else ("", "")
        bad = "" if pays == len(result["claims"]) else "  <--"
        print(f"{program['name'][:36]:36} {under:10} {program['kind']:11} {found:9} {figures[0]:>10} {figures[1]:>10}"
              f"  {pays} of {len(result['claims'])}{sure}{bad}")
        for words in result["twice"]:
            print(f"      promised twice: {words}")
        for claim in result["claims"]:
            if verbose or not claim["pays"]:
                print(f"      {claim['kind']} in {claim['function']}: {claim['title']} ({amount(claim['bytes'])})")


def one(program, under, folder):
    mine = folder / re.sub(r"\W+", "-", f"{program['name']}-{under}")
    mine.mkdir()
    both = program.get("environment", {})
    planted = report(program, build(program, False, mine), under, both, mine / "planted.sft")
    mended = None
    if program["kind"] != "none" and program.get("by") != "nothing":
        alone = both | program.get("env", {})
        mended = report(program, build(program, True, mine), under, alone, mine / "mended.sft")
    return judge(program, planted, mended or planted)


def suite(only):
    programs = []
    for name, folder in SETS.items():
        with open(folder / "expect.toml", "rb") as file:
            programs += [dict(program, set=name) for program in tomllib.load(file)["program"]]
    cases = [(program, under) for program in programs for under in program["under"]]
    return [case for case in cases if only in f"{case[0]['name']} {case[1]} {case[0]['kind']} {case[0]['set']}"]


def apart(rows):
    """Figures of each set, and of all together."""
    sets = {name: [row for row in rows if row[0]["set"] == name] for name in SETS}
    return {name: figures(part) for name, part in (sets | {"together": rows}).items()}


def summary(all_figures):
    """The lines of the second table: a column for each set."""
    lines = [f"{'':26} {'bar':>9}" + "".join(f" {name:>18}" for name in all_figures)]
    for words, key, bar in BARS:
        line = f"{words:26} {f'≥ {bar:.0%}' if all_figures['together'][key][1] is not None else f'≤ {bar}':>9}"
        for got in all_figures.values():
            part, whole = got[key]
            line += f" {part if whole is None else f'{part} of {whole} ({part / max(whole, 1):.0%})':>18}"
        lines.append(line)
    return lines


def missed_by_set(all_figures):
    """A set meets the bars by itself: the many programs of one must not hide the few of another."""
    return [f"{name}: {line}" for name in SETS for line in missed(all_figures[name])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="programs whose name, allocator, kind or set has this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", action="store_true", help="keep programs and traces in target/truth")
    parser.add_argument("--verbose", action="store_true", help="list claims that pay, too")
    parser.add_argument("--selftest", action="store_true", help="test the judging only")
    args = parser.parse_args()
    if args.selftest:
        return selftest()
    if not TOOL.exists():
        raise Broken(f"{TOOL} is not there: cargo build --release")
    folder = ROOT / "target/truth" if args.keep else pathlib.Path(tempfile.mkdtemp(prefix="skinflint-truth-"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cases = suite(args.only)
    try:
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            results = list(pool.map(lambda case: one(*case, folder), cases))
    finally:
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    rows = [(program, under, result) for (program, under), result in zip(cases, results)]
    table(rows, args.verbose)
    all_figures = apart(rows)
    print()
    print("\n".join(summary(all_figures)))
    out = missed_by_set(all_figures) if not args.only else []
    for line in out:
        print(f"missed: {line}")
    return 1 if out else 0


# --- The judging, judged -------------------------------------------------------------------------------------------


def made_up(findings, live=10_000, requested=100_000, copied=0):
    """A report with frames 1 `record`, 2 `main`, and 3 `malloc`, which is plumbing; node 3 is malloc in record."""
    return {
        "at": 0,
        "instants": [{
            "books": {"resident_bytes": 20_000, "rows": [{"id": "allocator-free", "bytes": 4000}, {"id": "heap-unseen", "bytes": 5000}]},
            "live_usable_bytes": live, "live_blocks": 10,
        }],
        "sites": [
            {"node": 3, "live_usable_bytes": live - 2000, "live_blocks": 8},
            {"node": 1, "live_usable_bytes": 2000, "live_blocks": 2},
        ],
        "totals": {"requested_bytes": requested, "allocations": 10},
        "plumbing": [3],
        "frames": [{"function": name} for name in ("", "record", "main", "malloc")],
        "nodes": [{"parent": 0, "frame": 0}, {"parent": 0, "frame": 2}, {"parent": 1, "frame": 1}, {"parent": 2, "frame": 3}],
        "growth": [{"copied_bytes": copied}],
        "findings": findings,
    }


def finding(kind="slop", saved=1000, node=3, confidence="certain", over=0, calls=0, title="it"):
    return {
        "kind": kind, "saved_bytes": saved, "node": node, "confidence": confidence, "title": title,
        "saved_cumulative_bytes": over, "saved_allocations": calls, "more_nodes": [],
    }


FAULT = {"name": "p", "set": "known", "kind": "slop", "function": "record", "by": "live", "under": ["glibc"]}
CONTROL = {"name": "c", "set": "known", "kind": "none", "under": ["glibc"]}


class Judging(unittest.TestCase):
    """Each case is a fault of the advice that the suite must see."""

    def judged(self, program, findings, mended_live=9_000, **more):
        return judge(program, made_up(findings, **more), made_up([], live=mended_live))

    def bars(self, *rows):
        return [line.split(":")[0] for line in missed(figures([(program, "glibc", result) for program, result in rows]))]

    def test_what_is_right_meets_every_bar(self):
        result = self.judged(FAULT, [finding()])
        self.assertEqual((result["found"], result["predicted"], result["real"]), ("it", 1000, 1000))
        self.assertEqual(self.bars((FAULT, result), (CONTROL, self.judged(CONTROL, []))), [])

    def test_a_fault_of_another_function_or_kind_is_not_found_and_its_claim_does_not_pay(self):
        for other in (finding(node=1), finding(kind="churn")):
            result = self.judged(FAULT, [other])
            self.assertIsNone(result["found"])
            self.assertIn("faults found", self.bars((FAULT, result)))
            self.assertIn("claims that pay", self.bars((FAULT, result)))
            self.assertIn("certain and wrong", self.bars((FAULT, result)))

    def test_a_promise_that_is_not_kept(self):
        # 1,000 promised and 100 saved: neither pays nor holds, and was called certain.
        result = self.judged(FAULT, [finding()], mended_live=9_900)
        self.assertEqual(self.bars((FAULT, result)),
                         ["claims that pay", "predictions within 15 %", "certain and wrong"])

    def test_fifteen_per_cent(self):
        for real, kept in ((1150, True), (1180, False), (870, True), (860, False)):
            result = self.judged(FAULT, [finding()], mended_live=10_000 - real)
            self.assertEqual(holds(result), kept, real)

    def test_a_claim_begins_at_a_hundredth_and_a_control_has_none(self):
        self.assertEqual(len(self.judged(CONTROL, [finding(saved=199)])["claims"]), 0)
        result = self.judged(CONTROL, [finding(saved=200, confidence="possible")])
        self.assertEqual(len(result["claims"]), 1)
        self.assertIn("claims in controls", self.bars((FAULT, self.judged(FAULT, [finding()])), (CONTROL, result)))

    def test_without_a_look_at_pages_a_claim_is_a_hundredth_of_what_lives(self):
        for saved, claims in ((99, 0), (100, 1)):
            control = made_up([finding(saved=saved)])
            del control["instants"][0]["books"]
            self.assertEqual(len(judge(CONTROL, control, control)["claims"]), claims)

    def test_what_the_recorder_takes_is_not_saved(self):
        planted, mended = made_up([finding()]), made_up([])
        books = mended["instants"][0]["books"]
        books["resident_bytes"] -= 1000 + 250 * len(NOT_THE_HEAPS)
        for part in NOT_THE_HEAPS:
            planted["instants"][0]["books"]["rows"].append({"id": part, "bytes": 700})
            books["rows"].append({"id": part, "bytes": 450})
        self.assertEqual(judge(dict(FAULT, by="resident"), planted, mended)["real"], 1000)

    def test_half_must_be_certain(self):
        sure, unsure = (self.judged(FAULT, [finding(confidence=how)]) for how in ("certain", "likely"))
        self.assertEqual(self.bars((FAULT, sure), (FAULT, unsure)), [])
        self.assertEqual(self.bars((FAULT, sure), (FAULT, unsure), (FAULT, unsure)), ["of these certain"])

    def test_what_lives_at_exit_is_no_leak_found(self):
        fault = dict(FAULT, kind="leak")
        result = self.judged(fault, [finding(kind="leak", saved=0, title="12 blocks still live at exit")])
        self.assertIsNone(result["found"])

    def test_growth_is_judged_by_what_was_copied(self):
        fault = dict(FAULT, kind="growth", by="copied")
        planted = made_up([finding(kind="growth", saved=0, over=50_000)], copied=60_000)
        result = judge(fault, planted, made_up([], copied=10_000))
        self.assertEqual((result["predicted"], result["real"]), (50_000, 50_000))
        self.assertTrue(result["claims"][0]["pays"])
        result = judge(fault, planted, made_up([], copied=59_000))
        self.assertFalse(result["claims"][0]["pays"])

    def test_what_a_fault_leaves_behind_pays_with_it(self):
        left = finding(kind="retained", saved=4000, node=None)
        smaller = made_up([], live=9_000)
        for resident_bytes, pays in ((17_000, True), (19_000, False)):
            smaller["instants"][0]["books"]["resident_bytes"] = resident_bytes
            claims = judge(FAULT, made_up([finding(), left]), smaller)["claims"]
            self.assertEqual([claim["pays"] for claim in claims], [True, pays])

    def test_no_byte_is_promised_twice(self):
        # `record` holds 8,000 bytes in 8 blocks, `main` 2,000; 4,000 are free, and no block was on 5,000.
        for found, words in (
            ([finding(saved=8128), finding(node=1, saved=1000)], []),
            ([finding(saved=8129)], ["record"]),
            ([finding(saved=5000), finding(kind="leak", saved=5000)], ["record"]),
            ([finding(kind="retained", saved=3000, node=None), finding(kind="pinned", saved=1000)], []),
            ([finding(kind="retained", saved=3000, node=None), finding(kind="pinned", saved=1001)], ["free memory"]),
        ):
            result = self.judged(FAULT, found)
            self.assertEqual([line.split(":")[0] for line in result["twice"]], words)
            self.assertEqual("promised twice" in self.bars((FAULT, result)), bool(words))

    def test_an_empty_suite_proves_nothing(self):
        self.assertEqual(len(missed(figures([]))), 4)

    def test_names_are_those_of_functions(self):
        report = made_up([finding()])
        for name, short in (("a::b<int>::record(int)", "record"), ("record.constprop.0", "record"), ("record", "record"),
                            ("Pool<std::pair<int, int> >::record(std::pair<int, int> const&, int)", "record"),
                            ("<a::B as c::D<fn(i32) -> i32>>::record", "record")):
            report["frames"][1]["function"] = name
            self.assertEqual(function_of(report, finding()), short)

    def test_a_script_is_found_by_kind_in_any_function(self):
        script = dict(FAULT, function=ANY)
        for other in (finding(node=1), finding(node=3)):
            result = self.judged(script, [other])
            self.assertEqual((result["found"], [claim["pays"] for claim in result["claims"]]), ("it", [True]))
        self.assertIsNone(self.judged(script, [finding(kind="churn")])["found"])

    def test_a_set_does_not_hide_the_misses_of_another(self):
        good, bad = self.judged(FAULT, [finding()]), self.judged(FAULT, [])
        results = zip(SETS, (good, bad, good))
        known, fresh, unseen = ((dict(FAULT, set=name), "glibc", result) for name, result in results)
        rows = [known] * 98 + [fresh, unseen]
        self.assertEqual(missed(figures(rows)), [])
        got = apart(rows)
        self.assertEqual([got[name]["found"] for name in got], [(98, 98), (0, 1), (1, 1), (99, 100)])
        self.assertIn("fresh: faults found: 0 of 1, at least 95%", missed_by_set(got))
        shares = "98 of 98 (100%) 0 of 1 (0%) 1 of 1 (100%) 99 of 100 (99%)"
        self.assertEqual(summary(got)[2].split("95%")[1].split(), shares.split())

    def test_names_are_apart_and_no_program_is_without_an_expectation(self):
        cases = [(program["name"], under) for program, under in suite("")]
        self.assertEqual(sorted(cases), sorted(set(cases)))
        used = {source_of(program) for program, _ in suite("")}
        shared = {"mark.rs", "marks.py", "seeded.h", "dice.rs", "dice.py", "dice.h"}
        for folder in SETS.values():
            there = {path for path in (folder / "programs").iterdir() if path.name not in shared and path.is_file()}
            self.assertEqual(there - used, set())

    def test_the_table_of_expectations_is_whole(self):
        for program, under in suite(""):
            self.assertIn(under, PRELOAD, program)
            self.assertTrue(source_of(program).exists(), program)
            if program["kind"] != "none":
                self.assertIn(program["by"], ("resident", "live", "copied", "calls", "nothing"), program)


def selftest():
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Judging)
    return 0 if unittest.TextTestRunner(verbosity=1).run(tests).wasSuccessful() else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Broken, subprocess.TimeoutExpired) as error:
        print(f"truth: {error}", file=sys.stderr)
        sys.exit(2)
