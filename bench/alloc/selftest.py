"""Tests of the allocator's bench: each check is seen to fail on a case made to fail it.

    python3 bench/alloc/selftest.py        no allocator but the C library's is needed; libraries that lie are compiled here

A bench that cannot miss its bar proves nothing: every verdict is given a figure on either side of it, and the
programs are run over mallocs that break their contract.
"""
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import idle  # noqa: E402
import judge  # noqa: E402
import measure  # noqa: E402
import mesh  # noqa: E402
import peers  # noqa: E402
import real  # noqa: E402
import run  # noqa: E402
import speed  # noqa: E402
import threads as waiting  # noqa: E402
import start  # noqa: E402

GLIBC = peers.glibc(None)
# A malloc that gives memory out, takes it back without reusing it, and can be told to break its word.
BROKEN = r"""
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static __thread char *at, *end; /* each thread from its own memory: it breaks its word, not itself */
static __thread char *last;
void *malloc(size_t n) {
    n = (n + 15) & ~15ul;
    if (at + n + 16 > end) {
        size_t room = n + (1 << 22);
        at = mmap(0, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        end = at + room;
    }
    *(size_t *)at = n;
#ifdef OVERLAP
    static __thread unsigned calls;
    if (++calls % 50 == 0 && last && n <= ((size_t *)last)[-2]) return last;
#endif
    last = at + 16;
    at += 16 + n;
    return last;
}
void free(void *p) {
#ifdef PURGES_LIVE
    if (p) madvise((void *)((size_t)p & ~4095ul), 4096, MADV_DONTNEED);
#endif
    (void)p;
}
void *calloc(size_t a, size_t b) {
    void *p = malloc(a * b);
#ifdef DIRTY_CALLOC
    memset(p, 1, a * b);
#else
    memset(p, 0, a * b);
#endif
    return p;
}
void *realloc(void *p, size_t n) {
    void *q = malloc(n);
#ifndef FORGETS
    size_t had = p ? ((size_t *)p)[-2] : 0;
    if (p) memcpy(q, p, had < n ? had : n);
#endif
    return q;
}
void *memalign(size_t a, size_t n) { return (void *)(((size_t)malloc(n + a) + a) & ~(a - 1)); }
void *aligned_alloc(size_t a, size_t n) { return memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { return *p = memalign(a, n), 0; }
int malloc_trim(size_t n) { return (int)n & 0; }
"""


