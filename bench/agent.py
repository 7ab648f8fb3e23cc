"""What the agent costs with a hundred processes that keep a profile.

    python, 100 times, on libskinflint.so with a profile ◄── closed, round after round ── skinflint agent
                                                             its peak memory: the bar     its processor time: a figure

A1  A round asks every process for its profile and its figures; the table says how many of them were closed in it, and a round
    with fewer than all is a failure.
A2  Rounds follow each other at once; a closing each minute costs the time of a round, by 60 s. Only memory is judged: processor
    time depends on what else runs.
A3  The agent serves a profile of each process as well, and its metrics, before its peak is read.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
MOST_BYTES = 30_000_000
MOST_SHARE = 0.005
TICKS = os.sysconf("SC_CLK_TCK")
# Some hundred stacks and ten megabytes, held until its input ends.
PROGRAM = """
import json, sys
held = [json.loads(json.dumps({"n": n, "of": list(range(20))})) for n in range(5000)]
print("held", flush=True)
sys.stdin.read()
"""


def metrics(url):
    with urllib.request.urlopen(url + "metrics", timeout=120) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(skinflint_agent_\w+) (\S+)$", text, re.M)}


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_bytes(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) * 1024


def judge(bytes_, closed, wanted):
    """What misses its bar, in words; nothing if nothing does."""
    missed = []
    if bytes_ > MOST_BYTES:
        missed.append(f"peak of resident memory: {bytes_:,} bytes, more than {MOST_BYTES:,}")
    if closed < wanted:
        missed.append(f"{closed} books closed, and not {wanted}")
    return missed


def wait_for(url, name, least):
    until = time.monotonic() + 600
    while time.monotonic() < until:
        found = metrics(url)
        if found[name] >= least:
            return found
        time.sleep(0.2)
    sys.exit(f"{name} did not come to {least} in ten minutes")


def run(skinflint, count, rounds, folder):
    """Peak of memory, processor time and books closed in the measured rounds."""
    sockets = os.path.join(folder, "s")
    os.mkdir(sockets, 0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": sockets, "PYTHONMALLOC": "malloc"}
    command = [skinflint, "exec", "--profile=64K", "--profile-file", "/dev/null", "--", sys.executable, "-c", PROGRAM]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    programs = [subprocess.Popen(command, env=environment, **pipes) for _ in range(count)]
    agent = subprocess.Popen([skinflint, "agent", "--port", "0", "--interval", "1"], stdout=subprocess.PIPE, text=True)
    try:
        for program in programs:
            if program.stdout.readline() != b"held\n":
                sys.exit("a program did not begin")
        url = agent.stdout.readline().strip()
        first = wait_for(url, "skinflint_agent_rounds_total", metrics(url)["skinflint_agent_rounds_total"] + 2)
        before = cpu_s(agent.pid)
        wanted = first["skinflint_agent_rounds_total"] + rounds
        last = wait_for(url, "skinflint_agent_rounds_total", wanted)
        used = cpu_s(agent.pid) - before
        done = last["skinflint_agent_rounds_total"] - first["skinflint_agent_rounds_total"]
        closed = last["skinflint_agent_closings_total"] - first["skinflint_agent_closings_total"]
        for program in programs:
            try:
                urllib.request.urlopen(f"{url}debug/pprof/books?pid={program.pid}", timeout=120).read()
            except urllib.error.HTTPError as error:
                sys.exit(f"the books of {program.pid}: {error.code} {error.read().decode()}")
        return peak_bytes(agent.pid), used / done, closed / done
    finally:
        agent.kill()
        for program in programs:
            program.stdin.close()
        for program in programs:
            program.wait()


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--skinflint", default=os.path.join(ROOT, "target", "release", "skinflint"))
    words.add_argument("--processes", type=int, default=100)
    words.add_argument("--rounds", type=int, default=10)
    asked = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peak, each_s, closed = run(asked.skinflint, asked.processes, asked.rounds, folder)
    print(f"processes                     {asked.processes}")
    print(f"books closed in a round       {closed:.1f}")
    print(f"peak of resident memory       {peak / 1e6:.1f} MB (bar {MOST_BYTES / 1e6:.0f})")
    print(f"processor time of a round     {each_s * 1000:.0f} ms")
    print(f"of a core, a round a minute   {each_s / 60:.2%} (aim {MOST_SHARE:.1%})")
    missed = judge(peak, round(closed), asked.processes)
    for line in missed:
        print("MISSED", line)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
