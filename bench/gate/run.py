"""Is the verdict of `skinflint check` the same in each run? Five real projects' own test suites, 20 runs of each.

    registries ─► FOLDER/NAME ─► first run: figures ─► budgets of `held` (a few per cent above) and `broken` (a tenth below)
                                 20 runs ─► verdict of each budget in both ─► as often as the first one: the table

        python3 bench/gate/run.py --skinflint target/release/skinflint [--only semver] [--runs 20] [--folder DIR]

    idna         PyPI's source distribution, by pytest; the whole suite in one process
    semver       crates.io, its test_version by `cargo skinflint test`; each test in a process of its own
    qs           npm, its tests by tape in one process of node
    googletest   Debian's sources (package googletest), its own tests with our listener: each test a phase
    cpython      Debian's libpython3.11-testsuite: four modules of CPython's own tests

Q1  A suite's memory is what it is: nothing in it is changed. Python has malloc's blocks and a fixed hash seed, as the pytest
    plugin has it (docs/check.md).
Q2  A run counts as the same only if each budget has the verdict that it had in the first run; a run that could not be
    judged counts as another one.

By hand, and not in a tier: it fetches, and takes some minutes.
"""

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# What a held budget has above the first run's figure, and a broken one below it.
ABOVE = {"allocations": 1.02, "peak-live": 1.05, "live-at-end": 1.05, "peak-rss": 1.5, "growth": 1.02}
BELOW = 0.9
PYTHON = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def said(*words, cwd=None):
    ended = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{' '.join(words)}: status {ended.returncode}\n{ended.stderr}{ended.stdout}")
    return ended.stdout


class Suite:
    """A suite that is one process: a command under `skinflint check`."""

    # Figures that get a budget.
    figures = ["allocations", "peak-live", "live-at-end", "peak-rss"]

    def __init__(self, skinflint, folder):
        self.skinflint, self.folder = skinflint, folder
        os.makedirs(folder, exist_ok=True)

    def checked(self, words, limits):
        """The verdict of a run, or of a recording, as JSON."""
        command = [self.skinflint, "check", "--json", *limits, *words]
        environment = dict(os.environ, **self.environment())
        ended = subprocess.run(command, cwd=self.cwd(), env=environment, capture_output=True, text=True, check=False)
        text = ended.stdout if "{\n" in ended.stdout and words[0] != "--" and "--" not in words else ended.stderr
        at = text.find("{\n")
        if at < 0 or ended.returncode not in (0, 3, 4):
            return {"budgets": [], "figures": {}, "said": ended.stderr[-2000:]}
        return json.JSONDecoder().raw_decode(text[at:])[0]

    def environment(self):
        return {}

    def cwd(self):
        return self.folder

    def first(self):
        """Figures of one run, by budget."""
        trace = os.path.join(self.folder, "first.sft")
        told = self.checked(["-o", trace, "--", *self.command()], self.asking())
        if not told["figures"]:
            sys.exit(f"{type(self).__name__}: the first run cannot be judged: {told.get('said')}")
        return {one["name"]: one["figure"] for one in told["budgets"]}

    def asking(self):
        return [f"--{name}=1TiB" for name in self.figures]

    def budgets(self, figures):
        """Options for budgets that hold, and that break."""
        held = [f"--{name}={int(figures[name]['high'] * ABOVE[name])}" for name in figures]
        return held, [f"--{name}={int(figures[name]['low'] * BELOW)}" for name in figures]

    def run(self, held, broken):
        """Verdicts by budget, of one recording against both, and its figures."""
        trace = os.path.join(self.folder, "run.sft")
        ran = self.checked(["-o", trace, "--", *self.command()], held)
        judged = self.checked([trace], broken)
        verdicts = [(one["name"], one["verdict"]) for told in (ran, judged) for one in told["budgets"]]
        shutil.rmtree(trace, ignore_errors=True)
        return verdicts, {one["name"]: one["figure"] for one in ran["budgets"]}


class Idna(Suite):
    name = "idna-3.10"

    def prepare(self):
        said(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", self.name.replace("-", "=="), "-d", self.folder)
        said("tar", "-xf", f"{self.name}.tar.gz", cwd=self.folder)
        return f"{self.name.replace('-', ' ')}, pytest {said(sys.executable, '-c', 'import pytest; print(pytest.__version__)').strip()}"

    def cwd(self):
        return os.path.join(self.folder, self.name)

    def environment(self):
        return dict(PYTHON, PYTHONPATH=".")

    def command(self):
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]


