"""Tests of the benches themselves: each check is seen to fail on a case made to fail it.

    python3 bench/selftest.py          no recorder needed: reports are made up, by hand

A bench that cannot miss its bar proves nothing; here every verdict is given a figure on either side of it.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import agent
import exact
import forks
import frames
import instructions
import kill
import measure
import script_programs
import moments
import overhead
import pinned
import planted
import sampled
import sampler
import soak
import workloads


def made_up_report(allocations=50, frees=50, lost=0, complete=True, notes=(), ended="exit 0"):
    return {"completeness": {"complete": complete, "events": allocations + frees, "lost_events": lost,
                             "truncated_stacks": 0, "unknown_frees": 0, "notes": list(notes)},
            "totals": {"allocations": allocations, "frees": frees}, "program": {"ended": ended}}


class WithTools(unittest.TestCase):
    """Tests that compile and run the small C programs."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.bench = measure.Bench(os.path.join(cls.folder.name, "skinflint"), cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def fake_skinflint(self, script):
        with open(self.bench.skinflint, "w") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(self.bench.skinflint, 0o755)


class Wrapper(WithTools):
    """self_rusage.c"""

    def run_it(self, *words):
        out = os.path.join(self.folder.name, "out.json")
        if os.path.exists(out):
            os.remove(out)
        done = subprocess.run([self.bench.tool("self_rusage"), out, *words], capture_output=True, text=True, timeout=60)
        result = None
        if os.path.exists(out):
            with open(out) as file:
                result = json.load(file)
        return done, result

    def test_status_and_streams_pass_through(self):
        done, result = self.run_it("-e", "WORD=one two", "--", "sh", "-c", "echo $WORD; exit 7")
        self.assertEqual((done.returncode, done.stdout, result["status"]), (7, "one two\n", 7))

    def test_a_signal_is_told_from_a_status(self):
        done, result = self.run_it("--", "sh", "-c", "kill -9 $$")
        self.assertEqual((done.returncode, result["status"]), (137, -9))

    def test_cpu_is_the_commands_own(self):
        busy = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
        _, result = self.run_it("--", sys.executable, "-c", busy)
        seconds = (result["user_us"] + result["sys_us"]) / 1e6
        self.assertTrue(0.2 <= seconds < 1.0, seconds)

    def test_a_small_commands_peak_is_not_ours(self):
        """A Python parent would show itself here: its peak is carried over fork and exec."""
        _, result = self.run_it("--", "/bin/true")
        self.assertLess(result["max_rss_kb"], 8000)

    def test_bad_use_is_refused(self):
        self.assertEqual(self.run_it("--")[0].returncode, 2)
        self.assertEqual(self.run_it("--", "/no/such/program")[0].returncode, 127)


class Programs(WithTools):
    """churn.c and counted.c"""

    def test_churn_makes_what_it_is_told_to(self):
        done = subprocess.run([self.bench.tool("churn"), "100001"], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "100001 events, 0 damaged\n"))
        self.assertEqual(subprocess.run([self.bench.tool("churn"), "0"], capture_output=True, timeout=60).returncode, 2)

    def test_counted_keeps_its_count_outside(self):
        counter = os.path.join(self.folder.name, "count")
        done = subprocess.run([self.bench.tool("counted"), counter, "1000"], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.stdout, kill.read_count(counter)), ("done 1000\n", 1000))
        self.assertEqual(kill.read_count(os.path.join(self.folder.name, "absent")), 0)


