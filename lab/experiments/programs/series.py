#!/usr/bin/env python3
"""A series of builds of the JavaScript host, each judged as one is in CI: from the seventh on a tab holds 5 % more.

    series.py FOLDER SKINFLINT HOST TAB.js ──► for each build: skinflint check --history, with the gate of the first plus 3 %
                                           ──► what the history names as steps, as JSON on stdout

A build is the host (QuickJS-ng on malloc) with tabs of 200 nodes; a planted one has 210. Three runs make a build, as a job
that is repeated; the median counts.
"""
import json
import os
import re
import statistics
import subprocess
import sys

BUILDS, PLANTED, TABS, RUNS = 10, 6, 12, 3
# Nodes in each of the ten turns in which a tab builds its tree (tab.js has 15), and where 5 % more are planted.
TURN, NODES, PLANTED_NODES = "i < 15;", 20, 21
GATE = 1.03


def main():
    folder, skinflint, host, tab = (os.path.abspath(word) for word in sys.argv[1:5])
    os.makedirs(folder, exist_ok=True)
    history = os.path.join(folder, "history.jsonl")
    if os.path.exists(history):
        os.unlink(history)
    with open(tab, encoding="utf-8") as text:
        program = text.read()
    if program.count(TURN) != 1:
        sys.exit(f"{tab}: {TURN} is not there exactly once")
    peaks, refused, limit = [], [], None
    for build in range(BUILDS):
        nodes = PLANTED_NODES if build >= PLANTED else NODES
        script = os.path.join(folder, "tab.js")
        with open(script, "w", encoding="utf-8") as out:
            out.write(program.replace(TURN, f"i < {nodes};"))
        broken = 0
        for _ in range(RUNS):
            gate = ["--peak-live", str(limit)] if limit else []
            words = [skinflint, "check", "--history", history, "--label", f"b{build}", *gate, "--json", "--",
                     host, script, "--engine", "quickjs", "--malloc", "system", "--tabs", str(TABS)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode not in (0, 3, 4):
                sys.exit(f"{' '.join(words)}: status {done.returncode}: {done.stderr[-400:]}")
            broken += done.returncode == 3
        with open(history, encoding="utf-8") as lines:
            own = [json.loads(line)["figures"]["peak-live"] for line in list(lines)[-RUNS:]]
        peaks.append(statistics.median((one["low"] + one["high"]) / 2 for one in own))
        refused.append(broken > RUNS / 2)
        limit = limit or int(peaks[0] * GATE)
    steps = subprocess.run([skinflint, "check", "--show-history", history], capture_output=True, text=True, check=False).stdout
    print(json.dumps({
        "peaks": peaks, "refused_before": sum(refused[:PLANTED]), "refused_after": sum(refused[PLANTED:]),
        "named": len(re.findall(rf"at b{PLANTED}\b", steps)), "named_elsewhere": len(re.findall(r"at b\d", steps)) - len(re.findall(rf"at b{PLANTED}\b", steps)),
        "grew": statistics.median(peaks[PLANTED:]) / statistics.median(peaks[:PLANTED]) - 1, "text": steps.splitlines()}))


if __name__ == "__main__":
    main()