class WithPrograms(unittest.TestCase):
    """Tests that compile and run the C programs."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.bench = measure.Bench("", cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def broken(self, *defines):
        """An allocator that lies in the ways named."""
        path = os.path.join(self.folder.name, "-".join(("broken", *defines)) + ".so")
        source = path + ".c"
        with open(source, "w") as file:
            file.write(BROKEN)
        subprocess.run(["gcc", "-O1", "-fno-builtin", "-shared", "-fPIC", *(f"-D{d}" for d in defines), source, "-o", path],
                       check=True, timeout=60)
        return peers.Allocator("broken", "0", path, "made here")

    def pattern(self, allocator, name, scale):
        done = subprocess.run([speed.pattern_binary(self.bench), name, str(scale)], env=speed.environment(allocator),
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr


class Patterns(WithPrograms):
    """pattern.c: contents are checked, the work is fixed, the malloc is named."""

    def test_every_pattern_runs_and_counts_the_same_work_twice(self):
        for name, _threads, _scale, _what in speed.patterns(self.bench):
            with self.subTest(name):
                counts = set()
                # A realloc that always copies would take minutes over the long ones.
                for allocator in (GLIBC,) if name.startswith("realloc-") else (GLIBC, self.broken()):
                    status, out, error = self.pattern(allocator, name, 1)
                    self.assertEqual(status, 0, error)
                    counts.add(json.loads(out)["ops"])
                self.assertEqual(len(counts), 1)

    def test_overlapping_blocks_are_seen(self):
        for name in ("lifo", "rand2k", "sh1", "larson", "prodcons", "mstress"):
            with self.subTest(name):
                self.assertEqual(self.pattern(self.broken("OVERLAP"), name, 2000)[0], 3)

    def test_a_calloc_that_is_not_zero_is_seen(self):
        self.assertEqual(self.pattern(self.broken("DIRTY_CALLOC"), "calloc450", 10)[0], 3)

    def test_a_realloc_that_loses_the_content_is_seen(self):
        self.assertEqual(self.pattern(self.broken("FORGETS"), "realloc16", 1)[0], 3)

    def test_a_page_given_back_too_early_is_seen(self):
        self.assertEqual(self.pattern(self.broken("PURGES_LIVE"), "rand100k", 400000)[0], 3)

    def test_a_wrong_word_is_an_error(self):
        for words in ((), ("nosuch",), ("lifo", "0"), ("lifo", "x"), ("lifo", "1", "2")):
            done = subprocess.run([speed.pattern_binary(self.bench), *words], capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 2, words)

    def test_a_preload_that_did_not_take_is_no_row(self):
        absent = peers.Allocator("absent", "0", "/nonexistent/lib.so", "nowhere")
        with self.assertRaises(measure.Failed):
            speed.run_pattern(speed.pattern_binary(self.bench), "pair5m", absent)
        with self.assertRaises(peers.Absent):
            peers.verify(absent, ["/bin/true"], real.ENVIRONMENT)
        with self.assertRaises(measure.Failed):
            speed.check_malloc(self.broken(), "/lib/x86_64-linux-gnu/libc.so.6")


class Idle(WithPrograms):
    """idle.c, floor.so, floor_read: two counts of the same pages."""

    def floor_both_ways(self, name):
        with self.bench.scratch() as scratch:
            table = os.path.join(scratch, "blocks")
            extra = {"LD_PRELOAD": idle.floor_library(self.bench), "BENCH_FLOOR_FILE": table}
            program, _ = idle.started(self.bench, idle.WORKLOADS[name], GLIBC, extra)
            try:
                read = subprocess.run([idle.compiled(self.bench, "floor_read"), table, str(program.process.pid)],
                                      capture_output=True, text=True, check=True, timeout=60)
                return json.loads(read.stdout), json.loads(program.ask("floor"))
            finally:
                program.end()

    def test_the_floor_from_outside_is_the_floor_from_inside(self):
        outside, inside = self.floor_both_ways("thrchurn")
        # The list of live blocks is the program's own memory; a handful of blocks are libc's.
        self.assertAlmostEqual(outside["floor_kb"], inside["floor_kb"] + inside["own_kb"], delta=64)
        self.assertAlmostEqual(outside["blocks"], inside["live_blocks"], delta=16)

    def test_a_floor_by_hand(self):
        """One block of a page (which could not grow), one across two, one freed, one that moved."""
        with self.bench.scratch() as scratch:
            source, program = os.path.join(scratch, "hand.c"), os.path.join(scratch, "hand")
            with open(source, "w") as file:
                file.write("#include <stdlib.h>\n#include <string.h>\n#include <malloc.h>\n#include <unistd.h>\n"
                           "int main(void) { char *a = memalign(4096, 100), *b = memalign(4096, 5000), *c = malloc(9000);\n"
                           "memset(a, 1, 100); memset(b, 1, 5000); memset(c, 1, 9000); free(c);\n"
                           "if (realloc(a, ~0ul >> 1)) return 9;\n"
                           "char *d = memalign(4096, 4096); memset(d, 1, 4096); d = realloc(d, 12288); memset(d, 1, 12288);\n"
                           "write(1, \"x\", 1); pause(); return a[0] + b[0] + d[0]; }\n")
            subprocess.run(["gcc", "-O0", "-w", source, "-o", program], check=True, timeout=60)
            table = os.path.join(scratch, "blocks")
            environment = {"LD_PRELOAD": idle.floor_library(self.bench), "BENCH_FLOOR_FILE": table}
            process = subprocess.Popen([program], env=environment, stdout=subprocess.PIPE)
            try:
                self.assertEqual(process.stdout.read(1), b"x")
                read = subprocess.run([idle.compiled(self.bench, "floor_read"), table, str(process.pid)],
                                      capture_output=True, text=True, check=True, timeout=60)
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
        found = json.loads(read.stdout)
        # 100 bytes: 1 page; 5,000 aligned: 2; 12,288: 3 or, where it begins inside a page, 4.
        self.assertEqual(found["blocks"], 3)
        self.assertIn(found["floor_kb"], (24, 28))

    def test_a_live_block_that_was_purged_is_seen(self):
        program, _ = idle.started(self.bench, idle.WORKLOADS["thrchurn"], GLIBC, None)
        try:
            program.ask("trim", "trimmed")
            self.assertGreater(json.loads(program.ask("floor"))["floor_kb"], 20_000)
        finally:
            program.end()
        with self.assertRaises(measure.Failed):
            idle.started(self.bench, idle.WORKLOADS["frag1"], self.broken("PURGES_LIVE"), None)


def row(**cpu):
    return {name: {"cpu": value, "cpu_min": value, "cpu_max": value, "peak": 1000.0, "threads": True, "ns": value,
                   "rounds": 3} for name, value in cpu.items()}


class Verdicts(unittest.TestCase):
    """judge.py: either side of each bar."""

    names = ["skinflint", "glibc", "fast", "slow"]

    def held(self, verdicts):
        return [verdict["held"] for verdict in verdicts]

    def test_speed(self):
        good = {"a": row(skinflint=1.0, glibc=2.0, fast=1.0, slow=3.0), "b": row(skinflint=1.0, glibc=2.0, fast=1.0, slow=3.0)}
        self.assertTrue(all(self.held(judge.judge_speed(good, self.names, "skinflint", {}))))
        slower = {"a": row(skinflint=1.02, glibc=2.0, fast=1.0, slow=3.0)}
        self.assertEqual(self.held(judge.judge_speed(slower, self.names, "skinflint", {})), [True, False, True])
        one_bad = {"a": row(skinflint=0.5, glibc=2.0, fast=1.0), "b": row(skinflint=1.11, glibc=2.0, fast=1.0)}
        self.assertEqual(self.held(judge.judge_speed(one_bad, self.names, "skinflint", {})), [True, True, False, False])

    def test_the_best_single_peer_is_one_peer_not_the_best_of_each_row(self):
        rows = {"a": row(skinflint=1.0, glibc=0.9, fast=1.2), "b": row(skinflint=1.0, glibc=1.3, fast=0.9)}
        mean = judge.judge_speed(rows, self.names, "skinflint", {})[1]
        self.assertTrue(mean["held"], mean)

    def test_a_row_without_the_subject_is_missed(self):
        rows = {"a": row(skinflint=1.0, glibc=2.0), "b": row(glibc=2.0)}
        self.assertFalse(judge.judge_speed(rows, self.names, "skinflint", {("b", "skinflint"): "crashed"})[0]["held"])
        self.assertTrue(judge.judge_speed(rows, self.names, "skinflint", {("b", "fast"): "crashed"})[0]["held"])

    def test_peak(self):
        for own, held in ((1000.0, [True, True]), (1001.0, [False, True]), (1051.0, [False, False])):
            rows = {"a": row(skinflint=1.0, glibc=1.0)}
            rows["a"]["skinflint"]["peak"] = own
            self.assertEqual(self.held(judge.judge_peak(rows, self.names, "skinflint")), held)

    def test_idle_threads(self):
        for kb, held in ((40.0, True), (40.1, False), (None, False)):
            rows = {"idle-threads-64": {"skinflint": {"soon": kb, "trim": 1.0}}}
            self.assertEqual(self.held(waiting.judged(rows, "skinflint")), [held, True])

    def idle_rows(self, idle_kb, redis_kb=1000):
        figures = {"floor": 1000, "idle": idle_kb, "trim": idle_kb, "drop": 5000, "peak": 5000}
        return {"frag1": {"skinflint": figures}, "redis-idle": {"skinflint": {"floor": 1000, "idle": redis_kb}}}

    def test_idle(self):
        self.assertEqual(self.held(judge.judge_idle(self.idle_rows(1250), "skinflint")), [True, True, True, True])
        self.assertEqual(self.held(judge.judge_idle(self.idle_rows(1600), "skinflint")), [True, False, False, True])
        self.assertFalse(judge.judge_idle(self.idle_rows(1000, 171 * 1024), "skinflint")[3]["held"])
        for spent, held in ((0.0, True), (0.2, False)):
            busy = self.idle_rows(1000)
            busy["frag1"]["skinflint"]["late_cpu_ms"] = spent
            self.assertEqual(self.held(judge.judge_idle(busy, "skinflint")), [True, True, True, held, True])
        lost = self.idle_rows(1000)
        lost["frag1"] = {}
        self.assertFalse(judge.judge_idle(lost, "skinflint")[0]["held"])

    def test_start(self):
        def figures(rss, true, forks, noise=0.0, share=0.01):
            return {"skinflint": {"rss_kb": rss, "true_cpu": true, "forks_cpu": forks, "forks_wall": forks, "true_cpu_noise": noise,
                                  "purger_share": share},
                    "glibc": {"rss_kb": 1100, "true_cpu": 1.0, "forks_cpu": 1.0, "forks_wall": 1.0}}
        self.assertEqual(self.held(judge.judge_start(figures(1536, 1.05, 1.0), {}, "skinflint")), [True] * 5)
        self.assertEqual(self.held(judge.judge_start(figures(1537, 1.06, 1.01, 0.0, 0.011), {}, "skinflint")), [False] * 5)
        self.assertTrue(judge.judge_start(figures(1536, 1.06, 1.0, 0.02), {}, "skinflint")[1]["held"])
        self.assertEqual(self.held(judge.judge_start({}, {}, "skinflint")), [False] * 5)
        floor = dict(figures(1536, 1.06, 1.0), **{start.EMPTY: {"true_cpu": 1.07}})
        true = judge.judge_start(floor, {}, "skinflint")[1]
        self.assertFalse(true["held"])
        self.assertIn("holds nothing: 1.070", str(true))
        self.assertIn(start.EMPTY, start.table(floor, ["skinflint", "glibc"]))

    def test_no_bad_case(self):
        patterns = {"pair5m": row(skinflint=99.0), "realloc16": row(skinflint=41.0)}
        self.assertEqual(self.held(judge.judge_start({}, patterns, "skinflint"))[5:], [True, False])

    def test_noise_of_pairs(self):
        samples = {"glibc": [1.0] * 9, "other": [1.1] * 9}
        self.assertEqual(start.compare(samples, "other")[2], 0.0)
        self.assertAlmostEqual(start.compare(samples, "other")[1], 1.1)

    def test_changed_output_is_no_figure(self):
        failed = {}
        cost = real.Cost(1.0, 1000, 10, "0 aaaa")
        speed.compare_outcomes("p", {"glibc": [cost], "x": [real.Cost(1.0, 1000, 10, "0 bbbb")], "y": [cost]}, failed)
        self.assertEqual(set(failed), {("p", "x")})

    def test_tables_hold_what_is_missing(self):
        rows = {"a": row(skinflint=1.0, glibc=2.0), "b": row(glibc=2.0)}
        text = judge.table("t", rows, self.names, "cpu", "skinflint")
        self.assertIn("0.50", text)
        self.assertEqual(len(text.splitlines()), 5)


class ToldToGiveBack(unittest.TestCase):
    """peers.E5"""

    def test_they_are_makers_of_their_own(self):
        self.assertIn("jemalloc+", peers.TUNED)
        for name in peers.TUNED:
            self.assertIn(name, peers.MAKERS)
            self.assertNotIn(name, peers.DEFAULT)
            self.assertIn(name.rstrip("+"), peers.DEFAULT)

    def test_memory_at_rest_has_them(self):
        asked = []

        def gather(names, _work):
            asked.append(list(names))
            return [peers.Allocator(name, "1", "", "here") for name in names], {}

        for part in ("idle", "threads", "patterns"):
            with mock.patch.object(peers, "gather", gather), mock.patch.object(run, "measured", return_value=({}, {})), \
                 mock.patch.object(run, "save"), contextlib.redirect_stdout(io.StringIO()):
                run.main(["--only", part, "--allocators", "skinflint,jemalloc"])
            told = [] if part == "patterns" else ["jemalloc+", "jemalloc++"]
            self.assertEqual(asked[-2:], [["skinflint", "jemalloc"], told], part)

    def test_programs_begin(self):
        for name in ("falling.py", "mesh.py", "bugs.py", "locked.py", "page_map.py"):
            done = subprocess.run([sys.executable, os.path.join(HERE, name), "--help"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)


class Words(unittest.TestCase):
    """run.py: a word that means nothing ends with 2 and the list."""

    def refused(self, *words):
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run.py"), *words], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 2)
        return done.stderr

    def test_unknown_words(self):
        self.assertIn("snmalloc", self.refused("--allocators", "nosuch"))
        self.assertIn("larson", self.refused("--allocators", "glibc", "--only", "nosuch"))
        self.refused("--rounds", "0")

    def test_the_subject_may_be_absent(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.json")
            done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run.py"), "--allocators", "glibc", "--only",
                                   "pair5m", "--rounds", "1", "--json", out, "--work", folder],
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("skinflint is absent", done.stdout)
            with open(out) as file:
                self.assertEqual(json.load(file)["result"]["patterns"]["pair5m"]["glibc"]["rounds"], 1)

    def test_a_missed_bar_is_exit_1(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run.py"), "--allocators", "glibc", "--only", "freeonly",
                                   "--subject", "glibc", "--rounds", "1", "--work", folder], capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("MISSED", done.stdout)



class Meshing(unittest.TestCase):
    @staticmethod
    def row(name="256", meshed=60, offered=99, read=1.0, write=1.0):
        mib = {way: mesh.Found(bytes_ * mesh.MIB, 1, 0, 1) for way, bytes_ in
               (("plain", 100), ("offered", offered), ("meshed", meshed))}
        times = {} if name == "redis" else {"read": read, "write": write, "copy": 3.0}
        return {"name": name, "floor": 100 * mesh.MIB, **mib, **times}

    def test_each_bar_can_be_missed(self):
        row = self.row
        self.assertTrue(mesh.verdict([row(), row("redis", meshed=68)]))
        for missed in ([row(meshed=66)], [row(offered=97)], [row(read=1.04), row()], [row(write=1.31)],
                       [row(meshed=30), row("redis", meshed=96)]):
            self.assertFalse(mesh.verdict(missed))


if __name__ == "__main__":
    unittest.main()