class KillJudge(WithTools):
    """What a cut recording is held to."""

    def judge(self, number, done, **report):
        one = kill.Round(self.bench, self.folder.name, number, 1)
        with open(one.counter, "wb") as file:
            file.write(done.to_bytes(8, "little"))
        return one.judge(made_up_report(**report))

    def test_program_killed(self):
        good = {"ended": "signal 9 (SIGKILL)"}
        self.assertEqual(self.judge(0, 100, **good), [])
        self.assertEqual(self.judge(0, 103, lost=3, **good), [])
        self.assertIn("silent loss", self.judge(0, 101, **good)[0])
        self.assertIn("not by signal 9", self.judge(0, 100)[0])

    def test_collector_killed(self):
        cut = {"complete": False, "notes": ["no end mark"]}
        self.assertEqual(self.judge(1, 100, **cut), [])
        self.assertEqual(self.judge(1, 10**6, **cut), [])
        self.assertIn("called complete", self.judge(1, 100, notes=["x"])[0])
        self.assertIn("no note", self.judge(2, 100, complete=False)[0])
        self.assertIn("only 0 done", self.judge(1, 0, allocations=101, **cut)[0])

    def test_moments_follow_from_the_seed(self):
        delays = [[kill.Round(self.bench, "", n, seed).delay_s for n in range(9)] for seed in (1, 1, 2)]
        self.assertEqual(delays[0], delays[1])
        self.assertNotEqual(delays[0], delays[2])
        self.assertEqual({kill.Round(self.bench, "", n, 1).target for n in range(3)}, set(kill.TARGETS))


class OverheadJudge(unittest.TestCase):
    """Ratios, means and bars."""

    def test_geometric_mean(self):
        self.assertAlmostEqual(overhead.geomean([1, 4]), 2)
        self.assertIsNone(overhead.geomean([]))

    def test_bars_are_exact(self):
        at_the_bar = dict(overhead.BARS)
        results = [{"name": "a", "failed": {}}]
        self.assertTrue(all(held for _, held in overhead.judge(at_the_bar, results, [1])))
        for name in overhead.BARS:
            above = {**at_the_bar, name: at_the_bar[name] + 0.001}
            self.assertEqual([held for _, held in overhead.judge(above, results, [1])].count(False), 1)
            absent = {key: value for key, value in at_the_bar.items() if key != name}
            self.assertEqual([held for _, held in overhead.judge(absent, results, [1])].count(False), 1)

    def test_a_failed_program_is_a_missed_bar(self):
        results = [{"name": "a", "failed": {"skinflint": "crashed"}}]
        self.assertFalse(overhead.judge(overhead.BARS, results, [1])[-1][1])
        peer_failed = [{"name": "a", "failed": {"heaptrack": "crashed"}}]
        self.assertTrue(overhead.judge(overhead.BARS, peer_failed, [1])[-1][1])

    def test_changed_output_is_a_failure(self):
        def run(status, digest):
            return measure.Run(status, digest, 1, 1, 1, 1, 1)
        for other in (run(0, "b"), run(1, "a")):
            failed = {}
            overhead.compare_output({"plain": [run(0, "a")], "skinflint": [run(0, "a"), other]}, failed)
            self.assertIn("1 of 2", failed["skinflint"])
        failed = {}
        overhead.compare_output({"plain": [run(0, "a"), run(0, "b")], "skinflint": []}, failed)
        self.assertIn("plain", failed)


class Frames(unittest.TestCase):
    def judged(self, cpu=1.6, share=1.0, failed=None):
        row = {"plain": {"cpu_s": 1.0, "peak_kb": 1.0}, "frames": {"cpu_s": cpu, "peak_kb": 1.0},
               "objects": {"cpu_s": 9.0, "peak_kb": 1.0, "share": share}}
        with unittest.mock.patch("builtins.print"):
            verdicts = frames.judge({"json": (row, failed or {})}, ["plain", "frames", "objects"])
        return [held for _, held in verdicts]

    def test_bars_are_exact(self):
        self.assertEqual(self.judged(), [True, True, True])
        self.assertEqual(self.judged(cpu=1.601), [False, True, True])
        for share in (0.949, 1.01):
            self.assertEqual(self.judged(share=share), [True, False, True])
        self.assertEqual(self.judged(failed={"objects": "crashed"}), [True, True, False])
        self.assertEqual(self.judged(failed={"memray": "crashed"}), [True, True, True])


    def test_a_planted_byte_is_right_only_with_its_function_file_and_line(self):
        def judged(**wrong):
            frame = {"module": "[python]", "function": "planted", "file": "/a/frames_programs.py", "line": frames.PLANTED_LINE}
            native = {"module": "libc.so.6", "function": "malloc", "file": None, "line": None}
            report = {"frames": [{**frame, **wrong}, native],
                      "nodes": [{"frame": 1, "parent": 0}, {"frame": 0, "parent": 0}, {"frame": 1, "parent": 1}]}
            return frames.is_planted(report, 2)

        self.assertTrue(judged())
        self.assertTrue(judged(function="planted.<locals>.<listcomp>"))
        for wrong in ({"function": "rows"}, {"file": "/a/other.py"}, {"file": None}, {"line": frames.PLANTED_LINE - 1},
                      {"line": None}, {"module": "python3.11"}):
            self.assertFalse(judged(**wrong), wrong)


