#!/usr/bin/env python3
"""The JavaScript host: the same results on every heap, and what it says when something is wrong.

    conformance/*.js ─┬─ node 20 ───────────────────┐
                      ├─ Boa on its own heap ──────┼─► the same lines
                      └─ Boa on ours ─ as it is, collecting at every nth allocation, verified

T1  A program's expected output is node's. Where Boa itself differs, the file says why and has the lines:
    `// DIFFERS: why`, `// BOA: line`. A file that says so, and does not differ, is a fault.
T2  Stock and ours must agree to the byte in every mode, and end with status 0.
T3  The seven programs of the V8 suite check their own results; their lines must agree, too (times apart).
T4  Every process is bounded in time; a crash is a fault with the program's name.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
CONFORMANCE = os.path.join(HERE, "conformance")
sys.path.insert(0, os.path.join(ROOT, "bench", "gc"))
sys.dont_write_bytecode = True
import js as bench  # noqa: E402  (bench/gc/js.py: where the suite is and how it is fetched)

LIMIT_S = 300
# Programs in one process.
TABS = 12
HEAPS = ["stock", "skinflint"]


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, **more)


def host(*options, heap="skinflint"):
    """The host by the command: what it ends with, and its report if there is one."""
    done = run([bench.tool(), "js", "--heap", heap, *options])
    report = json.loads(done.stdout) if "--json" in options and done.stdout.startswith("{") else None
    return done, report


def programs():
    return sorted(name for name in os.listdir(CONFORMANCE) if name.endswith(".js"))


def expected(name):
    """Lines of node, or those that the file says Boa prints; with whether it says so."""
    path = os.path.join(CONFORMANCE, name)
    with open(path, encoding="utf-8") as text:
        said = re.findall(r"^// BOA: (.*)$", text.read(), re.M)
    done = run(["node", "--expose-gc", path])
    if done.returncode:
        raise AssertionError(f"node {name}: {done.stderr[-400:]}")
    of_node = done.stdout.removesuffix("\n").split("\n")
    if said:
        assert said != of_node, f"{name} says that Boa differs from node, and gives node's lines"
    return said or of_node


def all_at_once(work, names):
    """Runs `work` for each name, as many at a time as there are processors."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        return dict(zip(names, pool.map(work, names)))


class Conformance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected = all_at_once(expected, programs())

    def agree(self, heap, *options):
        # Some at a time, each in a tab: so tenants meet, and the host's wait for memory to settle is shared.
        names = programs()
        batches = [tuple(names[at:at + TABS]) for at in range(0, len(names), TABS)]

        def several(batch):
            done, report = host(*(os.path.join(CONFORMANCE, name) for name in batch), "--json", *options, heap=heap)
            if report is None:
                return [f"its process ({batch[0]} to {batch[-1]}) ended with {done.returncode}: {done.stderr[-300:]}"] * len(batch)
            return [row["failure"]["text"] if row["failure"] else "\n".join(row["output"]).split("\n")
                    for row in report["programs"]]
        faults = []
        results = all_at_once(several, batches)
        for name, lines in ((name, lines) for batch in batches for name, lines in zip(batch, results[batch])):
            if lines != self.expected[name]:
                faults.append(f"{name}: {lines}\n    expected {self.expected[name]}")
        self.assertFalse(faults, "\n".join(faults))

    def test_there_are_as_many_as_are_said(self):
        self.assertGreaterEqual(len(programs()), 80)

    def test_boa_on_its_own_heap(self):
        self.agree("stock")

    def test_boa_on_ours(self):
        self.agree("skinflint")

    def test_boa_on_ours_and_the_systems_malloc(self):
        self.agree("skinflint", "--malloc", "system")

    def test_objects_that_end_in_pauses(self):
        self.agree("skinflint", "--sweep-in-pause")

    def test_collecting_often_and_verified(self):
        self.agree("skinflint", "--stress", os.environ.get("SKINFLINT_JS_STRESS", "997"), "--verify")


    def test_under_policies_that_make_room_often_and_verified(self):
        for policy in ["legacy", "many-origin", "tight"]:
            with self.subTest(policy=policy):
                self.agree("skinflint", "--policy", policy, "--stress", "1999", "--verify")


