#!/usr/bin/env python3
"""The suite can fail, and says of what: cases made to.

    made-up programs ─► Suite ─► rows, faults, exit status

F1  A program that is not installed names its package; one that exits with 3 is a row with that status; the rest go on.
F2  Exit 1 for a fault, 2 if nothing could be recorded, 0 for none. The result holds what was measured either way.
"""
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import run as suite  # noqa: E402

GOOD = suite.Program("good", "coreutils", ["/usr/bin/sort", "/etc/services"])
ABSENT = suite.Program("absent", "no-such-package", ["/usr/bin/no-such-program"])
BAD = suite.Program("bad", "dash", ["/bin/sh", "-c", "exit 3"])


def result_of(programs, results, *words):
    """Exit status and result of a run over these programs."""
    suite.PROGRAMS = list(programs)
    before = set(os.listdir(results))
    names = ",".join(program.name for program in programs)
    status = suite.main(["--quick", "--only", names, "--runs", "1", "--allocators", "glibc", "--results", results,
                         "--no-programs", *words])
    written = sorted(name for name in set(os.listdir(results)) - before if name.endswith(".json"))
    for name in os.listdir(results):
        if name.endswith(".json"):
            with open(os.path.join(results, name)) as file:
                found = json.load(file)
            os.rename(os.path.join(results, name), os.path.join(results, f"{names}.old"))
    assert len(written) == 1, written
    return status, found


def main():
    with tempfile.TemporaryDirectory() as results:
        status, found = result_of([GOOD, ABSENT, BAD], results)
        good, absent, bad = found["programs"]
        assert status == 1, status
        assert "trace" in good and "fault" not in good, good
        assert absent["missing"] == "apt-get install -y no-such-package" and "trace" not in absent, absent
        assert "status 3" in bad["fault"] and "trace" not in bad, bad
        assert len(found["faults"]) == 2, found["faults"]
        simulated = found["what_if"]
        assert [one["trace"] for one in simulated] == ["good.sft"], simulated
        assert [one["policy"] for one in simulated[0]["policies"]][:2] == ["glibc", "skinflint"]
        replayed = found["replayed"]["programs"]
        assert [column["allocator"] for column in replayed[0]["columns"]] == ["glibc"], replayed
        for key in ("kernel", "commit", "cpu", "date", "input_seed", "draw_seed"):
            assert found["machine"][key] not in ("", None), key

        status, found = result_of([GOOD], results, "--no-traces")
        assert status == 0 and found["faults"] == [], (status, found["faults"])
        assert "replayed" not in found

        status, found = result_of([BAD, ABSENT], results)
        assert status == 2 and len(found["faults"]) == 2, (status, found)
    print("suite: the selftest passed")


if __name__ == "__main__":
    main()