class Planted(unittest.TestCase):
    def test_too_few_bytes_at_a_line_are_missed_and_too_many_are_told(self):
        for has, more, said in ((949, 0, "MISSED"), (950, 0, "held"), (1050, 0, "held"), (1051, 0, "TOO MUCH"), (2050, 1000, "held"),
                                (2101, 1000, "TOO MUCH"), (949, 1000, "MISSED")):
            self.assertEqual(planted.verdict(1000, has, more), said, has)

    def test_bytes_are_those_of_the_innermost_frame_of_the_program(self):
        frames_of = [("[java]", "Natives.map", "Natives.java", 29), ("[java]", "FileChannelImpl.map", "FileChannelImpl.java", 7),
                     ("libjvm.so", "os::malloc", None, None), ("[java]", "Natives.main", "Natives.java", 48)]
        report = {"frames": [dict(zip(("module", "function", "file", "line"), one)) for one in frames_of],
                  "nodes": [{"frame": 2, "parent": 0}, {"frame": 3, "parent": 0}, {"frame": 0, "parent": 1}, {"frame": 1, "parent": 2},
                            {"frame": 2, "parent": 3}],
                  "sites": [{"node": 4, "live_requested_bytes": 100}, {"node": 1, "live_requested_bytes": 7}],
                  "mappers": [{"node": 3, "mapped_bytes": 4096, "file_bytes": 1}, {"node": 3, "mapped_bytes": 999, "file_bytes": 0}]}
        self.assertEqual(planted.by_place(report), {("Natives.map", "Natives.java", 29): 4196, ("Natives.main", "Natives.java", 48): 7})


class Instructions(unittest.TestCase):
    def test_bars_are_exact(self):
        self.assertTrue(instructions.judge([[400.0], [900.0]]), "600 in geometric mean")
        self.assertFalse(instructions.judge([[400.0], [1000.0]]), "632")
        self.assertTrue(instructions.judge([[525.0, 500.0]]))
        self.assertFalse(instructions.judge([[526.0, 500.0]]))

    def test_the_bar_of_scripts_is_exact(self):
        self.assertTrue(instructions.judge_scripts([[1.28], [2.0]]), "1.6 in geometric mean")
        self.assertFalse(instructions.judge_scripts([[1.29], [2.0]]))
        self.assertTrue(instructions.judge_scripts([[1.5, 9.0]]), "another build is shown beside it")
        self.assertTrue(instructions.judge_scripts([[instructions.JAVA_BAR]], instructions.JAVA_BAR))
        self.assertFalse(instructions.judge_scripts([[instructions.JAVA_BAR + 0.01]], instructions.JAVA_BAR))

    def test_changed_output_is_a_failure(self):
        with unittest.mock.patch.object(instructions, "counted", return_value=(10, b"one")), \
                unittest.mock.patch.object(instructions, "recorded", return_value=(20, b"two", 1)):
            with self.assertRaisesRegex(measure.Failed, "output differs"):
                instructions.row("perl", [], ["a/build"])
            with self.assertRaisesRegex(measure.Failed, "output differs"):
                instructions.scripted(["a/build"], "csv")

    def test_a_package_that_is_missing_is_named(self):
        with unittest.mock.patch.object(script_programs, "version", side_effect=lambda package: package != "smarty4" and "1.2"):
            line, missing = script_programs.versions(["csv", "smarty"])
        self.assertIn("smarty4 absent", line)
        self.assertEqual(missing, ["smarty4"])
        self.assertEqual(script_programs.version("no-such-package"), "")


