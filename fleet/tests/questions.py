"""The questions of a fleet on another engine: the same SQL, the same tables, the same answers.

    generate --events ─► lines ─► counted here ─┐
            └─► tables ─► skinflint-fleet ──────┼─► equal
                      └─► the other engine, by --print-sql ┘

Not here: the engines (duckdb.py, clickhouse.py).
"""

import collections
import json
import math
import os
import subprocess
import tempfile

ALL = ["--rows", "1000000", "--day", "all"]


class Fleet:
    """The program on one folder of tables, and the other engine: `ask` takes its SQL."""

    def __init__(self, program, root):
        self.program, self.root, self.ask = program, root, None

    def run(self, *words):
        done = subprocess.run([self.program, "--root", self.root, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def both(self, *words):
        """Returns the program's answer, and the other engine's rows of each statement of the question."""
        own = json.loads(self.run(*words, "--json"))
        statements = [line.removesuffix(";") for line in self.run(*words, "--print-sql").splitlines()]
        return own, [self.ask(statement) for statement in statements]


def equal(own, theirs, columns, what):
    assert len(own) == len(theirs) and own, f"{what}: {len(own)} rows, the other has {len(theirs)}"
    for mine, other in zip(own, theirs):
        for name, theirs_name in columns.items():
            assert mine[name] == other[theirs_name], f"{what}: {name}: {mine} {other}"


def period(own, rows, what):
    assert own["period"]["minutes"] * 60 == rows[0][0]["until"] - rows[0][0]["begin"], what
    for name, theirs_name in [("resident_byte_min", "resident"), ("processes", "processes"), ("hosts", "hosts")]:
        assert own["period"][name] == rows[0][0][theirs_name], (what, name)
    assert own["period"]["live_byte_min"] == rows[1][0]["live"], what


SUMS = {
    "live_byte_min": "live",
    "live_var_min": "variance",
    "pinned_byte_min": "pinned",
    "slop_byte_min": "slop",
    "alloc_bytes": "alloc",
    "samples": "samples",
    "processes": "processes",
}


def top(fleet, kinds=("stack", "function", "service", "build", "host")):
    keys = {
        "stack": {"service": "service", "id": "id"},
        "function": {"id": "id"},
        "service": {"service": "service"},
        "build": {"service": "service", "name": "name"},
        "host": {"name": "name"},
    }
    for by in kinds:
        key = keys[by]
        own, rows = fleet.both("top", "--by", by, *ALL)
        period(own, rows, by)
        equal(own["rows"], rows[2], key | SUMS, f"top by {by}")
    # Of whole days, and of minutes: the one reads profile_days, the other profiles.
    for condition in ["build = '42' AND host <> 'm00001'", "build = '42' AND t >= 1767225600 AND live_bytes > 0"]:
        own, rows = fleet.both("where", condition, *ALL)
        equal(own["rows"], rows[2], keys["stack"] | SUMS, condition)


def pinned(fleet):
    own, rows = fleet.both("pinned", *ALL)
    period(own, rows, "pinned")
    columns = {
        "service": "service",
        "stack": "stack",
        "pinned_byte_min": "pinned",
        "live_byte_min": "live",
        "processes": "processes",
        "hosts": "hosts",
    }
    equal(own["rows"], rows[2], columns, "pinned")


def whatif(fleet):
    own, rows = fleet.both("whatif", *ALL)
    period(own, rows, "whatif")
    assert own["saved_byte_min"] == rows[2][0]["saved"] and own["kept_byte_min"] == rows[3][0]["kept"]
    columns = {
        "service": "service",
        "kind": "kind",
        "stack": "stack",
        "title": "title",
        "saved_byte_min": "saved",
        "now_byte_min": "now",
        "processes": "processes",
        "hosts": "hosts",
    }
    equal(own["rows"], rows[4], columns, "whatif")
    assert sum(row["saved_byte_min"] for row in own["rows"]) == own["saved_byte_min"]


def regressions(fleet):
    own, (counts, sums) = fleet.both("regressions", "--from", "41", "--to", "42", *ALL)
    count = {(row["service"], row["build"]): row["processes"] for row in counts}
    of = {(row["service"], row["stack"], row["build"]): row for row in sums}
    stacks = {key[:2] for key in of}
    assert own["comparisons"] == 2 * len(stacks) and own["rows"]
    for row in own["rows"]:
        figure = "live" if row["figure"] == "in use" else "pinned"
        for build, name in [("41", "from_bytes"), ("42", "to_bytes")]:
            found = of.get((row["service"], row["stack"], build))
            mean = found[figure] / count[row["service"], build] if found else 0.0
            assert math.isclose(mean, row[name], rel_tol=1e-9, abs_tol=1e-6), (row, mean)


def counted(fleet, events):
    """Counts the events' bytes in use by build, and compares with the other engine's sum."""
    sums = collections.Counter()
    service = build = None
    begin = end = 0
    live = {}

    def close():
        for count, weight, since in live.values():
            sums[service, build] += count * weight * (end - since) // 60

    with open(events, encoding="utf-8") as lines:
        for line in lines:
            kind, *words = line.split()
            if kind == "process":
                close()
                live.clear()
                service, _, _, build, begin, end = words
                begin, end = int(begin), int(end)
                continue
            stack, t, born, _, died, weight = map(int, words[:6])
            assert begin <= t < end
            count, _, since = live.get(stack, (0, weight, t))
            sums[service, build] += count * weight * (t - since) // 60
            live[stack] = (count + born - died, weight, t)
    close()
    for table in ["profiles", "profile_days"]:
        sql = f"SELECT service, build, sum(live_byte_min) AS live FROM {table} GROUP BY service, build"
        found = {(row["service"], row["build"]): row["live"] for row in fleet.ask(sql)}
        assert found == dict(sums), (table, found, sums)


def at_all_ages(program, connect, name, kinds):
    """Asks all questions on tables as they are written, packed, of hours, and of days."""
    with tempfile.TemporaryDirectory() as folder:
        fleet, events = Fleet(program, f"{folder}/fleet"), f"{folder}/events"
        fleet.run(*"generate --machines 10 --processes 3 --services 2 --stacks 20 --hours 10 --events".split(), events)
        for age in ["minutes", "hours", "days"]:
            if age == "hours":
                fleet.run("retain", "--minutes-for", "0", "--today", "2026-01-02")
            elif age == "days":
                fleet.run("retain", "--hours-for", "0", "--today", "2026-01-03")
            # The tables are others now: no view of before.
            fleet.ask = connect(fleet)
            counted(fleet, events)
            top(fleet, kinds)
            for question in [pinned, whatif, regressions]:
                question(fleet)
            files = sum(name.endswith(".parquet") for _, _, names in os.walk(fleet.root) for name in names)
            print(f"rows of {age}, {files} files: five questions, the same in {name}")
