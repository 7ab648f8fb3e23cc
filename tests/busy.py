#!/usr/bin/env python3
"""Tests that touch time, threads or processes, again and again beside busy loops.

    tests/busy.txt ──► build ──► eight busy loops ──► every entry, N rounds ──► "N of N rounds passed"

python3 tests/busy.py [--rounds 20] [--loops 8] [--jobs 4] [--package P …] [--whole] [--selftest]

An entry is `PACKAGE TARGET TEST`: TARGET is `lib` or an integration test, TEST a test's name, `*`, or a beginning with
`*` behind it; `PACKAGE+FEATURE` where the target needs one. `sh COMMAND …` is a command that must end with 0.

L1  The list is true: an entry whose target does not exist or which fits no test is an error before anything runs.
L2  The loops, and the entries that run, are this process's children: at the end, on a failure, on Ctrl-C and on SIGTERM
    they are ended by their numbers; should this process be killed, the kernel ends the loops (PR_SET_PDEATHSIG).
    They are to take the processors from the tests, not from the one that runs them: `--jobs` entries run at a time.
L3  Every wait has a bound. What an entry said when it failed is kept in target/busy.

Exit status: 0 if all rounds passed, 1 if one did not, 2 if the list is not true or does not build.
"""
import argparse
import concurrent.futures
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/busy.txt"
KEPT = ROOT / "target/busy"
LIMIT_S = 900
# All of `make test`, which takes a quarter of an hour alone, beside eight loops on two processors.
WHOLE = [("make test", [sys.executable, "-B", "tests/tiers.py", "test"], ROOT)]
WHOLE_LIMIT_S = 3 * 3600


class Untrue(Exception):
    """The list names what is not there."""


def entries(text):
    """[(line number, words)] of a list."""
    lines = ((number, line.split("#")[0].split()) for number, line in enumerate(text.splitlines(), 1))
    found = [(number, words) for number, words in lines if words]
    for number, words in found:
        if words[0] == "sh" and len(words) < 2 or words[0] != "sh" and len(words) != 3:
            raise Untrue(f"line {number}: `{' '.join(words)}` is not PACKAGE TARGET TEST, nor sh COMMAND")
    if not found:
        raise Untrue("the list is empty")
    return found


def build(rust, only):
    """Builds the targets; {(package, target): (binary, folder)}. `only`: these packages, not the workspace."""
    cargo = os.environ.get("CARGO", "cargo")
    if any(package.startswith("skinflint-c") for package, *_ in rust):
        subprocess.run([cargo, "build", "--locked", "-p", "skinflint-malloc-so"], cwd=ROOT, check=True)
    command = [cargo, "test", "--locked", "--no-run", "--message-format=json"]
    if only:
        wanted = sorted({words[0] for words in rust})
        for package in wanted:
            name, *features = package.split("+")
            command += ["-p", name] + [part for feature in features for part in ("--features", f"{name}/{feature}")]
        targets = sorted({words[1] for words in rust})
        command += ["--lib" if target == "lib" else f"--test={target}" for target in targets]
    else:
        command += ["--workspace"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Untrue("it does not build: " + " ".join(command))
    binaries = {}
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            folder = pathlib.Path(message["manifest_path"]).parent
            target = message["target"]
            kinds = set(target["kind"])
            name = target["name"] if kinds == {"test"} else "bin" if kinds == {"bin"} else "lib"
            package = package_of(folder)
            binaries[package, name] = (message["executable"], folder)
    return binaries


def package_of(folder):
    for line in (folder / "Cargo.toml").read_text().splitlines():
        if line.startswith("name"):
            return line.split('"')[1]
    raise Untrue(f"{folder}: no name")


def tests_of(binary):
    done = subprocess.run([binary, "--list"], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True)
    return [line[: -len(": test")] for line in done.stdout.splitlines() if line.endswith(": test")]


def resolved(found, binaries):
    """[(what, command, folder)] of the entries, or what is not true of them (L1)."""
    commands, listed = [], {}
    for number, words in found:
        what = " ".join(words)
        if words[0] == "sh":
            commands.append((what, words[1:], ROOT))
            continue
        package, target, test = words[0].split("+")[0], words[1], words[2]
        if (package, target) not in binaries:
            raise Untrue(f"line {number}: {package} has no target {target} with tests")
        binary, folder = binaries[package, target]
        if binary not in listed:
            listed[binary] = tests_of(binary)
        fits = (lambda name: name.startswith(test[:-1])) if test.endswith("*") else (lambda name: name == test)
        names = [name for name in listed[binary] if fits(name)]
        if not names:
            raise Untrue(f"line {number}: no test of {package} {target} is {test}")
        commands.append((f"{what} ({len(names)})", [binary, "--exact", *names], folder))
    return commands


def spin():
    """A busy loop that does not outlive this process (L2)."""
    def tied():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    return subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=tied)


class Loops:
    """So many busy loops, while it is entered."""

    def __init__(self, count):
        self.count, self.children = count, []

    def __enter__(self):
        for _ in range(self.count):
            self.children.append(spin())
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
        for child in self.children:
            child.wait()


# The entries that run now (L2).
RUNNING = set()


def stop(*_):
    """Ends what runs, and this script."""
    for child in list(RUNNING):
        # An ordinary end: a runner of tests ends what it started itself.
        child.terminate()
    sys.exit(1)


def passes(what, command, folder, kept, limit_s=LIMIT_S):
    """Runs one entry; `None`, or why it failed."""
    environment = dict(os.environ, CARGO_MANIFEST_DIR=str(folder))
    child = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
    RUNNING.add(child)
    try:
        said, why = child.communicate(timeout=limit_s)[0], f"status {child.returncode}"
        if child.returncode == 0:
            return None
    except subprocess.TimeoutExpired:
        child.kill()
        said, why = child.communicate()[0], f"not done in {limit_s} s"
    finally:
        RUNNING.discard(child)
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=kept, prefix="failed-", suffix=".txt", delete=False) as file:
        file.write(said)
    return f"{what}: {why}; what it said: {file.name}"