class Sampler(WithTools):
    """The bars of a profile that is always on."""

    def held(self, rows, more=0, block=0.0, usable=0.0):
        return [one for one, _ in sampler.judge(rows, more, block, usable)]

    def test_bars_are_exact(self):
        self.assertEqual(self.held([(1.0, 9.9, 2_000_000), (1.02, 9.9, 0)]), [True, True, True], "1.00995 in geometric mean")
        self.assertEqual(self.held([(1.0, 1.0, 0), (1.021, 1.0, 0)]), [False, True, True])
        self.assertEqual(self.held([(1.0, 1.0, 2_000_001)]), [True, False, True])
        self.assertEqual(self.held([(1.0, 1.0, 0)], more=2_000_001), [True, False, True])
        for one in {"block": 0.08}, {"block": -0.08}, {"usable": 0.08}:
            self.assertEqual(self.held([(1.0, 1.0, 0)], **one), [True, True, False])

    def test_changed_output_is_a_failure(self):
        with unittest.mock.patch.object(sampler, "counted", side_effect=[(10, b"one"), (11, b"two")]):
            with self.assertRaisesRegex(measure.Failed, "output differs"):
                sampler.row(self.bench, "perl", [], sampler.Allocator("ours", "x.so", (), ()), 1, False)

    def test_held_blocks_are_counted(self):
        tool = self.bench.tool("held")
        few, many = [json.loads(subprocess.run([tool, str(count), "100"], capture_output=True, timeout=60, check=True).stdout)
                     for count in (10, 100_000)]
        self.assertEqual([one["usable"] for one in (few, many)], [104, 104], "glibc's")
        self.assertGreater(many["rss"] - few["rss"], 100_000 * 100)
        self.assertEqual(subprocess.run([tool, "0", "1"], capture_output=True, timeout=60).returncode, 2)


class Sampled(unittest.TestCase):
    """A recording of a sample beside one of every event."""

    @staticmethod
    def report(sites=(), stacks=()):
        frames = [{"function": name, "module": "m", "file": None, "line": None} for name in ("main", "one", "two")]
        nodes = [{"parent": 0, "frame": 0}, {"parent": 0, "frame": 0}, {"parent": 1, "frame": 1}, {"parent": 1, "frame": 2},
                 {"parent": 1, "frame": 2}]
        return {"frames": frames, "nodes": nodes, "sites": list(sites), "stacks": list(stacks)}

    @staticmethod
    def site(node, live, acquired):
        return {"node": node, "end_requested_bytes": live, "requested_bytes": acquired}

    @staticmethod
    def figure(low, high, samples=20):
        return {"low": low, "high": high, "samples": samples, "bytes": 0}

    def test_stacks_are_matched_by_their_names(self):
        true = sampled.truth(self.report([self.site(2, 10, 90), self.site(3, 1, 1), self.site(4, 2, 2)]))
        self.assertEqual(sorted(map(str, true.values())), ["None", "Truth(live=10, acquired=90)"], "two stacks have one name")
        seen = [{"node": node, "live": self.figure(5, 15), "acquired": self.figure(91, 99)} for node in (2, 3)]
        seen.append({"node": 1, "live": self.figure(None, None, 2), "acquired": self.figure(1, 2)})
        rows, counts = sampled.compared(true, set(), self.report(stacks=seen))
        self.assertEqual([(what, bytes_) for what, bytes_, _ in rows], [("live", 10), ("acquired", 90)])
        self.assertEqual(sampled.inside(rows), [True, False])
        self.assertEqual(counts, {"of one name": 2, "left out": 1})

    def test_bars_are_exact(self):
        def held(inside, width, left_out=0):
            figures = [self.figure(100 - width, 100 + width) if n < inside else self.figure(200, 200 + 2 * width) for n in range(100)]
            return [one for one, _ in sampled.judge([(100, [("live", 100, figure) for figure in figures])], {"left out": left_out,
                    "too few": 0, "disputed": 0, "stacks": 0, "of one name": 0})]
        self.assertEqual(held(93, 196 * 1.14), [True, True, True])
        self.assertEqual(held(92, 196 * 1.14), [False, True, True])
        self.assertEqual(held(93, 196 * 1.16), [True, False, True])
        self.assertEqual(held(93, 196, 6), [True, True, False])


