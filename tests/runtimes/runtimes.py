"""Runtimes' own tests, plain and recorded: the same tests pass, the same fail, and nothing crashes.

    for each Python that is here ─► python -m test SUBSET ─┬─ plain ─────► outcome of every test ─┬─► the same, or a row that says
    for each addon of Node ───────► its own test suite ────┴─ recorded ──► outcome of every test ─┘   which test differs

R1  A test is judged by its own runner's file of results, case by case; a run without that file, or that ended by a signal, is a
    crash.
R2  Where an outcome differs the plain run is made again, once: a test that differs from itself is restless, is named, and
    counts for neither side. Of those more than LEAST_SHARE of a subset fail the row.
R3  A version that is not here is named; fewer Pythons than --least fail.
R4  A recorded run has a trace that can be read: the row says how many processes were recorded.

    python3 -B tests/runtimes/runtimes.py [--only TEXT] [--least 4]

The programs are those of pyenv and of Debian (libpython3.11-testsuite); the addons are fetched by npm as package-lock.json pins
them (tests/runtimes/addons). Not here: frames (cargo test -p skinflint-cli --test python).
"""

import argparse
import glob
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "target/release/skinflint"
ADDONS = ROOT / "target/runtimes/addons"

# A run that takes longer than this hangs, in seconds.
PATIENCE = 1800
# The share of a subset's tests that may be restless (R2).
LEAST_SHARE = 0.02

# What a recorder may disturb: collections and what ends late; processes, threads and signals; native code and mappings.
SUBSETS = {
    "objects": "test_gc test_weakref test_generators test_exceptions test_memoryview test_coroutines",
    "processes": "test_threading test_subprocess test_fork1 test_thread test_queue",
    "native": "test_ctypes test_mmap test_struct test_array test_zlib",
}
# Of asyncio the tasks, by the names of their tests: all of it takes minutes.
ASYNCIO = ["test_asyncio", "-m", "test.test_asyncio.test_tasks.*"]

MINORS = range(9, 15)


def pythons():
    """Returns the Pythons with their own tests, by minor version: (name, path)."""
    found = {}
    candidates = sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))) + ["/usr/bin/python3"]
    ask = "import sys, test.support, test.test_gc; print(*sys.version_info[:3])"
    for path in candidates:
        said = subprocess.run([path, "-I", "-c", ask], capture_output=True, text=True, check=False)
        if said.returncode == 0:
            major, minor, micro = map(int, said.stdout.split())
            if major == 3 and minor in MINORS:
                found.setdefault(minor, (f"{major}.{minor}.{micro}", path))
    return found


