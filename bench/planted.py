"""Planted holders in other languages than Python: do their bytes carry the user's function and line?

    node · ruby · php · go, planted as each program says itself ──► recorded ──► report: bytes at that function and line

L1  A program prints what it planted: function, line and bytes, worked out by hand, and ends itself with all of it alive.
    Bytes are those that were asked for; what is found beyond them counts for nothing.
L2  Node names a function of a script by the line at which it begins (its own maps for perf); others name the statement's.
L3  Go samples; asked by the program it samples every block, so that its own error is nothing.
L4  Exit 0: every program has its share. 1: one has not. 2: nothing could be tried. What is not installed is said.
"""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

import measure

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "planted")
BAR = 0.95
SCRIPTS = ("[javascript]", "[python]", "[ruby]", "[php]", "[go]")
LANGUAGES = {".js": ("node", {}), ".rb": ("ruby", {}), ".php": ("php", {"USE_ZEND_ALLOC": "0"}),
             ".go": ("go", {})}


def command_of(path, scratch):
    """The command that runs a program; one of Go is built first."""
    tool = LANGUAGES[os.path.splitext(path)[1]][0]
    if tool != "go":
        return [tool, path]
    binary = os.path.join(scratch, "planted")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "", "GO111MODULE": "off"}
    subprocess.run(["go", "build", "-o", binary, path], check=True, env=environment, timeout=measure.LIMIT_S)
    return [binary]


def judged(bench, path):
    """What a program planted, and how much of it has its function and line."""
    with tempfile.TemporaryDirectory(dir=bench.work, prefix="planted-") as scratch:
        trace = os.path.join(scratch, "planted.sft")
        environment = {**os.environ, "LC_ALL": "C", **LANGUAGES[os.path.splitext(path)[1]][1]}
        record = [bench.skinflint, "run", "--quiet", "--no-html", "--frames", "user", "-o", trace, "--"]
        done = subprocess.run(record + command_of(path, scratch), cwd=scratch, env=environment, capture_output=True, text=True,
                              timeout=measure.LIMIT_S)
        said = done.stdout.split()
        if said[:1] != ["planted"]:
            raise measure.Failed(f"exit {done.returncode}, said {done.stdout[-200:]!r} {done.stderr[-400:]!r}")
        report = subprocess.run([bench.skinflint, "report", "--json", "--frames", "user", "--at", "end", trace],
                                capture_output=True, text=True, timeout=measure.LIMIT_S)
        if report.returncode != 0:
            raise measure.Failed(f"report: {report.stderr[-400:]}")
        function, line, wanted = said[1], int(said[2]), int(said[3])
        found = by_place(json.loads(report.stdout))
        file = os.path.basename(path)
        return (function, line, wanted), found.get((function, file, line), 0), sorted(found.items(), key=lambda one: -one[1])


def by_place(report):
    """Live bytes by the innermost frame of the user's: a function, a file's name, a line. A library's own scripts are none."""
    found = {}
    stacks = [(one["node"], one["live"]["bytes"]) for one in report.get("stacks", [])]
    stacks += [(one["node"], one["live_requested_bytes"]) for one in report.get("sites", [])]
    for node, size in stacks:
        while node:
            frame = report["frames"][report["nodes"][node]["frame"]]
            file = os.path.basename(frame["file"] or "")
            if frame["module"] in SCRIPTS and os.path.exists(os.path.join(PROGRAMS, file)):
                place = (frame["function"], file, frame["line"])
                found[place] = found.get(place, 0) + size
                break
            node = report["nodes"][node]["parent"]
    return found


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_arguments(parser)
    parser.add_argument("--verbose", action="store_true", help="show where else bytes are")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="files of programs/planted (default: all)")
    return parser.parse_args(argv)


def main(argv=None):
    arguments = parse(argv)
    bench = measure.bench_of(arguments)
    os.makedirs(bench.work, exist_ok=True)
    try:
        bench.need_skinflint()
    except measure.Failed as error:
        print(f"planted: {error}", file=sys.stderr)
        return 2
    paths = [os.path.join(PROGRAMS, name) for name in arguments.programs] or sorted(glob.glob(os.path.join(PROGRAMS, "*.*")))
    shares = []
    for path in paths:
        name, tool = os.path.basename(path), LANGUAGES[os.path.splitext(path)[1]][0]
        if not shutil.which(tool):
            print(f"absent  {name}: {tool} is not installed")
            if os.environ.get("SKINFLINT_NO_SKIPS"):
                shares.append(0.0)
            continue
        try:
            (function, line, wanted), right, places = judged(bench, path)
        except (measure.Failed, subprocess.SubprocessError) as error:
            print(f"FAILED  {name}: {error}")
            shares.append(0.0)
            continue
        shares.append(min(right, wanted) / wanted)
        held = "held  " if shares[-1] >= BAR else "MISSED"
        print(f"{held}  {name}: {100 * shares[-1]:6.2f} % of {wanted / 1e6:.1f} MB at {function}, line {line}")
        if arguments.verbose or held == "MISSED":
            for place, size in places[:5]:
                print(f"          {size / 1e6:6.1f} MB  {place}")
        sys.stdout.flush()
    if not shares:
        return 2
    print(f"{sum(share >= BAR for share in shares)} of {len(shares)} programs have {100 * BAR:.0f} % or more; the least {100 * min(shares):.2f} %")
    return 0 if min(shares) >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