class CPython(Suite):
    def prepare(self):
        if not os.path.exists("/usr/lib/python3.11/test/test_json/__init__.py"):
            sys.exit("cpython: install libpython3.11-testsuite")
        return f"CPython {said('/usr/bin/python3.11', '--version').split()[1]}, test_json test_list test_dict test_bytes"

    def environment(self):
        return PYTHON

    def command(self):
        # Not by regrtest: it draws a seed for each run.
        return ["/usr/bin/python3.11", "-m", "unittest", "-q", "test.test_json", "test.test_list", "test.test_dict", "test.test_bytes"]


class Qs(Suite):
    def prepare(self):
        said("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", self.folder, "tape@5", "qs@6.17.1",
             "has-override-mistake", "has-bigints", "has-symbols", "has-proto", "iconv-lite", "safer-buffer", "mock-property",
             "for-each", "object-inspect", "es-value-fixtures", "has-property-descriptors")
        shutil.copytree(os.path.join(self.folder, "node_modules/qs"), os.path.join(self.folder, "qs"), dirs_exist_ok=True)
        return f"qs 6.17.1, tape, node {said('node', '--version').strip()}"

    def command(self):
        return ["node", "--single-threaded", "--predictable", "node_modules/tape/bin/tape", "qs/test/parse.js", "qs/test/stringify.js", "qs/test/utils.js"]


class GoogleTest(Suite):
    """Each test is a phase: skinflint_gtest.h, added from outside."""

    sources = "/usr/src/googletest/googletest"
    phases = ["growth", "peak-live", "allocations"]

    def prepare(self):
        if not os.path.exists(f"{self.sources}/test/gtest_unittest.cc"):
            sys.exit("googletest: install googletest")
        with open(os.path.join(self.folder, "listener.cc"), "w", encoding="utf-8") as out:
            out.write('#include "skinflint_gtest.h"\nSKINFLINT_GTEST;\n')
        said("g++", "-std=c++14", "-g", "-O1", "-w", f"-I{ROOT}/include", f"-I{self.sources}/include", f"-I{self.sources}", "-o",
             "tests", "listener.cc", f"{self.sources}/test/googletest-printers-test.cc", f"{self.sources}/src/gtest-all.cc",
             f"{self.sources}/src/gtest_main.cc", "-pthread", cwd=self.folder)
        version = said("dpkg-query", "-W", "-f", "${Version}", "googletest")
        return f"GoogleTest {version}, googletest-printers-test"

    def command(self):
        return ["./tests", "--gtest_brief=1"]

    def asking(self):
        return [f"--phase=*:{name}=1TiB" for name in self.phases]

    def budgets(self, figures):
        def of(name, value):
            _, rest = name.split(" ", 1)
            phase, figure = rest.rsplit(" ", 1)
            return f"--phase={phase}:{figure}={int(value * ABOVE.get(figure, 1))}", f"--phase={phase}:{figure}={int(value * BELOW)}"

        both = [of(name, figure["low"]) for name, figure in figures.items()]
        # What is 0 cannot be broken.
        return [held for held, _ in both], [broken for (_, broken), figure in zip(both, figures.values()) if figure["low"]]


