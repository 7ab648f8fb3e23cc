#!/usr/bin/env python3
"""Real programs, each run bare and recorded: is what Skinflint does and says of them so?

    programs.toml ─► install ─► bare run ─► recorded run ─► report --json ─► judge.py ─► a line each, bars
                                              │  watched: who lived, VmHWM of each
                                              └─ stopped once: smaps beside a mark of the same instant

python3 tests/real/real.py [--only TEXT,TEXT] [--keep] [--selftest] [--no-install]

R1  Both runs have the same folder, made anew, the same arguments and environment; servers listen on loopback only.
R2  A program that cannot be had is skipped by name, and the last lines count it.
R3  Only processes that this script has started are stopped or ended, by their ids.

Needs target/release/skinflint with its libraries (or SKINFLINT=PATH), and root for apt-get.
Exit status: 0 if every bar is met, 1 if one is missed, 2 if nothing could be run.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

import judge

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOOL = pathlib.Path(os.environ.get("SKINFLINT", ROOT / "target/release/skinflint"))
LIMIT_S = 300
# Between two looks at who lives.
LOOK_S = 0.02
BARS = (
    ("same output and exit status", "same", 0),
    ("complete is what is complete", "whole", 0),
    ("high-water mark known or said", "high", 2),
    ("unclassified at most 2 %", "unclassified", 0),
    ("rows within 0.5 % of smaps", "smaps", 0),
)


class Skipped(Exception):
    """A program that cannot be had."""


class Tree:
    """Who came out of a process, and how much each ever held; looked at until it is told to end."""

    def __init__(self, root):
        self.root = root
        self.seen = {}
        self.parents = {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ended.wait(LOOK_S):
            self.look()

    def look(self):
        parents = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    stat = pathlib.Path(f"/proc/{entry}/stat").read_text()
                except OSError:
                    continue
                fields = stat[stat.rindex(")") + 2:].split()
                if fields[0] not in "ZX":
                    parents[int(entry)] = int(fields[1])
        known = {pid for pid, _ in self.seen} | {self.root}
        grown = True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in known} - known
            known |= more
            grown = bool(more)
        for pid in known & parents.keys() - {self.root}:
            self.parents.setdefault(pid, parents[pid])
            self.note(pid)

    def note(self, pid):
        try:
            exe = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        mark = re.search(r"VmHWM:\s+(\d+)", status)
        name = re.search(r"Name:\s+(.*)", status)[1]
        if mark and "skinflint" not in exe:
            row = self.seen.setdefault((pid, exe), judge.Watched(pid, exe, name, 0))
            row.high_water, row.name = max(row.high_water, int(mark[1]) * 1024), name

    def largest(self):
        """The process that holds most now, if it is one of ours still."""
        living = [row for row in self.seen.values() if alive(row.pid)]
        return max(living, key=lambda row: row.high_water, default=None)

    def end(self):
        self.ended.set()
        self.thread.join()
        rows = list(self.seen.values())
        for row in rows:
            # Between fork and exec a child is its parent's program.
            others = [other for other in rows if other.pid == row.pid and other.exe != row.exe]
            row.passing = bool(others) and (self.parents.get(row.pid), row.exe) in self.seen
        return rows


def alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def environment(work):
    """The same for every run: the system's programs first, no settings of whoever runs this."""
    home = os.path.expanduser("~")
    path = f"/usr/bin:/bin:/usr/sbin:/sbin:{os.environ['PATH']}"
    kept = {"CARGO_HOME": f"{home}/.cargo", "RUSTUP_HOME": f"{home}/.rustup"}
    return {
        "PATH": path, "HOME": str(work), "LC_ALL": "C.UTF-8", "TZ": "UTC", "TMPDIR": str(work), "CARGO_NET_OFFLINE": "true",
        "RUSTUP_TOOLCHAIN": os.environ.get("RUSTUP_TOOLCHAIN", "stable"), "XDG_RUNTIME_DIR": str(work),
        **{name: os.environ.get(name, other) for name, other in kept.items()},
    }