def run(command, folder, environment=None):
    """Runs a command in a process group of its own, within bounds. Returns (status, output)."""
    own = dict(os.environ, **(environment or {}))
    process = subprocess.Popen(
        command, cwd=folder, env=own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return "hung", output.decode(errors="replace")
    return process.returncode, output.decode(errors="replace")


def junit(path):
    """Returns the outcomes in a file of the form that Python's test runner writes, by test; None if there is none."""
    try:
        root = tree.parse(path).getroot()
    except (OSError, tree.ParseError):
        return None
    outcomes = {}
    for case in root.iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = next((kind for kind in ("error", "failure", "skipped") if kind in kinds), "passed")
        if case.get("status") not in (None, "run", "notrun"):
            outcome = case.get("status")
        note(outcomes, case.get("name"), outcome)
    return outcomes


def note(outcomes, name, outcome):
    """Notes an outcome; cases of one name are told apart by their order."""
    number = 1
    while (key := name if number == 1 else f"{name} #{number}") in outcomes:
        number += 1
    outcomes[key] = outcome


def mocha(text):
    try:
        told, _ = json.JSONDecoder().raw_decode(text[text.index("{"):])
    except ValueError:
        return None
    outcomes = {}
    for kind, outcome in (("passes", "passed"), ("failures", "failure"), ("pending", "skipped")):
        for case in told[kind]:
            note(outcomes, case["fullTitle"], outcome)
    return outcomes


def tap(text):
    outcomes = {}
    for ok, name in re.findall(r"^(not ok|ok) \d+ (.*)$", text, re.M):
        note(outcomes, name, "passed" if ok == "ok" else "failure")
    return outcomes if re.search(r"^# tests \d+", text, re.M) else None


class Case:
    """A suite: how it is run, and how its outcomes are read."""

    def __init__(self, name, command, read, folder=None, environment=None):
        self.name, self.command, self.read = name, command, read
        self.folder, self.environment = folder, environment

    def outcomes(self, folder, tool=None):
        """Runs the suite, recorded by a tool if one is given. Returns (status, outcomes, processes recorded, output)."""
        results = os.path.join(folder, "results.xml")
        if os.path.exists(results):
            os.unlink(results)
        command = [word.replace("RESULTS", results) for word in self.command]
        trace = os.path.join(folder, "main.sft")
        if tool:
            command = [str(tool), "record", "-o", trace, "--", *command]
        status, output = run(command, self.folder or folder, self.environment)
        outcomes = junit(results) if self.read is None else self.read(output)
        processes = len(glob.glob(os.path.join(folder, "**", "*.sft"), recursive=True)) if tool else 0
        return status, outcomes, processes, output


def crashed(status, outcomes):
    return outcomes is None or status == "hung" or status < 0 or status >= 128


def differences(one, other):
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def judge(case, tool):
    """Runs a suite plain and recorded. Prints its row; returns whether it holds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        plain = case.outcomes(folder)
        recorded = case.outcomes(folder, tool)
        said, restless, fails = [], set(), False
        for what, (status, outcomes, _, output) in (("plain", plain), ("recorded", recorded)):
            if crashed(status, outcomes):
                fails = True
                said.append(f"the {what} run crashed (status {status}): {' | '.join(output.splitlines()[-6:])}")
        if not fails:
            differ = differences(plain[1], recorded[1])
            if differ:
                again = case.outcomes(folder)
                restless = differ & differences(plain[1], again[1] or {})
                for name in sorted(differ):
                    of = f"{name}: plain {plain[1].get(name)}, recorded {recorded[1].get(name)}"
                    said.append(f"restless: {of}, plain again {(again[1] or {}).get(name)}" if name in restless else of)
                fails = bool(differ - restless) or len(restless) > LEAST_SHARE * len(plain[1])
            elif plain[0] != recorded[0]:
                fails = True
                said.append(f"status {plain[0]} plain, {recorded[0]} recorded")
            if recorded[2] == 0:
                fails = True
                said.append("nothing was recorded")
    outcomes = plain[1] or {}
    count = lambda *kinds: sum(outcome in kinds for outcome in outcomes.values())
    passed, left_out = count("passed"), count("skipped", "pending", "todo")
    row = (
        f"{case.name:28} {passed:5} passed {len(outcomes) - passed - left_out:3} failed {left_out:4} skipped   "
        f"{recorded[2]:4} traces  {time.monotonic() - began:5.0f} s   {'DIFFERS' if fails else 'the same'}"
    )
    print(row, flush=True)
    for line in said:
        print(f"    {line}", flush=True)
    return not fails


def cases(versions):
    for minor in sorted(versions):
        name, path = versions[minor]
        start = [path, "-B", "-m", "test", "--junit-xml", "RESULTS", "--timeout", "600"]
        for subset, tests in SUBSETS.items():
            has = "import importlib.util, sys; sys.exit(importlib.util.find_spec('test.' + sys.argv[1]) is None)"
            there = [
                test for test in tests.split()
                if subprocess.run([path, "-I", "-c", has, test], check=False).returncode == 0
            ]
            yield Case(f"python {name} {subset}", start + there, None)
        yield Case(f"python {name} asyncio", start + ASYNCIO, None)
    modules = ADDONS / "node_modules"
    own = ROOT / "tests/runtimes/addons"
    by_mocha = ["node", "--expose-gc", str(modules / "mocha/bin/_mocha"), "--timeout", "600000", "--reporter", "json"]
    yield Case("node ref-napi", [*by_mocha, str(modules / "ref-napi/test")], mocha, ADDONS)
    yield Case(
        "node bcrypt", [*by_mocha, "--ui", "qunit", "--require", str(own / "expect.js"), str(modules / "bcrypt/test")],
        mocha, ADDONS, {"NODE_PATH": str(modules)},
    )
    yield Case("node leveldown", ["node", str(own / "leveldown.js")], tap, ADDONS, {"NODE_PATH": str(modules)})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="those whose name has this text")
    parser.add_argument("--tool", type=pathlib.Path, default=TOOL, help="the program skinflint")
    parser.add_argument("--least", type=int, default=4, help="the fewest versions of Python (R3)")
    asked = parser.parse_args()
    versions = pythons()
    missing = [f"3.{minor}" for minor in MINORS if minor not in versions]
    if missing:
        print(f"not here, or without its tests: Python {', '.join(missing)}")
    failed = []
    if len(versions) < asked.least:
        print(f"{len(versions)} versions of Python, of {asked.least} that there should be")
        failed.append("versions")
    ran = [case for case in cases(versions) if asked.only in case.name]
    failed += [case.name for case in ran if not judge(case, asked.tool)]
    print(f"{len(ran)} suites, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