class Semver(Suite):
    """By `cargo skinflint test`: budgets by test, in a file."""

    figures = ["allocations", "peak-live", "live-at-end"]

    def prepare(self):
        fetches = os.path.join(self.folder, "fetches")
        os.makedirs(fetches, exist_ok=True)
        with open(os.path.join(fetches, "Cargo.toml"), "w", encoding="utf-8") as out:
            out.write('[package]\nname = "fetches"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n[dependencies]\nsemver = "=1.0.28"\n[workspace]\n')
        open(os.path.join(fetches, "lib.rs"), "w", encoding="utf-8").close()
        said("cargo", "vendor", "--quiet", "vendor", cwd=fetches)
        shutil.copytree(os.path.join(fetches, "vendor/semver"), self.cwd(), dirs_exist_ok=True)
        return f"semver 1.0.28, test_version, {said('rustc', '--version').split(' (')[0]}"

    def cwd(self):
        return os.path.join(self.folder, "semver")

    def tested(self, *words):
        environment = dict(os.environ, CARGO_TARGET_DIR=os.path.join(self.folder, "target"))
        command = [self.skinflint, "cargo-test", "--json", *words, "--test", "test_version"]
        ended = subprocess.run(command, cwd=self.cwd(), env=environment, capture_output=True, text=True, check=False)
        if ended.returncode not in (0, 3, 4):
            return {}, ended.stderr[-2000:]
        told = json.loads(ended.stdout)
        return {(one["trace"], budget["name"]): budget for one in told for budget in one["budgets"]}, ""

    def first(self):
        told, why = self.tested(*self.asking())
        if not told:
            sys.exit(f"Semver: the first run cannot be judged: {why}")
        return {key: budget["figure"] for key, budget in told.items()}

    def budgets(self, figures):
        paths = []
        for name, factor in (("held.toml", ABOVE), ("broken.toml", collections.defaultdict(lambda: BELOW))):
            paths.append(os.path.join(self.folder, name))
            with open(paths[-1], "w", encoding="utf-8") as out:
                for test in sorted({test for test, _ in figures}):
                    out.write(f'[test."{test.replace(": ", "::", 1)}"]\n')
                    for (of, figure), value in figures.items():
                        if of == test:
                            out.write(f"{figure} = {int(value['low'] * factor[figure])}\n")
        return paths

    def run(self, held, broken):
        first, _ = self.tested(f"--budgets={held}")
        second, _ = self.tested(f"--budgets={broken}")
        verdicts = [(key, budget["verdict"]) for told in (first, second) for key, budget in told.items()]
        return verdicts, {key: budget["figure"] for key, budget in first.items()}


SUITES = {"idna": Idna, "semver": Semver, "qs": Qs, "googletest": GoogleTest, "cpython": CPython}


def spread(all_figures):
    """How far a figure is from that of the first run at most, in per cent; exact figures only."""
    worst, first = (0.0, "none moved"), all_figures[0]
    exact = 0
    for name, figure in first.items():
        values = [one[name]["low"] for one in all_figures if name in one]
        exact += len(set(values)) == 1
        if figure["low"] == figure["high"] and figure["low"]:
            moved = max(abs(value - figure["low"]) for value in values) / figure["low"] * 100
            worst = max(worst, (moved, name if isinstance(name, str) else " ".join(name)))
    return f"{exact} of {len(first)}", f"{worst[0]:.2f} % ({worst[1]})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skinflint", default=os.path.join(ROOT, "target/release/skinflint"))
    parser.add_argument("--folder", default=os.path.join(ROOT, "target/gate"))
    parser.add_argument("--only", help=",".join(SUITES))
    parser.add_argument("--runs", type=int, default=20)
    args = parser.parse_args()
    skinflint = os.path.abspath(args.skinflint)
    failed = 0
    print("| suite | budgets: held, broken | the same verdict | figures that never moved | the largest move of an exact figure |")
    print("|---|---|---|---|---|", flush=True)
    for name in args.only.split(",") if args.only else SUITES:
        suite = SUITES[name](skinflint, os.path.join(os.path.abspath(args.folder), name))
        shown = suite.prepare()
        held, broken = suite.budgets(suite.first())
        runs = []
        while len(runs) < args.runs:
            runs.append(suite.run(held, broken))
            told = "the same" if runs[-1][0] == runs[0][0] else "another verdict"
            print(f"  {name}: run {len(runs)} of {args.runs}: {told}", file=sys.stderr, flush=True)
        same = sum(verdicts == runs[0][0] and bool(verdicts) for verdicts, _ in runs)
        counts = collections.Counter(verdict for _, verdict in runs[0][0])
        exact, moved = spread([figures for _, figures in runs])
        told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items(), reverse=True))
        print(f"| {shown} | {told} | {same} of {args.runs} | {exact} | {moved} |", flush=True)
        if same != args.runs:
            failed += 1
            for number, (verdicts, _) in enumerate(runs, 1):
                others = set(map(str, verdicts)) ^ set(map(str, runs[0][0]))
                if others:
                    print(f"  run {number}: {sorted(others)[:6]}", file=sys.stderr)
    sys.exit(1 if failed else 0)


main()