def prepare(program, work, values):
    """A folder with nothing in it but the program's inputs."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name, text in program.get("files", {}).items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(fill(text, values))
    for command in program.get("prepare", []):
        shell(fill(command, values), work)
    if "user" in program:
        shell(f"chown -R {program['user']} {work}", work)


def shell(command, work):
    done = subprocess.run(["sh", "-ec", command], cwd=work, env=environment(work), capture_output=True, timeout=LIMIT_S,
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise Skipped(f"cannot prepare or show: {command}: {done.stderr.decode(errors='replace')[-400:]}")
    return done.stdout


def fill(text, values):
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def command_of(program, values):
    command = [fill(part, values) for part in shlex.split(program["run"])]
    if "user" in program:
        command = ["setpriv", f"--reuid={program['user']}", "--clear-groups", "--regid", group_of(program["user"]), *command]
    return command


def group_of(user):
    return subprocess.run(["id", "-g", user], capture_output=True, text=True, check=True).stdout.strip()


class Running:
    """A program on its way, bare or recorded."""

    def __init__(self, program, work, values, traces):
        self.program, self.work, self.values, self.traces = program, work, values, traces
        self.recorded = traces is not None
        command = command_of(program, values)
        if self.recorded:
            command = [str(TOOL), "record", "--quiet", "--dir", str(traces), "--", *command]
        self.out, self.err = (tempfile.TemporaryFile() for _ in range(2))
        self.begun = time.monotonic()
        self.process = subprocess.Popen(command, cwd=work, env=environment(work), stdin=subprocess.DEVNULL,
                                        stdout=self.out, stderr=self.err, start_new_session=True)
        self.tree = Tree(self.process.pid) if self.recorded else None
        self.loaded = b""
        self.instant = None

    def serve(self):
        """Has a server do its work, and asks it to end."""
        for _ in range(600):
            if self.process.poll() is not None:
                raise Skipped(f"the server ended before it served: {self.texts()[1][-400:]!r}")
            ready = subprocess.run(["sh", "-c", fill(self.program["ready"], self.values)], cwd=self.work, check=False,
                                   env=environment(self.work), capture_output=True, stdin=subprocess.DEVNULL)
            if ready.returncode == 0:
                break
            time.sleep(0.1)  # CLOCK: the step of a poll
        self.loaded = shell(fill(self.program["load"], self.values), self.work)
        if self.recorded:
            time.sleep(0.3)  # CLOCK: so that it idles; whatever it does then is judged all the same
            self.stop_and_look()
        os.kill(self.main(), getattr(signal, "SIG" + self.program["stop"]))

    def main(self):
        """The program itself: bare it is our child, recorded a child of skinflint's."""
        if not self.recorded:
            return self.process.pid
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0])

    def stop_and_look(self):
        """One instant in two readings: the largest process stands still for them (J5)."""
        largest = self.tree.largest()
        if largest is None:
            return
        pid = largest.pid
        try:
            os.kill(pid, signal.SIGSTOP)
        except OSError:
            return
        try:
            state = ""
            for _ in range(100):
                stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
                state = stat[stat.rindex(")") + 2]
                if state == "T":
                    break
                time.sleep(0.005)  # CLOCK: the step of a poll
            done = subprocess.run([str(TOOL), "ctl", str(pid), "mark", "judged"], capture_output=True, text=True, check=False)
            smaps = pathlib.Path(f"/proc/{pid}/smaps").read_text()
            if done.returncode == 0 and state == "T" and smaps:
                self.instant = (pid, judge.smaps_groups(smaps))
        except OSError:
            pass
        finally:
            os.kill(pid, signal.SIGCONT)

    def texts(self):
        for file in (self.out, self.err):
            file.seek(0)
        return self.out.read(), self.err.read()

    def finish(self):
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.end_all()
            raise Skipped(f"did not end within {LIMIT_S} s") from None
        seconds = time.monotonic() - self.begun
        status = self.process.returncode
        out, err = self.texts()
        shown = b"".join(shell(fill(command, self.values), self.work) for command in self.program.get("show", []))
        # A shell's way to say that a signal ended it: Skinflint passes it on so.
        status = 128 - status if status < 0 else status
        return judge.Run(status, out, err, self.loaded + shown), seconds

    def end_all(self):
        """What is left of it, by the ids that were seen."""
        rows = self.tree.end() if self.tree else []
        for pid in [row.pid for row in rows if alive(row.pid)] + [self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.process.wait()


def once(program, work, values, traces=None, expected_s=None):
    """One run, from a fresh folder to what it left."""
    prepare(program, work, values)
    helper = start_helper(program, work, values)
    running = None
    try:
        running = Running(program, work, values, traces)
        if "load" in program:
            running.serve()
        elif expected_s is not None:
            # Recorded it takes somewhat longer: the middle of the bare run is well before its end.
            wait_s = max(expected_s * 0.6, 0.05)
            try:
                running.process.wait(wait_s)
            except subprocess.TimeoutExpired:
                running.stop_and_look()
        done, seconds = running.finish()
        return done, seconds, running.tree.end() if running.tree else [], running.instant
    except BaseException:
        if running and running.process.poll() is None:
            running.end_all()
        raise
    finally:
        if helper:
            helper.terminate()
            helper.wait()


def start_helper(program, work, values):
    """A server that the program talks to, on loopback; not recorded."""
    if "helper" not in program:
        return None
    helper = subprocess.Popen(shlex.split(fill(program["helper"], values)), cwd=work, env=environment(work),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    for _ in range(200):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", values["port"])) == 0:
                return helper
        time.sleep(0.05)  # CLOCK: the step of a poll
    helper.terminate()
    raise Skipped("its helper did not listen")


def report_of(trace, at=None):
    # Names are not judged: without files to look into, none is looked up.
    nothing = trace.parent / "nothing"
    nothing.mkdir(exist_ok=True)
    command = [str(TOOL), "report", "--json", "--sysroot", str(nothing), *(["--at", at] if at else []), str(trace)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=LIMIT_S)
    return json.loads(done.stdout) if done.returncode == 0 else None


def judged_books(instant, traces):
    """The books of the process that was stopped, at that moment."""
    if not instant:
        return None
    for trace in sorted(traces.glob(f"*.{instant[0]}.sft")):
        report = report_of(trace, "judged")
        if report:
            return report["instants"][report["at"]]["books"]
    return None


def try_one(program, folder):
    """All judgements of one program."""
    work, traces = folder / "work", folder / "traces"
    shutil.rmtree(traces, ignore_errors=True)
    traces.mkdir(parents=True)
    values = {"dir": work, "port": free_port()}
    bare, bare_s, _, _ = once(program, work, values)
    recorded, seconds, watched, instant = once(program, work, values, traces, bare_s)
    reports = []
    for trace in sorted(traces.glob("*.sft")):
        report = report_of(trace)
        if report is None:
            raise Skipped(f"{trace.name} cannot be read")
        reports.append(report)
    streams = tuple(name for name in ("out", "err") if name not in program.get("not_compared", {}))
    verdicts = {
        "same": judge.same(bare, recorded, program.get("normalise", []), streams),
        "whole": judge.whole(reports, watched, program.get("incomplete")),
        "high": judge.high_water(reports, watched),
        "unclassified": judge.unclassified(reports),
        "smaps": judge.agrees(judged_books(instant, traces), instant and instant[1]),
    }
    return verdicts, bare_s, seconds, reports


def install(programs, may_install):
    """What each needs; the names of those that cannot be had."""
    missing = {}
    for program in programs:
        pairs = [need for need in program["needs"] if not has(need.split(":")[0])]
        if pairs and may_install:
            done = subprocess.run(["sh", str(ROOT / "bench/need.sh"), *pairs], check=False, capture_output=True, text=True)
            if done.returncode == 0:
                pairs = []
        if pairs:
            packages = " ".join(sorted({pair.split(":")[1] for pair in pairs}))
            missing[program["name"]] = f"not installed; as root: apt-get install {packages}"
    return missing


def has(what):
    return os.path.exists(what) if what.startswith("/") else shutil.which(what, path="/usr/bin:/bin:/usr/sbin:/sbin:" + os.environ["PATH"])


def versions(program):
    names = sorted({need.split(":")[1] for need in program["needs"]})
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}  ", *names], capture_output=True, text=True,
                          check=False)
    if "version" in program:
        line = subprocess.run(["sh", "-c", program["version"]], capture_output=True, text=True, check=False).stdout
        return line.strip()
    return done.stdout.strip()


