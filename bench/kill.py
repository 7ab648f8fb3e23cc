"""A hundred recordings cut by SIGKILL at seeded moments: each must be readable to the cut, and say what is lost.

    round ──► start ──► program's trace exists ──► seeded delay ──► SIGKILL the program | the collector | all
          ──► skinflint report --json ──► exit 0, and completeness is held to the truth

K1  The program `counted` keeps the number of its mallocs and frees in a shared file, where SIGKILL cannot
    reach it. Program killed: allocations + frees + lost events >= that number: what is missing is counted.
    In other rounds the program is perl at real work, to cut the recording of something less regular.
K2  Collector killed, alone or with the program: the trace has no end mark, so it is not complete and the
    notes say so; mallocs and frees never exceed what was done.
K3  A collector that dies does not take the program along: `counted` runs on to its end and exits 0.
K4  Moments come from --seed; a round is replayed by --only ROUND. Every wait is bounded.
K5  Nothing that was started outlives its round: we are the subreaper, orphans come to us.
"""
import argparse
import ctypes
import glob
import os
import random
import signal
import struct
import subprocess
import sys
import time

import measure
import workloads

TARGETS = ("program", "collector", "all")
COUNTED_EVENTS = 60_000_000
# What the loader and libc may allocate before `counted` begins to count, generously.
BEFORE_MAIN = 100
LONGEST_DELAY_S = 0.6
PATIENCE_S = 60
PR_SET_CHILD_SUBREAPER = 36


