#!/usr/bin/env python3
"""Tests of the runner of tiers: what fails, hangs, runs no test or is not there makes it fail.

    python3 tests/tiers_selftest.py

Each promise of tiers.py is seen to be kept on parts that are made to break it. Nothing of the repository is built.
"""
import contextlib
import io
import json
import os
import tempfile
import time
import unittest

import tiers

PASSES = "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'"
FAILS = "echo 'line of the culprit'; echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored'; exit 101"


def run(parts, jobs=2):
    """Runs parts; the status, what was printed, the runner."""
    runner, said = tiers.Runner(jobs), io.StringIO()
    with contextlib.redirect_stdout(said):
        runner.run(parts)
        status = tiers.closing(runner.done, 0, "test")
    return status, said.getvalue(), runner


class Verdicts(unittest.TestCase):
    def test_what_passes_passes(self):
        status, said, _ = run([tiers.Part("good", PASSES)])
        self.assertEqual(status, 0)
        self.assertTrue(said.endswith("3 passed, 0 failed\n"), said)

    def test_a_failure_is_named_and_shown_whole_and_the_others_run(self):
        status, said, runner = run([tiers.Part("bad", FAILS), tiers.Part("good", PASSES)], jobs=1)
        self.assertEqual((status, len(runner.done)), (1, 2))
        self.assertIn("line of the culprit", said)
        self.assertIn("FAILED bad: status 101", said)
        self.assertTrue(said.endswith("5 passed, 1 failed\n"), said)

    def test_a_failure_that_the_status_hides_is_one(self):
        status, _, _ = run([tiers.Part("sly", FAILS.replace("101", "0"))])
        self.assertEqual(status, 1)

    def test_no_test_is_a_failure_unless_it_is_said(self):
        nothing = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'"
        self.assertEqual(run([tiers.Part("empty", nothing)])[0], 1)
        self.assertEqual(run([tiers.Part("empty", nothing, counted=False)])[0], 0)
        self.assertEqual(run([tiers.Part("silent", "true")])[0], 1)

    def test_what_hangs_is_ended_with_its_children(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "pid")
            hangs = f"sh -c 'echo $$ > {file}; exec sleep 600' & wait"
            # Where even the shell had no turn within the bound, a longer one is tried; 600 s would be the other end.
            for bound in (2, 8, 32, 128):
                status, said, _ = run([tiers.Part("hangs", hangs, bound=bound)])
                self.assertEqual(status, 1)
                self.assertIn(f"not done after {bound} s", said)
                if os.path.exists(file) and os.path.getsize(file) > 0:
                    break
            with open(file, encoding="ascii") as text:
                pid = int(text.read())
            self.assertTrue(ends(pid), "it was left running")

    def test_a_command_that_is_not_there_is_a_failure(self):
        status, said, _ = run([tiers.Part("nowhere", ["/nonexistent/command"])])
        self.assertEqual(status, 1)
        self.assertIn("/nonexistent/command", said)


def ends(pid):
    """Whether a process that was killed ends: it needs a turn for that, which a busy machine gives late."""
    for _ in range(1200):
        if not is_running(pid):
            return True
        time.sleep(0.05)  # CLOCK: poll step of a bounded wait
    return False


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Order(unittest.TestCase):
    def test_the_heaviest_first_and_the_lonely_ones_last(self):
        parts = [tiers.Part("light", PASSES), tiers.Part("lonely", PASSES, alone=True, weight=99), tiers.Part("heavy", PASSES, weight=9)]
        _, _, runner = run(parts, jobs=1)
        self.assertEqual([part.name for part in runner.done], ["heavy", "light", "lonely"])

    def test_parts_run_beside_each_other(self):
        """Each waits for the other's file: one after the other, neither would end before the bound."""
        with tempfile.TemporaryDirectory() as folder:
            meet = f"touch {folder}/%s; while [ ! -e {folder}/%s ]; do sleep 0.05; done; {PASSES}"
            parts = [tiers.Part("a", meet % ("a", "b"), bound=120), tiers.Part("b", meet % ("b", "a"), bound=120)]
            self.assertEqual(run(parts)[0], 0)


class Executables(unittest.TestCase):
    def setUp(self):
        """Two packages, as far as the runner looks at them."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for crate in ("alloc", "cli"):
            os.mkdir(f"{self.root}/{crate}")
            with open(f"{self.root}/{crate}/Cargo.toml", "w", encoding="ascii") as manifest:
                manifest.write(f'[package]\nname = "skinflint-{crate}"\n')

    def message(self, crate, name, kind, is_test=True):
        return json.dumps({"reason": "compiler-artifact", "executable": f"/t/{name}-1", "manifest_path": f"{self.root}/{crate}/Cargo.toml",
                           "profile": {"test": is_test}, "target": {"name": name, "kind": [kind]}})

    def messages(self):
        return "\n".join([self.message("alloc", "skinflint_alloc", "lib"), self.message("cli", "whole", "test"),
                          self.message("cli", "skinflint", "bin", is_test=False), "warning: not JSON"])

    def test_each_one_is_a_part(self):
        parts = tiers.of_executables(self.messages(), {})
        self.assertEqual([(part.name, part.folder, part.environment["CARGO_PKG_NAME"]) for part in parts],
                         [("alloc", f"{self.root}/alloc", "skinflint-alloc"), ("cli/whole", f"{self.root}/cli", "skinflint-cli")])

    def test_a_name_that_is_none_is_refused(self):
        with self.assertRaises(SystemExit) as refused:
            tiers.of_executables(self.messages(), {"cli/hole": {"weight": 3}})
        self.assertIn("cli/hole", str(refused.exception))

    def test_only_refuses_what_names_no_part(self):
        with self.assertRaises(SystemExit):
            tiers.chosen(tiers.of_executables(self.messages(), {}), ["nothing"])


class Table(unittest.TestCase):
    def test_the_tables_names_are_known_keys(self):
        rows = tiers.table(os.path.join(tiers.HERE, "tiers.toml"))
        known = {"name", "run", "env", "weight", "alone", "counted", "bound"}
        for tier in rows.values():
            for part in tier.get("first", []) + tier.get("part", []):
                self.assertFalse(set(part) - known, part["name"])
            for name, settings in tier.get("executables", {}).items():
                self.assertFalse(set(settings) - {"tier", "env", "arguments", "weight", "alone", "no_tests"}, name)


if __name__ == "__main__":
    unittest.main()