def line_of(name, verdicts, bare_s, seconds):
    cells = [f"{verdicts[key].figure:>{width}}" for key, width in (("same", 7), ("whole", 22), ("high", 12), ("unclassified", 7),
                                                                    ("smaps", 6))]
    marks = "".join("-" if one.ok is None else "." if one.ok else "X" for one in verdicts.values())
    return f"{name:<12} {marks} {'  '.join(cells)}  {bare_s:5.1f} s {seconds:6.1f} s"


def bars(rows, skipped):
    """The last lines, and whether every bar is met."""
    met = True
    for title, key, allowed in BARS:
        verdicts = [row[key] for row in rows.values()]
        missed = [name for name, row in rows.items() if row[key].ok is False]
        had = sum(one.ok is not None for one in verdicts)
        is_met = had > 0 and len(missed) <= allowed
        met &= is_met
        print(f"{'met   ' if is_met else 'MISSED'} {title}: {had - len(missed)} of {had}"
              + (f" (not: {', '.join(missed)})" if missed else ""))
    print(f"{len(rows)} programs judged, {len(skipped)} skipped" + (f": {', '.join(skipped)}" if skipped else ""))
    return met


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="programs whose name holds one of these, separated by commas")
    parser.add_argument("--keep", action="store_true", help="keep folders and traces")
    parser.add_argument("--no-install", action="store_true", help="skip what is not installed")
    parser.add_argument("--selftest", action="store_true", help="show that each judgement can fail")
    options = parser.parse_args()
    if options.selftest:
        import selftest
        return selftest.run()
    programs = tomllib.loads((HERE / "programs.toml").read_text())["program"]
    if options.only:
        programs = [one for one in programs if any(part in one["name"] for part in options.only.split(","))]
    if not programs or not TOOL.exists():
        print(f"nothing to run: no such program, or {TOOL} is not built", file=sys.stderr)
        return 2
    skipped = install(programs, not options.no_install)
    base = ROOT / "target/real"
    rows = {}
    print("program      12345    same                complete    high-water  unclass.  smaps    bare  recorded")
    for program in programs:
        name = program["name"]
        if name in skipped:
            print(f"{name:<12} skipped: {skipped[name]}", flush=True)
            continue
        try:
            verdicts, bare_s, seconds, _ = try_one(program, base / name)
        except (Skipped, subprocess.TimeoutExpired) as why:
            skipped[name] = str(why)
            print(f"{name:<12} skipped: {why}", flush=True)
            continue
        rows[name] = verdicts
        print(line_of(name, verdicts, bare_s, seconds) + f"  {versions(program)}", flush=True)
        for key, verdict in verdicts.items():
            if verdict.ok is False:
                print(f"    {key}: {verdict.why}", flush=True)
        if not options.keep:
            shutil.rmtree(base / name, ignore_errors=True)
    return 0 if bars(rows, skipped) else 1


if __name__ == "__main__":
    sys.exit(main())