def become_subreaper():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def poll(what, done, limit_s=PATIENCE_S):
    """Until `done()` gives something; raises after the limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        result = done()
        if result:
            return result
        time.sleep(0.001)
    raise measure.Failed(f"{what}: not within {limit_s} s")


def children(pid):
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path) as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            pass
    return found


def runs_program(pid, executable):
    try:
        return os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(executable)
    except OSError:
        return False


def read_count(path):
    try:
        with open(path, "rb") as file:
            data = file.read(8)
    except OSError:
        return 0
    return struct.unpack("<Q", data)[0] if len(data) == 8 else 0


class Round:
    """One recording and its end."""

    def __init__(self, bench, scratch, number, seed):
        rng = random.Random(f"{seed}:{number}")
        self.bench, self.scratch, self.number = bench, scratch, number
        self.target = TARGETS[number % len(TARGETS)]
        self.counted = number // len(TARGETS) % 2 == 0
        self.delay_s = rng.random() * LONGEST_DELAY_S
        self.trace = os.path.join(scratch, "cut.sft")
        self.counter = os.path.join(scratch, "count")

    def command(self):
        if self.counted:
            return [self.bench.tool("counted"), self.counter, str(COUNTED_EVENTS)]
        return ["/usr/bin/perl", os.path.join(workloads.PROGRAMS, "work.pl"), "4", "60000"]

    def start(self):
        """Starts the recording; returns (collector's process, program's pid) once there is something to cut."""
        full = [self.bench.skinflint, "record", "-o", self.trace, "--", *self.command()]
        with open(os.path.join(self.scratch, "stdout"), "wb") as out, \
                open(os.path.join(self.scratch, "stderr"), "wb") as err:
            collector = subprocess.Popen(full, cwd=self.scratch, env=workloads.ENVIRONMENT, stdin=subprocess.DEVNULL,
                                         stdout=out, stderr=err, start_new_session=True)

        def begun():
            if collector.poll() is not None:
                raise measure.Failed(f"skinflint record ended with {collector.returncode} before the cut\n"
                                     + measure.tail(self.scratch))
            pids = [pid for pid in children(collector.pid) if runs_program(pid, self.command()[0])]
            return pids[0] if pids and os.path.exists(self.trace) else None
        try:
            return collector, poll("the program's start", begun)
        except measure.Failed:
            self.sweep(collector)
            raise

    def kill(self, collector, program):
        if self.target == "all":
            os.killpg(collector.pid, signal.SIGKILL)
        elif self.target == "collector":
            os.kill(collector.pid, signal.SIGKILL)
        if self.target != "collector":
            # Under "all" too: a recorder may give the program a group of its own.
            os.kill(program, signal.SIGKILL)

    def sweep(self, collector):
        """K5: ends what is left in the session that we started."""
        try:
            os.killpg(collector.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            collector.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            pass

    def wait_orphan(self, program):
        """The program's wait status, when its collector is gone and we are its parent (K3).

        None if the collector still reaped it: the orphan is ours from the collector's death on, so that who
        is not our child by now is gone."""
        def ended():
            try:
                pid, status = os.waitpid(program, os.WNOHANG)
            except ChildProcessError:
                return (None,)
            return (status,) if pid else None
        return poll("the program's end after its collector was killed", ended)[0]

    def run(self):
        """The round; returns (events read, faults)."""
        collector, program = self.start()
        faults = []
        try:
            # A moment of the program's life, not a guess that something is ready by then: any is right.
            time.sleep(self.delay_s)
            ended_before = collector.poll() is not None
            if not ended_before:
                self.kill(collector, program)
            collector.wait(timeout=PATIENCE_S)
            if self.target != "program" and not ended_before:
                status = self.wait_orphan(program)
                if self.target == "collector" and status not in (0, None):
                    faults.append(f"the program did not survive its collector: wait status {status:#x}")
        except subprocess.TimeoutExpired:
            faults.append(f"skinflint record still runs {PATIENCE_S} s after the kill")
        finally:
            self.sweep(collector)
        if ended_before:
            return 0, ["the program ended before the cut: raise COUNTED_EVENTS"]
        report = measure.report(self.bench, self.trace, PATIENCE_S)[0]
        return report["completeness"]["events"], faults + self.judge(report)

    def judge(self, report):
        """K1, K2."""
        complete, totals, faults = report["completeness"], report["totals"], []
        events, lost = complete["events"], complete["lost_events"]
        heap = totals["allocations"] + totals["frees"]
        done = read_count(self.counter) if self.counted else None
        if events == 0 and not complete["notes"]:
            faults.append("nothing was recorded and no note says why")
        if self.target == "program":
            if "signal 9" not in report["program"]["ended"]:
                faults.append(f"ended: {report['program']['ended']!r}, not by signal 9")
            if done is not None and heap + lost < done:
                faults.append(f"silent loss: {done} mallocs and frees done, {heap} read, {lost} said to be lost")
        else:
            if complete["complete"]:
                faults.append("called complete, though its collector was killed")
            if not complete["notes"]:
                faults.append("no note says that the trace is cut")
        if self.target != "program" and done is not None and heap > done + BEFORE_MAIN:
            faults.append(f"{heap} mallocs and frees read, only {done} done")
        return faults


def replay(bench, number, seed):
    with bench.scratch() as scratch:
        one = Round(bench, scratch, number, seed)
        try:
            events, faults = one.run()
        except (measure.Failed, OSError) as error:
            events, faults = 0, [str(error)]
        name = "counted" if one.counted else "perl"
        verdict = "; ".join(faults) if faults else "good"
        print(f"round {number:3} {name:8} killed {one.target:9} after {one.delay_s:.3f} s: {events:11,} events  {verdict}",
              flush=True)
        return not faults


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="examples:\n  python3 bench/kill.py\n  python3 bench/kill.py --only 37")
    measure.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=20110805)
    parser.add_argument("--only", type=int, metavar="ROUND", help="replay one round")
    arguments = parser.parse_args(argv)
    bench = measure.bench_of(arguments)
    try:
        bench.need_skinflint()
        become_subreaper()
    except (measure.Failed, OSError) as error:
        print(f"kill: {error}", file=sys.stderr)
        return 2
    numbers = range(arguments.rounds) if arguments.only is None else [arguments.only]
    good = [replay(bench, number, arguments.seed) for number in numbers]
    print(f"{sum(good)} of {len(good)} cut recordings were readable and said what is lost (seed {arguments.seed})")
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
