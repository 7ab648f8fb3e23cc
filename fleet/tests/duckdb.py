"""The questions of a fleet on DuckDB: the same SQL, the same tables, the same answers.

    generate --events ─► lines ─► counted here ─┐
            └─► tables ─► skinflint-fleet ──────┼─► equal
                      └─► DuckDB, by --print-sql┘

usage: duckdb.py PATH/TO/skinflint-fleet
"""

import collections
import json
import math
import os
import subprocess
import sys
import tempfile

# This file has the name of the module.
sys.path = [path for path in sys.path if os.path.abspath(path or ".") != os.path.dirname(os.path.abspath(__file__))]
import duckdb  # noqa: E402

ALL = ["--rows", "1000000", "--day", "all"]


class Fleet:
    """The program on one folder of tables."""

    def __init__(self, program, root):
        self.program, self.root = program, root

    def run(self, *words):
        done = subprocess.run([self.program, "--root", self.root, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def duckdb(self):
        connection = duckdb.connect()
        connection.execute(self.run("duckdb"))
        return connection

    def both(self, *words):
        """Returns the program's answer, and DuckDB's rows of each statement of the question."""
        own = json.loads(self.run(*words, "--json"))
        connection = self.duckdb()
        statements = [line.removesuffix(";") for line in self.run(*words, "--print-sql").splitlines()]
        rows = []
        for statement in statements:
            result = connection.execute(statement)
            names = [column[0] for column in result.description]
            rows.append([dict(zip(names, row)) for row in result.fetchall()])
        return own, rows


def equal(own, theirs, columns, what):
    assert len(own) == len(theirs) and own, f"{what}: {len(own)} rows, DuckDB has {len(theirs)}"
    for mine, other in zip(own, theirs):
        for name, of_duckdb in columns.items():
            assert mine[name] == other[of_duckdb], f"{what}: {name}: {mine} {other}"


def period(own, rows, what):
    assert own["period"]["minutes"] * 60 == rows[0][0]["until"] - rows[0][0]["begin"], what
    for name, of_duckdb in [("resident_byte_min", "resident"), ("processes", "processes"), ("hosts", "hosts")]:
        assert own["period"][name] == rows[0][0][of_duckdb], (what, name)
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


def top(fleet):
    keys = {
        "stack": {"service": "service", "id": "id"},
        "function": {"id": "id"},
        "service": {"service": "service"},
        "build": {"service": "service", "name": "name"},
        "host": {"name": "name"},
    }
    for by, key in keys.items():
        own, rows = fleet.both("top", "--by", by, *ALL)
        period(own, rows, by)
        equal(own["rows"], rows[2], key | SUMS, f"top by {by}")
    own, rows = fleet.both("where", "build = '42' AND host <> 'm00001'", *ALL)
    equal(own["rows"], rows[2], keys["stack"] | SUMS, "where")


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
    """Counts the events' bytes in use by build, and compares with DuckDB's sum."""
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
    sql = "SELECT service, build, sum(live_byte_min) FROM profiles GROUP BY service, build"
    found = {(service, build): live for service, build, live in fleet.duckdb().execute(sql).fetchall()}
    assert found == dict(sums), (found, sums)


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        fleet, events = Fleet(program, f"{folder}/fleet"), f"{folder}/events"
        fleet.run(*"generate --machines 10 --processes 3 --services 2 --stacks 20 --hours 10 --events".split(), events)
        for age in ["minutes", "hours", "days"]:
            if age == "hours":
                fleet.run("retain", "--minutes-for", "0", "--today", "2026-01-02")
            elif age == "days":
                fleet.run("retain", "--hours-for", "0", "--today", "2026-01-03")
            counted(fleet, events)
            for question in [top, pinned, whatif, regressions]:
                question(fleet)
            files = sum(name.endswith(".parquet") for _, _, names in os.walk(fleet.root) for name in names)
            print(f"rows of {age}, {files} files: five questions, the same in DuckDB {duckdb.__version__}")


if __name__ == "__main__":
    main()