class Pinned(WithTools):
    """What a profile says that stacks keep resident, beside a recording of every event."""

    def test_both_sides_name_a_function_alike(self):
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "f.so")
            subprocess.run(["gcc", "-xc", "-shared", "-o", library, "-"], input=b"int one(void) { return 1; }\nint two(void) { return 2; }\n", check=True)
            names = pinned.Names()
            begin = names.table(library)[2]["two"]
            self.assertEqual(names.of_name(library, "two"), names.of_place(library, begin + 3))
            self.assertEqual(names.of_name(library, f"f.so+{begin + 3:#x}"), ("f.so", begin))
            self.assertNotEqual(names.of_name(library, "one"), names.of_name(library, "two"))
            text = (f"# 7 of 9 samples, variance 5, row 3, pinned 300 +- 30\n 1: 2 [3: 4] @ {0x7000 + begin + 4:#x} 0x10\n"
                    f"# 2 of 2 samples, variance 5, row 9, pinned 100 +- 40\n 1: 2 [3: 4] @ {0x7000 + begin + 5:#x}\n"
                    f"\nMAPPED_LIBRARIES:\n7000-8000 r--p 00000000 00:00 1 {library}\n8000-9000 r-xp 00001000 00:00 1 {library}\n")
            said = pinned.of_text(text, names)
            self.assertEqual(said, {(("f.so", begin),): pinned.Estimate(400, 50, 9)}, "two calls of one function")

    def test_bars_are_exact(self):
        def verdicts(within, inside, half=9):
            rows = [pinned.Row(100, pinned.Estimate(100 if n < within else 111, half, 20)) for n in range(100)]
            # Those that the interval does not allow are judged by it alone.
            rows += [pinned.Row(100, pinned.Estimate(100 if n < inside else 200, 50, 20)) for n in range(100)]
            return [held for held, _ in pinned.judge(rows)]
        self.assertEqual(verdicts(93, 93), [True, True])
        self.assertEqual(verdicts(92, 94), [False, True])
        self.assertEqual(verdicts(93, 92), [True, False])
        self.assertEqual(verdicts(93, 100, half=11), [False, True], "no row is allowed: nothing was shown")
        self.assertEqual([held for held, _ in pinned.judge([pinned.Row(100, pinned.Estimate(100, 1, 9))])], [False, False], "too few samples")


class Measuring(WithTools):
    """A recorder that fails is named, never measured."""

    JOB = workloads.Workload("job", "coreutils", ["/bin/sh", "-c", "echo out; echo file > f"], files=("f",))

    def test_plain(self):
        result = measure.run(self.bench, self.JOB, "plain")
        other = workloads.Workload("job", "coreutils", ["/bin/sh", "-c", "echo out; echo File > f"], files=("f",))
        self.assertEqual(result.digest, measure.run(self.bench, self.JOB, "plain").digest)
        self.assertNotEqual(result.digest, measure.run(self.bench, other, "plain").digest)

    def failure(self, script, act=None):
        self.fake_skinflint(script)
        with self.assertRaises(measure.Failed) as caught:
            (act or (lambda: measure.run(self.bench, self.JOB, "skinflint")))()
        return str(caught.exception)

    def test_recorders_that_fail(self):
        self.assertIn("no trace of process", self.failure('shift 4; exec "$@"\n'))
        self.assertIn("no measurement", self.failure("echo broken >&2; exit 3\n"))
        self.assertIn("stderr: broken", self.failure("echo broken >&2; exit 3\n"))
        self.assertIn("the tool with 1", self.failure('shift 4; "$@"; exit 1\n'))

    def test_reports_that_fail(self):
        def read():
            return measure.report(self.bench, "x.sft")
        self.assertIn("no JSON", self.failure("echo {\n", read))
        self.assertIn("exit 2", self.failure("exit 2\n", read))

    def test_a_missing_recorder_names_the_next_step(self):
        absent = measure.Bench(os.path.join(self.folder.name, "absent", "skinflint"), self.folder.name)
        with self.assertRaisesRegex(measure.Failed, "cargo build --release"):
            absent.need_skinflint()