def rounds(commands, count, loops, kept=KEPT, say=print, jobs=1, limit_s=LIMIT_S):
    """Runs all, so many times, beside loops; how many rounds passed."""
    passed = 0
    with Loops(loops), concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for number in range(1, count + 1):
            began = time.monotonic()
            failures = [why for why in pool.map(lambda command: passes(*command, kept, limit_s), commands) if why]
            for why in failures:
                say(f"round {number}: FAILED {why}", flush=True)
            passed += not failures
            say(f"round {number} of {count}: {'ok' if not failures else 'failed'}, "
                f"{time.monotonic() - began:.0f} s", flush=True)
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--loops", type=int, default=8, help="busy loops beside the tests; 0: none, to time the list")
    parser.add_argument("--jobs", type=int, default=4, help="entries that run side by side")
    parser.add_argument("--package", action="append", help="of the list only this package's tests, built alone")
    parser.add_argument("--whole", action="store_true", help="not the list, but all of `make test`, which must be built and installed")
    parser.add_argument("--selftest", action="store_true")
    asked = parser.parse_args()
    if asked.selftest:
        return unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() ^ 1
    # An ordinary end, so that the loops are ended (L2).
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if asked.whole:
        passed = rounds(WHOLE, asked.rounds, asked.loops, limit_s=WHOLE_LIMIT_S)
        print(f"busy: make test passed {passed} of {asked.rounds} times beside {asked.loops} busy loops")
        return 0 if passed == asked.rounds else 1
    try:
        found = entries(LIST.read_text())
        if asked.package:
            found = [one for one in found if one[1][0].split("+")[0] in asked.package]
            if not found:
                raise Untrue(f"no entry is of {', '.join(asked.package)}")
        rust = [words for _, words in found if words[0] != "sh"]
        commands = resolved(found, build(rust, asked.package) if rust else {})
    except Untrue as untrue:
        print(f"busy: {LIST.relative_to(ROOT)}: {untrue}", file=sys.stderr)
        return 2
    print(f"busy: {len(commands)} entries, {asked.jobs} at a time, {asked.rounds} rounds beside {asked.loops} busy loops", flush=True)
    passed = rounds(commands, asked.rounds, asked.loops, jobs=max(asked.jobs, 1))
    print(f"busy: {passed} of {asked.rounds} rounds passed")
    return 0 if passed == asked.rounds else 1


class Selftest(unittest.TestCase):
    """The script fails where it should; a shell script stands for a test binary."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        binary = self.path / "binary"
        binary.write_text("#!/bin/sh\nif [ \"$1\" = --list ]; then echo 'a::one: test'; echo 'a::two: test'; exit; fi\n"
                          "case \"$*\" in *two*) echo two fails; exit 101;; esac\n")
        binary.chmod(0o755)
        self.binaries = {("p", "t"): (str(binary), self.path)}

    def tearDown(self):
        self.folder.cleanup()

    def commands(self, text):
        return resolved(entries(text), self.binaries)

    def ran(self, text, count=2):
        said = []
        passed = rounds(self.commands(text), count, 1, self.path / "kept", lambda line, flush: said.append(line))
        return passed, "\n".join(said)

    def test_what_passes(self):
        self.assertEqual(self.ran("# a list\np t a::one  # why\nsh true\n")[0], 2)

    def test_a_failing_test_fails_its_round_and_is_kept(self):
        passed, said = self.ran("p t a::one\np t a::*\n")
        self.assertEqual(passed, 0)
        self.assertIn("FAILED p t a::* (2): status 101", said)
        kept = sorted((self.path / "kept").iterdir())
        self.assertEqual([file.read_text() for file in kept], ["two fails\n"] * 2)

    def test_side_by_side_is_no_other_verdict(self):
        commands = self.commands("p t a::one\np t a::two\nsh true\nsh false\n")
        said = []
        self.assertEqual(rounds(commands, 1, 1, self.path / "kept", lambda line, flush: said.append(line), 3), 0)
        self.assertEqual(sum("FAILED" in line for line in said), 2)

    def test_a_failing_command(self):
        self.assertEqual(self.ran("sh false\n")[0], 0)

    def test_what_is_missing_is_no_pass(self):
        for text, why in [("p t a::three", "no test"), ("p t b*", "no test"), ("p u *", "no target"),
                          ("q t *", "no target"), ("p t", "is not PACKAGE"), ("sh", "is not PACKAGE"), ("# none", "empty")]:
            with self.assertRaisesRegex(Untrue, why):
                self.commands(text)

    def test_what_takes_too_long_has_failed(self):
        commands = [("sleeper", ["sleep", "60"], self.path)]
        said = []
        say = lambda line, flush: said.append(line)
        self.assertEqual(rounds(commands, 1, 0, self.path / "kept", say, limit_s=0.2), 0)
        self.assertIn("not done in 0.2 s", said[0])

    def test_the_list_itself_is_read(self):
        self.assertGreater(len(entries(LIST.read_text())), 10)

    def test_loops_end_whatever_happens(self):
        loops = Loops(2)
        with self.assertRaises(KeyboardInterrupt):
            with loops:
                self.assertTrue(all(child.poll() is None for child in loops.children))
                raise KeyboardInterrupt
        self.assertTrue(all(child.returncode == -signal.SIGKILL for child in loops.children))


if __name__ == "__main__":
    sys.exit(main())
