"""Each judgement of judge.py is seen to fail once, beside the same case when it holds.

Quick: nothing is run. real.py --selftest is the way in.
"""
import copy
import unittest

import judge

GOOD = judge.Run(0, b"at 12:30 all 7 done\n", b"", b"")
SMAPS = """\
55d0-55d8 r-xp 00000000 08:01 7 /usr/bin/app
Rss:                 400 kB
55d8-55d9 rw-p 00000000 08:01 7 /usr/bin/app
Rss:                 100 kB
55d9-55da rw-p 00000000 00:00 0
Rss:                  20 kB
7f00-7f80 rw-p 00000000 00:00 0
Rss:                 480 kB
7f80-7f90 rw-s 00000000 00:01 9 /memfd:skinflint-ring (deleted)
Rss:                  40 kB
7f90-7fa0 rw-s 00000000 00:01 9 /dev/zero (deleted)
Rss:                  60 kB
"""


def books(total, **rows):
    every = {"live": 0, "mapped-files": 0, "shared": 0, "unclassified": 0, **rows}
    every["live"] = total - sum(every.values()) + every["live"]
    return {"resident_bytes": total, "rows": [{"id": name, "bytes": size} for name, size in every.items()]}


def report(pid=10, exe="/usr/bin/app", resident=100 << 20, unclassified=0, **completeness):
    done = {"complete": True, "lost_events": 0, "unread_events": 0, "notes": [], **completeness}
    return {
        "program": {"pid": pid, "exe": exe, "name": exe.split("/")[-1], "max_rss_bytes": 100 << 20},
        "completeness": done,
        "instants": [{"label": "peak", "books": books(resident, unclassified=unclassified)}, {"label": "heap", "books": None}],
        "timeline": {"rss_bytes": [1 << 20, resident]},
    }


def watched(pid=10, exe="/usr/bin/app", high_water=100 << 20, passing=False):
    return judge.Watched(pid, exe, exe.split("/")[-1], high_water, passing)


class Judgements(unittest.TestCase):
    def test_same(self):
        rules = [[r"\d\d:\d\d", "TIME"]]
        later = judge.Run(0, b"at 12:31 all 7 done\n", b"", b"")
        self.assertTrue(judge.same(GOOD, later, rules).ok)
        self.assertFalse(judge.same(GOOD, later, []).ok)
        self.assertFalse(judge.same(GOOD, judge.Run(0, b"at 12:30 all 8 done\n", b"", b""), rules).ok)
        self.assertFalse(judge.same(GOOD, judge.Run(1, GOOD.out, b"", b""), rules).ok)
        self.assertFalse(judge.same(GOOD, judge.Run(0, GOOD.out, b"", b"left"), rules).ok)
        warned = judge.Run(0, GOOD.out, b"warned", b"")
        self.assertFalse(judge.same(GOOD, warned, rules).ok)
        self.assertTrue(judge.same(GOOD, warned, rules, ("out",)).ok)

    def test_whole(self):
        self.assertTrue(judge.whole([report()], [watched()]).ok)
        self.assertFalse(judge.whole([], [watched()]).ok, "nothing recorded")
        incomplete = report(complete=False, notes=["No end mark"])
        self.assertFalse(judge.whole([incomplete], [watched()]).ok, "called incomplete")
        self.assertTrue(judge.whole([incomplete], [watched()], "No end").ok, "as expected")
        self.assertFalse(judge.whole([report(lost_events=3)], [watched()]).ok, "called complete")
        static = watched(11, "/opt/static")
        self.assertFalse(judge.whole([report()], [watched(), static]).ok, "a child in silence")
        told = report(notes=["Not recorded (it is statically linked): 1 child (static)"])
        self.assertTrue(judge.whole([told], [watched(), static]).ok)
        became = watched(10, "/opt/other")
        self.assertFalse(judge.whole([report()], [watched(), became]).ok, "another program in the same process")
        self.assertTrue(judge.whole([report()], [watched(), watched(12, passing=True)]).ok, "between fork and exec")

    def test_high_water(self):
        self.assertTrue(judge.high_water([report(resident=98 << 20)], [watched()]).ok)
        low = report(resident=97 << 20)
        self.assertFalse(judge.high_water([low], [watched()]).ok)
        self.assertFalse(judge.high_water([report()], [watched(high_water=103 << 20)]).ok, "the report's own mark is low")
        low["completeness"]["notes"] = ["The kernel's high-water mark is 100 MiB; no look fell on it"]
        self.assertTrue(judge.high_water([low], [watched()]).ok)
        self.assertIsNone(judge.high_water([report()], []).ok)

    def test_unclassified(self):
        self.assertTrue(judge.unclassified([report(unclassified=2 << 20)]).ok)
        self.assertFalse(judge.unclassified([report(), report(unclassified=3 << 20)]).ok)

    def test_smaps(self):
        groups = judge.smaps_groups(SMAPS)
        kib = {name: size >> 10 for name, size in groups.items()}
        self.assertEqual(kib, {"files": 500, "bss": 20, "shared": 60, "all": 1100, "recorder": 40})
        good = books(1100 << 10, **{"mapped-files": 510 << 10, "shared": 60 << 10})
        self.assertTrue(judge.agrees(good, groups).ok)
        for name, size in (("mapped-files", 494), ("mapped-files", 526), ("shared", 66)):
            bad = books(1100 << 10, **{"mapped-files": 510 << 10, "shared": 60 << 10, name: size << 10})
            self.assertFalse(judge.agrees(bad, groups).ok, name)
        self.assertFalse(judge.agrees(books(1106 << 10, **{"mapped-files": 510 << 10, "shared": 60 << 10}), groups).ok)
        torn = copy.deepcopy(good)
        torn["rows"][0]["bytes"] += 6 << 10
        self.assertFalse(judge.agrees(torn, groups).ok, "rows that do not add up")
        self.assertIsNone(judge.agrees(None, groups).ok)


def run():
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Judgements)
    return 0 if unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful() else 1
