#!/usr/bin/env python3
"""The JavaScript host on QuickJS-ng: conformance programs on it and on node, on both allocators; what a close gives back.

    conformance/*.js ─┬─ node ───────────────────────────┐
                      └─ QuickJS-ng, tenants │ C library ─┴─► the same lines, or those listed below

T1  A program's expected output is node's. Where QuickJS-ng differs, DIFFERS says why; one that is listed and does not differ
    is a fault.
T2  Both allocators give the same lines, and status 0.
T3  On our allocator a closed tab's heap is gone: after all but one of twenty tabs are closed, the pages of tabs' heaps are
    one tab's. (Counted by the allocator; resident memory is the bench's.)
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
CONFORMANCE = os.path.join(HERE, "conformance")
HOSTS = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "js", "release")
NAMES = ("skinflint-js-quickjs", "skinflint-js-quickjs-system")
LIMIT_S = 300
# Programs in one process.
TABS = 24
# Why QuickJS-ng prints other lines than node.
DIFFERS = {
    "finalization-registry.js": "an entry whose token is the object itself keeps the object's end from being told (0.16.2)",
}


def host(name, *words):
    done = subprocess.run([os.path.join(HOSTS, name), "--engine", "quickjs", *words], capture_output=True, text=True, timeout=LIMIT_S)
    return done, json.loads(done.stdout) if "--json" in words and done.stdout.startswith("{") else None


def node(path):
    done = subprocess.run(["node", "--expose-gc", path], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"node {path}: {done.stderr[-400:]}"
    return done.stdout.removesuffix("\n").split("\n")


def compare(programs):
    """What is wrong with some programs, each a tab of one process, as lines."""
    paths, wrong = [os.path.join(CONFORMANCE, program) for program in programs], []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        expected = pool.map(node, paths)
        got = [host(name, *paths, "--json") for name in NAMES]
    rows = [report["programs"] if report else [] for _, report in got]
    if any(done.returncode for done, _ in got):
        failures = [row["file"] + ": " + row["failure"]["text"] for all_rows in rows for row in all_rows if row["failure"]]
        wrong.append(f"status {[done.returncode for done, _ in got]}: {failures or got[0][0].stderr[-300:]}")
    for program, lines, ours, systems in zip(programs, expected, *rows):
        # A line of the program may have several of the terminal's.
        ours, systems = ("\n".join(row["output"]).split("\n") for row in (ours, systems))
        if ours != systems:
            wrong.append(f"{program}: the two allocators give different lines")
        if ours != lines and program not in DIFFERS:
            first = next((pair for pair in zip(ours, lines) if pair[0] != pair[1]), (len(ours), len(lines)))
            wrong.append(f"{program}: QuickJS-ng {first[0]!r}, node {first[1]!r}")
        if ours == lines and program in DIFFERS:
            wrong.append(f"{program}: listed as different, and is not")
    return wrong


class QuickJs(unittest.TestCase):
    def test_programs_print_what_they_print_on_node(self):
        programs = sorted(name for name in os.listdir(CONFORMANCE) if name.endswith(".js"))
        wrong = [line for at in range(0, len(programs), TABS) for line in compare(programs[at:at + TABS])]
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_a_closed_tabs_heap_is_gone(self):
        tab = os.path.join(ROOT, "bench", "gc", "js", "tab.js")
        done, report = host(NAMES[0], tab, "--tabs", "20", "--close", "all-but-one", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        pages = {instant["at"]: instant["page_bytes"] for instant in report["memory"]}
        self.assertGreater(pages["open"], 19 * pages["all but one closed"])
        self.assertLess(pages["half closed"], 0.55 * pages["open"])
        self.assertTrue(all("whole" in row["output"][-1] for row in report["programs"]), "each tab's data were whole at its end")

    def test_a_failure_is_one_tabs(self):
        with tempfile.TemporaryDirectory() as folder:
            names = {"throws.js": "throw new RangeError('no')", "rejects.js": "Promise.reject(1)", "syntax.js": "let let",
                     "null.js": "throw null", "large.js": "const all = []; for (;;) all.push('x'.repeat(1 << 16) + all.length)", "good.js": "print('good'); 7"}
            for name, text in names.items():
                with open(os.path.join(folder, name), "w") as out:
                    out.write(text)
            done, report = host(NAMES[0], *[os.path.join(folder, name) for name in names], "--heap-limit", "16M", "--json")
        self.assertEqual(done.returncode, 1)
        rows = {os.path.basename(row["file"]): row for row in report["programs"]}
        self.assertIn("RangeError: no", rows["throws.js"]["failure"]["text"])
        self.assertIn("nobody handled it: 1", rows["rejects.js"]["failure"]["text"])
        self.assertIn("SyntaxError", rows["syntax.js"]["failure"]["text"])
        self.assertIn("memory", rows["large.js"]["failure"]["text"], "an error of the engine's, or null where there is none")
        self.assertIn("the limit is 16777216 bytes", rows["null.js"]["failure"]["text"])
        self.assertEqual((rows["good.js"]["output"], rows["good.js"]["result"]), (["good"], "7"))

    def test_a_full_disk_is_a_failure(self):
        tab = os.path.join(CONFORMANCE, "classes-basic.js")
        for more in ((), ("--json",)):
            command = [os.path.join(HOSTS, NAMES[0]), "--engine", "quickjs", tab, *more]
            with open("/dev/full", "w") as full:
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stderr.count("stdout: not all was written: No space left on device"), 1, done.stderr)

    def test_options_of_boas_heaps_are_wrong_use(self):
        for option in ("--pauses", "--gc-log", "--verify", "--driven"):
            done, _ = host(NAMES[0], *([] if option == "--driven" else ["a.js"]), option)
            self.assertEqual(done.returncode, 2, option)
            self.assertIn(option, done.stderr)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(verbosity=2)
