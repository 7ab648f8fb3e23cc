"""Files of a real program, read in: a recording's report, its pprof file, a heap profile.

    python3 that keeps 60,000 blocks ─► record ─► report --json, .sft, export --format pprof ─┐
                                    └─► exec --profile ──────────────────────────────────────┴─► ingest ─► SQL: the same sums

usage: recorded.py PATH/TO/skinflint-fleet PATH/TO/skinflint
"""

import json
import os
import re
import subprocess
import sys
import tempfile

PROGRAM = [sys.executable, "-c", "kept = [bytes(1000 + i % 7) for i in range(60000)]"]


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


class Fleet:
    """The program on one folder of tables."""

    def __init__(self, program, root):
        self.words = [program, "--root", root]

    def ingest(self, path, skinflint, *words):
        # A recording's report is made by the `skinflint` of PATH, if none is beside the program.
        path_of = os.path.dirname(skinflint) + os.pathsep + os.environ["PATH"]
        run(*self.words, "ingest", "--build", "1", "--host", "m", *words, path, env=os.environ | {"PATH": path_of})

    def one(self, sql):
        rows = json.loads(run(*self.words, "sql", "--json", sql))
        assert len(rows) == 1, rows
        return rows[0]

    def sums(self, service):
        return self.one(
            "SELECT sum(live_bytes) AS live, sum(live_blocks) AS blocks, sum(alloc_bytes) AS alloc, "
            f"sum(alloc_blocks) AS allocs, count(*) AS stacks FROM profiles WHERE service = '{service}'"
        )


def recorded(fleet, skinflint, folder):
    trace, report, pprof = (os.path.join(folder, name) for name in ["a.sft", "a.json", "a.pb.gz"])
    run(skinflint, "record", "-o", trace, "--", *PROGRAM)
    with open(report, "w", encoding="utf-8") as file:
        file.write(run(skinflint, "report", "--json", trace))
    run(skinflint, "export", trace, "--format", "pprof", "-o", pprof)
    with open(report, encoding="utf-8") as file:
        known = json.load(file)
    sites = known["sites"]
    wanted = {
        "live": sum(site["live_requested_bytes"] for site in sites),
        "blocks": sum(site["live_blocks"] for site in sites),
        "alloc": sum(site["requested_bytes"] for site in sites),
        "allocs": sum(site["allocations"] for site in sites),
    }
    assert wanted["live"] > 60_000_000
    for service, path in [("report", report), ("trace", trace), ("pprof", pprof)]:
        # Twice: it counts once.
        for _ in range(2):
            fleet.ingest(path, skinflint, "--service", service)
        found = fleet.sums(service)
        stacks = found.pop("stacks")
        assert found == wanted, (service, found, wanted)
        print(f"{service}: {found['live']} bytes in use in {stacks} stacks, as the report has them")
    books = fleet.one("SELECT sum(bytes) AS bytes FROM books WHERE service = 'report'")["bytes"]
    assert books == known["instants"][known["at"]]["books"]["resident_bytes"], books
    findings = fleet.one("SELECT count(*) AS n FROM findings WHERE service = 'report'")["n"]
    assert findings >= len({(one["kind"], one["node"]) for one in known["findings"]}) > 0, findings
    names = {
        name: fleet.one(
            "SELECT count(*) AS n FROM stacks s LEFT JOIN frames f ON f.frame = s.leaf AND f.service = s.service "
            f"WHERE s.service = '{name}' AND f.function IS NULL"
        )["n"]
        for name in ["report", "pprof"]
    }
    assert set(names.values()) == {0}, f"stacks without a name: {names}"


def profiled(fleet, skinflint, folder):
    path = os.path.join(folder, "p.heap")
    run(skinflint, "exec", "--profile=16K", "--profile-file", path, "--", *PROGRAM)
    for which in [path, path + ".peak"]:
        service = os.path.basename(which)
        fleet.ingest(which, skinflint, "--service", service)
        with open(which, encoding="utf-8", errors="replace") as file:
            figures = re.match(r"heap profile: *(\d+): *(\d+) *\[ *(\d+): *(\d+)\]", file.readline()).groups()
        blocks, live, allocs, alloc = map(int, figures)
        found = fleet.sums(service)
        stacks = found.pop("stacks")
        assert found == {"live": live, "blocks": blocks, "alloc": alloc, "allocs": allocs}, (found, figures)
        print(f"{service}: {live} bytes in use in {stacks} stacks, as its first line says")


def main():
    program, skinflint = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(program, os.path.join(folder, "fleet"))
        recorded(fleet, skinflint, folder)
        profiled(fleet, skinflint, folder)


if __name__ == "__main__":
    main()
