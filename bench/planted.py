"""Planted holders in other languages than Python: do their bytes carry the user's function and line?

    node · ruby · php · go · java, planted as each program says itself ──► recorded ──► report: bytes at that function and line

L1  A program prints a line for each holder that it planted: function, line and bytes, worked out by hand, and ends itself with
    all of it alive. Bytes are those that were asked for, and of files those that were mapped.
L5  Too many bytes at a line are as wrong as too few. Where the runtime asks for more by the same line (the table of a hash), the
    program works that out, too, and prints it as a fourth word.
L2  Node names a function of a script by the line at which it begins (its own maps for perf); others name the statement's.
L3  Go samples; asked by the program it samples every block, so that its own error is nothing.
L4  Exit 0: every holder has its share, and no more. 1: one has not. 2: nothing could be tried. What is not installed is said.
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
#: What a line may have beyond what was planted there: buffers that wait for their collector, headers of typed arrays.
MOST = 1.05
SCRIPTS = ("[javascript]", "[python]", "[ruby]", "[php]", "[go]", "[java]")
LANGUAGES = {".js": ("node", {}), ".rb": ("ruby", {}), ".php": ("php", {"USE_ZEND_ALLOC": "0"}),
             ".go": ("go", {}), ".java": ("javac", {})}


def command_of(path, scratch):
    """The command that runs a program; one of Go or Java is built first."""
    tool = LANGUAGES[os.path.splitext(path)[1]][0]
    if tool == "javac":
        subprocess.run(["javac", "-nowarn", "-Xlint:-removal", "-XDignore.symbol.file", "-d", scratch, path], check=True, timeout=measure.LIMIT_S)
        return ["java", "-cp", scratch, os.path.splitext(os.path.basename(path))[0]]
    if tool != "go":
        return [tool, path]
    binary = os.path.join(scratch, "planted")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "", "GO111MODULE": "off"}
    subprocess.run(["go", "build", "-o", binary, path], check=True, env=environment, timeout=measure.LIMIT_S)
    return [binary]


def judged(bench, path):
    """What a program planted and how much its function and line have, for each holder; and all places, the largest first."""
    with tempfile.TemporaryDirectory(dir=bench.work, prefix="planted-") as scratch:
        trace = os.path.join(scratch, "planted.sft")
        environment = {**os.environ, "LC_ALL": "C", **LANGUAGES[os.path.splitext(path)[1]][1]}
        record = [bench.skinflint, "run", "--quiet", "--no-html", "--frames", "user", "-o", trace, "--"]
        done = subprocess.run(record + command_of(path, scratch), cwd=scratch, env=environment, capture_output=True, text=True,
                              timeout=measure.LIMIT_S)
        said = [line.split() for line in done.stdout.splitlines()]
        if not said or any(words[:1] != ["planted"] for words in said):
            raise measure.Failed(f"exit {done.returncode}, said {done.stdout[-200:]!r} {done.stderr[-400:]!r}")
        report = subprocess.run([bench.skinflint, "report", "--json", "--frames", "user", "--at", "end", trace],
                                capture_output=True, text=True, timeout=measure.LIMIT_S)
        if report.returncode != 0:
            raise measure.Failed(f"report: {report.stderr[-400:]}")
        found = by_place(json.loads(report.stdout))
        holders = []
        for _, function, line, wanted, *more in said:
            has = found.get((function, os.path.basename(path), int(line)), 0)
            holders.append((function, int(line), int(wanted), has, sum(map(int, more))))
        return holders, sorted(found.items(), key=lambda one: -one[1])


def verdict(wanted, has, more):
    """What is said of a holder: it is held, MISSED, or its line has TOO MUCH."""
    if has < BAR * wanted:
        return "MISSED"
    return "TOO MUCH" if has > MOST * (wanted + more) else "held"


def by_place(report):
    """Live bytes by the innermost frame of the user's: a function, a file's name, a line. A library's own scripts are none."""
    found = {}
    stacks = [(one["node"], one["live"]["bytes"]) for one in report.get("stacks", [])]
    stacks += [(one["node"], one["live_requested_bytes"]) for one in report.get("sites", [])]
    stacks += [(one["node"], one["mapped_bytes"]) for one in report.get("mappers", []) if one["file_bytes"]]
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
    bench = measure.prepared("planted", arguments)
    if not bench:
        return 2
    paths = [os.path.join(PROGRAMS, name) for name in arguments.programs] or sorted(glob.glob(os.path.join(PROGRAMS, "*.*")))
    verdicts, shares = [], []
    for path in paths:
        name, tool = os.path.basename(path), LANGUAGES[os.path.splitext(path)[1]][0]
        if not shutil.which(tool):
            print(f"absent    {name}: {tool} is not installed")
            verdicts += ["absent"] if os.environ.get("SKINFLINT_NO_SKIPS") else []
            continue
        try:
            holders, places = judged(bench, path)
        except (measure.Failed, subprocess.SubprocessError) as error:
            print(f"FAILED    {name}: {error}")
            verdicts.append("FAILED")
            continue
        said = [verdict(wanted, has, more) for _, _, wanted, has, more in holders]
        for how, (function, line, wanted, has, more) in zip(said, holders):
            beside = f" + {more / 1e6:.1f}" if more else ""
            print(f"{how:9} {name}: {has / 1e6:.2f} MB of {wanted / 1e6:.2f}{beside}, {100 * min(has, wanted) / wanted:.2f} %, at {function}, "
                  f"line {line}")
            shares.append(min(has, wanted) / wanted)
        if arguments.verbose or any(how != "held" for how in said):
            for place, size in places[:8]:
                print(f"          {size / 1e6:6.1f} MB  {place}")
        verdicts += said
        sys.stdout.flush()
    if not verdicts:
        return 2
    held = verdicts.count("held")
    print(f"{held} of {len(verdicts)} holders have {100 * BAR:.0f} % or more, and {100 * (MOST - 1):.0f} % too much at most; "
          f"the least {100 * min(shares, default=0):.2f} %")
    return 0 if held == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
