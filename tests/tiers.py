#!/usr/bin/env python3
"""Runs the parts of a tier of tests side by side, and says how long each took.

    python3 tests/tiers.py test            what `make test` runs
    python3 tests/tiers.py long            what `make test-long` runs
    python3 tests/tiers.py test --list     the parts, without running them
    python3 tests/tiers.py test --only alloc --only cli/dropin     some of them, by the beginnings of their names

      tiers.toml ─► first (installs, builds: side by side) ─► parts (the most expensive first) ─► table of times
                                   │                            ▲
                                   └─ cargo's messages: each test executable of the workspace is a part

T1  Every test executable that the build makes is a part of its tier: nothing has to be listed to be run.
T2  A part's output is printed whole when the part ends, never mixed with that of another.
T3  A part that fails does not end the others; the status is 1, and the closing lines name what failed.
T4  Each part has a bound, which is far from what it needs: it ends a hang, and judges nothing.
T5  A part that says `alone` runs while no other part does.
T6  What ran no test, and is not said to have none, has failed.
T7  What tests load or start is built before they run, which they are told (SKINFLINT_BUILT). Tests that are skipped
    are counted in the closing lines, with what they need; with SKINFLINT_NO_SKIPS=1 they fail.

Not here: what the parts check.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
CARGO = os.environ.get("CARGO", "cargo")
# A part that is not done by then hangs (T4).
BOUND_S = 2400
# `test result: ok. 5 passed; 1 failed; …`, of cargo's runner; `Ran 5 tests in …`, of Python's.
CLOSING = re.compile(r"^(?:test result: \w+\. (\d+) passed; (\d+) failed|Ran (\d+) tests? in )", re.M)
SPENT = re.compile(r"(?<= in )\d+\.\d+s")


class Part:
    """One command, what it printed and what it took."""

    def __init__(self, name, command, *, folder=ROOT, environment=None, weight=1, alone=False, counted=True, bound=BOUND_S):
        self.name, self.command, self.folder = name, command, folder
        self.environment = environment or {}
        self.weight, self.alone, self.counted, self.bound = weight, alone, counted, bound
        self.output, self.status = "", None
        self.wall_s = self.cpu_s = 0.0
        self.process = None

    def run(self):
        """Runs the command to its end, or to the part's bound."""
        began = time.monotonic()
        environment = {**os.environ, **self.environment}
        command = self.command if isinstance(self.command, list) else ["sh", "-euc", self.command]
        # A session of its own, so that a part that hangs ends with all that it started.
        self.process = subprocess.Popen(command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                                        errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        start_new_session=True)
        timer = threading.Timer(self.bound, self.kill, args=(f"tiers: not done after {self.bound} s: ended",))
        timer.start()
        lines = []
        with self.process.stdout as printed:
            lines.extend(printed)
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        self.wall_s, self.cpu_s = time.monotonic() - began, used.ru_utime + used.ru_stime
        self.output = "".join(lines) + self.output
        self.status = self.process.returncode

    def kill(self, why):
        """Ends the part with everything in its session."""
        self.output += why + "\n"
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def counts(self):
        """Passed and failed tests, as far as a runner's closing lines say it."""
        passed = failed = 0
        for good, bad, ran in CLOSING.findall(self.output):
            passed += int(good or ran or 0)
            failed += int(bad or 0)
        return passed, failed

    def fault(self):
        """What is wrong, or nothing."""
        if self.status != 0:
            return f"status {self.status}"
        passed, failed = self.counts()
        if failed:
            return f"{failed} failed"
        if self.counted and passed == 0:
            return "ran no test (T6)"
        return None


