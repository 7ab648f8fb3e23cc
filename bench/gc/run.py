#!/usr/bin/env python3
"""The bars of the garbage-collected heap, each by a script of its own.

    --only NAME[,NAME] ──► the scripts that have these parts ──► exit 0 every bar held, 1 one missed, 2 not measured

R1  A part that cannot be measured is not held: it counts as missed, and its script says why.
R2  What is not ours here is passed on: each script's --help is the one description of its options.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Parts of each script, in the order in which they run.
SCRIPTS = [
    ("trees.py", ["trees"]),
    ("scheme.py", ["scheme"]),
    ("finalize.py", ["finalize"]),
    ("chunks.py", ["chunks"]),
    ("js.py", ["tabs", "pause", "splay", "seven", "seven150"]),
    ("policies/run.py", ["freelists"]),
    ("snapshot.py", ["snapshot"]),
]


def parts(word):
    known = [part for _, of in SCRIPTS for part in of]
    asked = word.split(",")
    wrong = [part for part in asked if part not in known]
    if wrong:
        sys.exit(f"--only {','.join(wrong)}: no such part; there are {', '.join(known)}")
    return asked


def split(words):
    """The parts asked for (None: all), and the other words."""
    rest, asked = [], None
    at = 0
    while at < len(words):
        if words[at] == "--only" and at + 1 < len(words):
            asked, at = parts(words[at + 1]), at + 1
        elif words[at].startswith("--only="):
            asked = parts(words[at][7:])
        else:
            rest.append(words[at])
        at += 1
    return asked, rest


def main():
    if "--help" in sys.argv[1:]:
        print(__doc__)
        for script, of in SCRIPTS:
            print(f"{script}: {', '.join(of)}\n  python3 bench/gc/{script} --help")
        return 0
    asked, rest = split(sys.argv[1:])
    worst = 0
    for script, of in SCRIPTS:
        path = os.path.join(HERE, script)
        mine = [part for part in of if asked is None or part in asked]
        if not mine:
            continue
        if not os.path.exists(path):
            if asked is not None:
                print(f"{script} is not in this tree", file=sys.stderr)
                worst = 2
            continue
        words = list(rest)
        if script in ("trees.py", "scheme.py"):
            # They have one part each and are short enough.
            words = [word for word in words if word != "--quick"]
        elif len(of) > 1:
            words += ["--only", ",".join(mine)]
        print(f"== bench/gc/{script} {' '.join(words)}", flush=True)
        worst = max(worst, subprocess.run([sys.executable, "-B", path, *words]).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