class Seven(unittest.TestCase):
    def test_the_suites_programs_do_the_same_on_both_heaps(self):
        bench.fetched()
        for name, file, work in bench.SEVEN:
            path = bench.runner(f"{name}-test", file, [(of, 1) for of, _ in work])
            lines = {}
            for heap in HEAPS:
                done, report = host(path, "--json", heap=heap)
                self.assertEqual(done.returncode, 0, f"{name} on {heap}: {done.stderr[-400:]}")
                lines[heap] = [line.split()[:3] for line in report["programs"][0]["output"]]
                self.assertEqual(len(lines[heap]), len(work), name)
            self.assertEqual(lines["stock"], lines["skinflint"], name)
            for policy in ["many-origin", "tight"]:
                done, report = host(path, "--json", "--policy", policy)
                self.assertEqual(done.returncode, 0, f"{name} under {policy}: {done.stderr[-400:]}")
                said = [line.split()[:3] for line in report["programs"][0]["output"]]
                self.assertEqual(lines["stock"], said, f"{name} under {policy}")


class Words(unittest.TestCase):
    """What is said, and the status with which it ends."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def test_a_missing_file_is_wrong_use_and_nothing_runs(self):
        good = self.file("good.js", "console.log('ran')")
        for heap in HEAPS:
            done, _ = host(good, os.path.join(self.folder, "none.js"), heap=heap)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, r"none\.js: cannot be read; name a JavaScript file")

    def test_errors_have_their_place_and_the_others_go_on(self):
        bad = self.file("bad.js", "let a = 1;\nlet b = );\n")
        short = self.file("short.js", "let a = {\n  b: 1")
        throws = self.file("throws.js", "function f() {\n  throw new TypeError('no');\n}\nf();")
        promise = self.file("promise.js", "Promise.reject(new RangeError('far'))")
        good = self.file("good.js", "setTimeout(() => console.log('ran'), 2)")
        for heap in HEAPS:
            done, _ = host(bad, short, throws, promise, good, heap=heap)
            self.assertEqual((done.returncode, done.stdout), (1, "ran\n"), done.stderr)
            for said in (r"bad\.js:2:9: ", r"short\.js:2:7: ", r"TypeError: no \(.*throws\.js:", r"RangeError: far",
                         r"5 programs, 4 failed"):
                self.assertRegex(done.stderr, said)

    def test_wrong_options_name_the_right_ones(self):
        good = self.file("good.js", "1")
        for options, said in [
            (["--tabs", "1", good], "--tabs 1: 2 programs need a tab each"),
            (["--heap-limit", "64T"], "64M"),
            (["--heap", "stock", "--stress", "5"], "--stress: Boa's own heap cannot do that; use --heap skinflint"),
            (["--heap", "stock", "--gc-log"], "--gc-log: Boa's own heap gives no reasons"),
            (["--heap", "stock", "--malloc", "skinflint", "--pauses"], "leave out --malloc"),
            (["--record-objects", os.path.join(self.folder, "no/where")], "cannot be written"),
        ]:
            done = run([bench.tool(), "js", good, *options])
            self.assertEqual(done.returncode, 2, options)
            self.assertIn(said, done.stderr)

    def test_one_tab_at_its_limit_ends_alone(self):
        greedy = self.file("greedy.js", "const all = []; for (;;) all.push({ a: all.length });")
        good = self.file("good.js", "const a = []; for (let i = 0; i < 30000; i++) a.push({ i }); setTimeout(() => console.log('ran ' + a.length), 5)")
        done, report = host(greedy, good, good, "--heap-limit", "8M", "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        kinds = [row["failure"] and row["failure"]["kind"] for row in report["programs"]]
        self.assertEqual(kinds, ["limit", None, None], done.stderr)
        self.assertEqual(report["programs"][1]["output"], ["ran 30000"])
        self.assertIn("tab 1", report["programs"][0]["failure"]["text"])

    def test_what_objects_hold_outside_is_in_the_limit(self):
        good = self.file("good.js", "let n = 0; for (let i = 0; i < 200; i++) n += new ArrayBuffer(1 << 20).byteLength; console.log(n)")
        for name, text in [("buffers.js", "const all = []; for (;;) all.push(new ArrayBuffer(1 << 20));"),
                           ("strings.js", "const all = []; for (let i = 0; ; i++) all.push({ s: ('x' + i).repeat(1000) });"),
                           ("timers.js", "const all = []; setInterval(() => all.push('y'.repeat(1 << 20)), 0);")]:
            done, report = host(self.file(name, text), good, "--heap-limit", "64M", "--json")
            kinds = [row["failure"] and row["failure"]["kind"] for row in report["programs"]]
            self.assertEqual(kinds, ["limit", None], f"{name}: {done.stderr}")
            self.assertIn("outside", report["programs"][0]["failure"]["text"])
            self.assertEqual(report["programs"][1]["output"], [str(200 << 20)])
            self.assertLess(max(bench.rss(report).values()), 200 << 20, name)

    def test_the_log_has_a_reason_for_each_collection(self):
        busy = self.file("busy.js", "let keep = []; for (let i = 0; i < 100000; i++) { keep.push({ i, a: [i] }); if (keep.length > 9000) keep = []; } gc();")
        done, _ = host(busy, "--gc-log=json")
        events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        self.assertGreater(len(events), 2)
        self.assertTrue(all(event["reason"] and event["tenant"] for event in events))
        self.assertIn("asked", {event["reason"] for event in events})
        self.assertIn("growth", {event["reason"] for event in events})
        _, report = host(busy, "--gc-log", "--json")
        reasons = report["reasons"]
        ends = [event for event in report["events"] if event["step"] in ("whole", "young", "final")]
        self.assertEqual((sum(reasons.values()), report["events_cut"]), (len(ends), 0))
        self.assertLess(len(ends), len(report["events"]), "slices are no collections")

    def test_figures_add_up(self):
        tab = os.path.join(ROOT, "bench", "gc", "js", "tab.js")
        _, report = host(tab, "--tabs", "4", "--close", "all-but-one", "--pauses", "--json")
        at = {instant["at"]: instant for instant in report["memory"]}
        self.assertEqual([instant["tabs"] for instant in report["memory"]], [4, 2, 1])
        rows = report["tenants"]
        self.assertEqual([row["name"] for row in rows], [f"tab {n}" for n in range(1, 5)])
        self.assertEqual(sum(row["user_bytes"] for row in rows), at["open"]["user_bytes"])
        self.assertEqual(sum(row["system_bytes"] for row in rows), at["open"]["system_bytes"])
        # Each tab holds 150 trees of 32 leaves with an object and an array each, and 31 nodes above them.
        for row in rows:
            self.assertGreater(row["objects"], 150 * (32 * 2 + 31))
            self.assertGreater(row["user_bytes"], 10 * row["system_bytes"] / 2)
        self.assertEqual(report["left"], [])
        for instant in report["memory"]:
            chunks = instant["chunks"]
            classes = [row["by_arenas"] for row in chunks["rows"]]
            self.assertEqual(sum(sum(row.values()) for row in classes), chunks["chunks"])
            self.assertGreaterEqual(chunks["chunks"], chunks["lone"])
        self.assertGreater(at["open"]["chunks"]["chunks"], 2 * at["all but one closed"]["chunks"]["chunks"])
        freed = report["outside_freed"]
        self.assertGreater(freed["blocks_elsewhere"], 1000)
        _, here = host(tab, "--tabs", "4", "--close", "all-but-one", "--free-here", "--json")
        self.assertEqual(here["outside_freed"]["blocks_elsewhere"], 0)
        self.assertEqual(bench.output(here), bench.output(report))
        self.assertLess(at["all but one closed"]["user_bytes"], at["open"]["user_bytes"] * 0.3)
        self.assertEqual(len([line for line in bench.output(report) if " whole " in line]), 4)

    CHURN = """let seed = 7, keep = []; const random = n => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
        for (let i = 0; i < 120000; i++) {
          const a = { i }; a.ring = { a };                       // a cycle: found by examination
          keep[random(4000)] = random(3) ? a : () => a.i;
        }
        console.log(keep.reduce((sum, of) => sum + (typeof of === 'function' ? of() : of.i), 0));"""

    def gc(self, *options):
        return run([bench.tool(), "gc", *options])

    def test_a_live_program_under_policies(self):
        churn = self.file("churn.js", self.CHURN)
        done = self.gc("--live", churn, "--with", "many,full-pages,tight", "--runs", "2", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        of = json.loads(done.stdout)[0]
        self.assertTrue(of["live"])
        self.assertEqual([row["policy"] for row in of["rows"]], ["legacy", "many", "full-pages", "tight"])
        # 120,000 × 2 objects, and a third of that closures.
        self.assertGreater(of["objects"], 240_000)
        self.assertFalse([said for said in of["missing"] if "prints something else" in said], of["missing"])
        for row in of["rows"]:
            self.assertGreater(row["collections"], 3, row)
            self.assertGreaterEqual(row["committed_mean"], row["needed_mean"], row)
            self.assertGreaterEqual(row["committed_peak"], row["committed_mean"], row)
            self.assertGreaterEqual(row["with_tables_mean"], row["committed_mean"], row)
            self.assertGreaterEqual(row["committed_mean"], row["wasted_mean"], row)
            self.assertLess(row["mutator_ms"], row["total_ms"], row)
            self.assertEqual((row["moved_bytes"], row["purged_bytes"], row["promotion_ms"]), (0, 0, 0.0), row)
        at = {row["policy"]: row for row in of["rows"]}
        # Fresh pages only: the study's worst in memory, and the one with the fewest refills.
        self.assertGreater(at["full-pages"]["committed_mean"], at["many"]["committed_mean"])
        self.assertLess(at["full-pages"]["refills"], at["many"]["refills"])
        text = self.gc("--live", churn, "--with", "many", "--runs", "1").stdout
        for part in ["Duration (CPU time of the whole program", "Space size (", "Collection (", "Better and worse", "live, on Boa"]:
            self.assertIn(part, text)
        self.assertNotIn("promotion", text)

    def test_live_programs_that_do_not_repeat_themselves_or_fail(self):
        dice = self.file("dice.js", "const a = []; for (let i = 0; i < 1000; i++) a.push({ i }); console.log(Math.random())")
        done = self.gc("--live", dice, "--with", "many", "--runs", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("it prints something else under legacy (line 1: ", done.stderr)
        throws = self.file("throws.js", "throw new Error('by intent')")
        done = self.gc("--live", throws)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("throws.js: ", done.stderr)
        self.assertIn("by intent", done.stderr)
        done, _ = host(throws, "--policy", "best")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no `best`; there are legacy, ", done.stderr)
        done, _ = host(throws, "--policy", "many", heap="stock")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--policy: Boa's own heap cannot do that", done.stderr)

    def test_a_closed_pipe_is_success(self):
        words = self.file("words.js", "for (let i = 0; i < 100000; i++) console.log('line ' + i)")
        command = f"'{bench.tool()}' js --heap stock '{words}' 2>/dev/null | head -1; echo ${{PIPESTATUS[0]}}"
        self.assertEqual(run(["bash", "-c", command]).stdout.split("\n")[:2], ["line 0", "0"])

    def test_a_full_disk_is_a_failure(self):
        words = self.file("words.js", "console.log('a line')")
        for more in ((), ("--json",)):
            command = [bench.tool(), "js", "--heap", "stock", words, *more]
            with open("/dev/full", "w") as full:
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stderr.count("stdout: not all was written: No space left on device"), 1, done.stderr)

    def test_objects_are_recorded(self):
        path = os.path.join(self.folder, "o.sfo")
        busy = self.file("busy.js", "let keep; for (let i = 0; i < 5000; i++) keep = { i };")
        done, _ = host(busy, "--record-objects", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = re.search(r"o\.sfo: (\d+) objects, (\d+) of them died", done.stderr)
        self.assertIsNotNone(said, done.stderr)
        self.assertGreater(int(said[1]), 5000)
        self.assertGreater(int(said[2]), 4000)
        self.assertGreater(os.path.getsize(path), 1000)


if __name__ == "__main__":
    unittest.main()