class Runner:
    """Some parts at a time, the heaviest first (T2, T3, T5)."""

    def __init__(self, jobs):
        self.jobs, self.done, self.lock = jobs, [], threading.Lock()
        self.running, self.over = [], False

    def run(self, parts):
        together = sorted((part for part in parts if not part.alone), key=lambda part: -part.weight)
        self.run_together(together, self.jobs)
        for part in parts:
            if part.alone:
                self.run_together([part], 1)

    def run_together(self, parts, jobs):
        waiting = list(parts)

        def work():
            while True:
                with self.lock:
                    if self.over or not waiting:
                        return
                    part = waiting.pop(0)
                    self.running.append(part)
                try:
                    part.run()
                except OSError as error:
                    part.output, part.status = f"tiers: {error}\n", 127
                with self.lock:
                    self.running.remove(part)
                    self.tell(part)

        threads = [threading.Thread(target=work) for _ in range(min(jobs, len(waiting)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def tell(self, part):
        """Prints what a part printed, whole (T2)."""
        self.done.append(part)
        fault = part.fault()
        print(f"\n=== {part.name}: {fault or 'passed'} ({part.wall_s:.1f} s, processor {part.cpu_s:.1f} s)", flush=True)
        text = part.output
        if fault is None:
            # What passed is told by its closing lines; what failed, whole.
            text = "".join(f"{line}\n" for line in text.splitlines()
                           if re.match(r"(test result:|Ran \d+ tests?|OK|\d+ of \d+ |\d+ (passed|checks)|skipped:)", line))
        sys.stdout.write(text)
        sys.stdout.flush()

    def end(self):
        """Ends what still runs: when the runner itself is ended."""
        with self.lock:
            self.over = True
            for part in self.running:
                if part.process is not None:
                    part.kill("tiers: ended from outside")


def table(path):
    """The parts and their order, as `tiers.toml` has them."""
    with open(path, "rb") as file:
        return tomllib.load(file)


def of_commands(rows, jobs):
    """Parts that the table spells out."""
    parts = []
    for row in rows:
        command = row["run"].replace("$CARGO", CARGO).replace("$TARGET", TARGET)
        parts.append(Part(row["name"], command, environment={**row.get("env", {}), "MAKEFLAGS": ""}, weight=row.get("weight", 1),
                          alone=row.get("alone", False), counted=row.get("counted", True), bound=row.get("bound", BOUND_S)))
    return parts


def executables(messages):
    """Test executables in what `cargo test --no-run --message-format=json` printed: name, file, folder."""
    found = []
    for line in messages.splitlines():
        if not line.startswith("{"):
            continue
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message.get("executable"):
            continue
        if not message["profile"]["test"]:
            continue
        folder = os.path.dirname(message["manifest_path"])
        crate = os.path.basename(folder)
        target = message["target"]
        name = f"{crate}/{target['name']}" if "test" in target["kind"] else crate
        found.append((name, message["executable"], folder))
    return found


def package(folder):
    """The name of the package in a folder."""
    with open(os.path.join(folder, "Cargo.toml"), "rb") as file:
        return tomllib.load(file)["package"]["name"]


def of_executables(messages, settings):
    """A part for each test executable (T1), with what the table says of some."""
    parts = []
    for name, file, folder in executables(messages):
        row = settings.get(name, {})
        if row.get("tier"):
            continue
        # As cargo runs it: in the package's folder, with what tests may ask of it.
        environment = {"CARGO": CARGO, "CARGO_MANIFEST_DIR": folder, "CARGO_PKG_NAME": package(folder), "RUST_BACKTRACE": "1",
                       "SKINFLINT_BUILT": "1", **row.get("env", {})}
        parts.append(Part(name, [file, *row.get("arguments", [])], folder=folder, environment=environment,
                          weight=row.get("weight", 1), alone=row.get("alone", False),
                          counted=not row.get("no_tests", False)))
    known = {name for name, _, _ in executables(messages)}
    for name in settings:
        if name not in known:
            sys.exit(f"tiers.toml: [{'executables'}.{name}] is no test executable of this build; they are: {', '.join(sorted(known))}")
    return parts


def chosen(parts, beginnings):
    if not beginnings:
        return parts
    kept = [part for part in parts if any(part.name.startswith(beginning) for beginning in beginnings)]
    if not kept:
        sys.exit(f"no part's name begins with {' or '.join(beginnings)}; --list has the names")
    return kept


def closing(done, began, tier):
    """The table of times, the totals, what failed."""
    print(f"\n{'part':<44} {'tests':>6} {'wall s':>8} {'cpu s':>8}")
    for part in sorted(done, key=lambda part: -part.wall_s):
        print(f"{part.name:<44} {part.counts()[0]:>6} {part.wall_s:>8.1f} {part.cpu_s:>8.1f}"
              + (f"   {part.fault()}" if part.fault() else ""))
    passed = sum(part.counts()[0] for part in done)
    faulty = [part for part in done if part.fault()]
    failed = sum(max(part.counts()[1], 1) for part in faulty)
    cpu = sum(part.cpu_s for part in done)
    print(f"\n{tier}: {len(done)} parts in {(time.monotonic() - began) / 60:.1f} minutes, {cpu / 60:.1f} minutes of processor time")
    print(skipped(), end="")
    for part in faulty:
        print(f"FAILED {part.name}: {part.fault()}")
    print(f"{passed} passed, {failed} failed")
    return 1 if faulty else 0


def skipped():
    """What `cargo xtask skipped` says: one line for each test, and their number (T7)."""
    if not os.path.exists(os.environ.get("SKINFLINT_SKIPPED", os.path.join(TARGET, "skipped.txt"))):
        return "0 tests skipped\n"
    asked = subprocess.run([CARGO, "xtask", "skipped"], cwd=ROOT, capture_output=True, text=True, timeout=BOUND_S)
    return asked.stdout + asked.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tier", choices=["test", "long"])
    parser.add_argument("--table", default=os.path.join(HERE, "tiers.toml"), metavar="FILE")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="parts whose names begin so")
    parser.add_argument("--jobs", type=int, default=max(2, (os.cpu_count() or 2) + 1), metavar="N", help="parts at a time")
    parser.add_argument("--list", action="store_true", help="say the parts, run none (the build runs)")
    options = parser.parse_args()

    began = time.monotonic()
    rows = table(options.table)[options.tier]
    runner = Runner(options.jobs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        status = run(rows, options, runner, began)
    except (KeyboardInterrupt, SystemExit):
        runner.end()
        raise
    sys.exit(status)


def run(rows, options, runner, began):
    forget = os.environ.get("SKINFLINT_SKIPPED", os.path.join(TARGET, "skipped.txt"))
    if os.path.exists(forget):
        os.remove(forget)
    first = of_commands(rows.get("first", []), options.jobs)
    for part in first:
        part.counted = False
    runner.run(first)
    if any(part.fault() for part in runner.done):
        return closing(runner.done, began, options.tier)
    parts = of_commands(rows.get("part", []), options.jobs)
    if "executables" in rows:
        messages = next(part.output for part in runner.done if part.name == rows["messages"])
        parts += of_executables(messages, rows["executables"])
    parts = chosen(parts, options.only)
    if options.list:
        print("\n".join(sorted(part.name for part in parts)))
        return 0
    runner.run(parts)
    return closing(runner.done, began, options.tier)


if __name__ == "__main__":
    main()