class Exactness(unittest.TestCase):
    """The conversion between the two ways to count."""

    def test_blocks_of_no_bytes(self):
        rows = [{"size": 0, "allocations": 3}, {"size": 1, "allocations": 9}, {"size": 0, "allocations": 4}]
        self.assertEqual(exact.zero_sized({"sizes": rows}), 7)


class SoakJudge(unittest.TestCase):
    """What is flat, and what is not. Memory swings by a fifth from phase to phase in both."""

    @staticmethod
    def run_of(seconds, per_second):
        return [(at / 4, 50_000 * (1 + per_second * at / 4) + 8_000 * math.sin(at / 5))
                for at in range(seconds, 4 * seconds)]

    def test_a_short_run(self):
        self.assertTrue(soak.judge_short(self.run_of(20, 0))[1])
        self.assertTrue(soak.judge_short(self.run_of(20, 0.01))[1])
        self.assertFalse(soak.judge_short(self.run_of(20, 0.2))[1])
        self.assertFalse(soak.judge_short(self.run_of(2, 0))[1], "too few samples are no proof")

    def test_a_long_run(self):
        self.assertTrue(soak.judge(self.run_of(1800, 0))[1])
        self.assertFalse(soak.judge(self.run_of(1800, 0.02 / 600))[1])


class Agent(unittest.TestCase):
    """agent.py"""

    def test_bars_are_exact(self):
        self.assertEqual(agent.judge(agent.MOST_BYTES, 100, 100), [])
        self.assertIn("30,000,001 bytes", agent.judge(agent.MOST_BYTES + 1, 100, 100)[0])
        self.assertIn("99 books closed", agent.judge(0, 99, 100)[0])


class Moments(unittest.TestCase):
    """moments.py and forks.py"""

    @staticmethod
    def report(kind, live, most=1000):
        return {"at": 0, "instants": [{"kind": kind, "live_usable_bytes": live, "live_blocks": 7,
                                       "live_requested_bytes": live}, {"kind": "heap_peak", "live_usable_bytes": most}],
                "completeness": {"complete": True, "notes": []}}

    def test_a_peak_that_is_empty_is_seen(self):
        self.assertLess(moments.share_of(self.report("peak", 949)), moments.LEAST_SHARE)
        self.assertGreaterEqual(moments.share_of(self.report("peak", 950)), moments.LEAST_SHARE)
        for wrong in (self.report("end", 1000), self.report("peak", 1000, 0)):
            with self.assertRaises(measure.Failed):
                moments.share_of(wrong)

    def test_a_block_too_many_is_seen(self):
        self.assertEqual(forks.judge(self.report("end", 500), (7, 500)), "")
        self.assertIn("500 bytes", forks.judge(self.report("end", 500), (7, 501)))
        self.assertIn("7 blocks", forks.judge(self.report("end", 500), (8, 500)))
        self.assertIn("about peak", forks.judge(self.report("peak", 500), (7, 500)))
        cut = self.report("end", 500)
        cut["completeness"] = {"complete": False, "notes": ["the file is cut"]}
        self.assertIn("the file is cut", forks.judge(cut, (7, 500)))


if __name__ == "__main__":
    unittest.main()
