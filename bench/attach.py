"""Attaching at random moments: does the program ever notice?

    python · node · redis · a Rust server, each at work ──► TIMES × (attach, wait, let go) ──► what it says, its status

A1  Each program works all the time, and what it answers is checked: Python and Node compare their own rounds, the servers are
    asked by a client that knows what they must say. One wrong answer, a crash or another status is a failure.
A2  Moments are drawn by seed: how long after the last time, how long a recording is, and how it ends: by Ctrl-C at any moment,
    while it attaches too; by `skinflint detach`; or at once.
    A process can be attached to some sixty times in its life, and says so then: it has to end well, and another takes its place.
A3  The plain program runs first and has to pass; so does one that is broken on purpose fail (--selftest).
A4  Exit 0: nothing was noticed. 1: something was. 2: nothing could be tried.
"""
import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import measure

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "programs")
#: What the tool says when a process was attached to as often as can be.
MOST = "more often than the recorder can tell apart"
#: No wait is longer, in seconds.
PATIENCE_S = 180
ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "PYTHONHASHSEED": "0",
               "PYTHONDONTWRITEBYTECODE": "1", "HOME": os.environ.get("HOME", "/")}


class Client(threading.Thread):
    """Asks a server all the time, and keeps the first wrong answer."""

    def __init__(self, port, ask):
        super().__init__(daemon=True)
        self.port, self.ask = port, ask
        self.over = threading.Event()
        self.wrong, self.asked = "", 0

    def run(self):
        try:
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
            lines = connection.makefile("rb")
            number = 0
            while not self.over.is_set():
                number += 1
                for text, wanted in self.ask(number):
                    connection.sendall(text)
                    said = b"".join(lines.readline() for _ in range(wanted.count(b"\n")))
                    self.asked += 1
                    if said != wanted:
                        self.wrong = f"{text!r}: {said!r}, not {wanted!r}"
                        return
            connection.close()
        except OSError as error:
            self.wrong = f"the connection: {error}"


def ask_rust(number):
    key, value = f"key{number % 700}", "v" * (number * 37 % 3000 + 1)
    yield f"set {key} {value}\n".encode(), b"ok\n"
    yield f"get {key}\n".encode(), f"{key} {value}\n".encode()


def ask_redis(number):
    key, value = f"key{number % 700}", "v" * (number * 37 % 3000 + 1)
    yield f"SET {key} {value}\r\n".encode(), b"+OK\r\n"
    yield f"GET {key}\r\n".encode(), f"${len(value)}\r\n{value}\r\n".encode()
    yield f"RPUSH list{number} a b c\r\n".encode(), b":3\r\n"
    yield f"DEL list{number}\r\n".encode(), b":1\r\n"


class Subject:
    """A program at work."""

    def __init__(self, name, scratch):
        self.name, self.client = name, None
        if name == "redis":
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            command = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", scratch]
        elif name == "rust":
            binary = os.path.join(scratch, "attached")
            subprocess.run(["rustc", "--edition=2021", "-O", "-o", binary, os.path.join(PROGRAMS, "attached.rs")], check=True,
                           timeout=PATIENCE_S)
            command = [binary]
        else:
            program = {"python": [sys.executable, "attached.py"], "node": ["node", "attached.js"]}[name]
            command = [program[0], os.path.join(PROGRAMS, program[1])]
        self.process = subprocess.Popen(command, cwd=scratch, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        if name == "redis":
            until(lambda: answers(port), "redis listens")
            self.client = Client(port, ask_redis)
        else:
            ready = self.process.stdout.readline().split()
            if ready[:1] != ["ready"]:
                raise measure.Failed(f"{name}: {self.process.communicate(timeout=PATIENCE_S)}")
            if name == "rust":
                self.client = Client(int(ready[1]), ask_rust)
        if self.client:
            self.client.start()

    def trouble(self):
        """What is wrong with it so far."""
        if self.process.poll() is not None:
            return f"it ended: {self.process.returncode}: {self.process.communicate()}"
        return self.client.wrong if self.client else ""

    def end(self):
        """Ends it in its own way; returns what is wrong."""
        wrong = self.trouble()
        if self.client:
            until(lambda: self.client.asked > 10 or self.client.wrong or self.process.poll() is not None, "it was asked")
            self.client.over.set()
            self.client.join(PATIENCE_S)
            wrong = wrong or self.client.wrong
        if self.name == "redis" and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            said, error = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return f"it does not end: {self.process.communicate()}"
        wanted = {"python": "same\n", "node": "same\n", "rust": "over\n"}.get(self.name, said)
        if (self.process.returncode, said) != (0, wanted):
            wrong = wrong or f"status {self.process.returncode}, said {said[-300:]!r} {error[-300:]!r}"
        return wrong


def until(holds, what):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise measure.Failed(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.02)


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def once(bench, subject, rng, scratch):
    """Attaches once and lets go (A2). Returns what was done, and what the tool says against it."""
    trace = os.path.join(scratch, "attached.sft")
    pid = str(subject.process.pid)
    tool = subprocess.Popen([bench.skinflint, "attach", "--quiet", "-o", trace, pid], cwd=scratch, env=ENVIRONMENT,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    way = rng.choice(["at any moment", "after a while", "detach"])
    if way != "at any moment":
        until(lambda: tool.poll() is not None or attached(bench, pid), "attached")
    time.sleep(rng.uniform(0, 0.4))
    if way == "detach":
        subprocess.run([bench.skinflint, "detach", pid], env=ENVIRONMENT, capture_output=True, timeout=PATIENCE_S)
    elif tool.poll() is None:
        tool.send_signal(signal.SIGINT)
    try:
        _, said = tool.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        tool.kill()
        return way, "attach does not end"
    # Interrupted before it began, it says so and has no trace.
    fine = tool.returncode in (0, 130) or way == "at any moment"
    return way, "" if fine else f"attach ended with {tool.returncode}: {said[-300:]}"


def attached(bench, pid):
    done = subprocess.run([bench.skinflint, "ctl", pid, "status"], env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=PATIENCE_S)
    return done.returncode == 0 and "attaching" not in done.stdout


def tried(bench, name, times, seed, break_it):
    """All attaches of one program: how many were made, and what was noticed."""
    rng = random.Random(f"{seed} {name}")
    with tempfile.TemporaryDirectory(dir=bench.work, prefix="attach-") as scratch:
        subject = Subject(name, scratch)
        made = 0
        try:
            while made < times:
                time.sleep(rng.uniform(0, 0.1))
                way, wrong = once(bench, subject, rng, scratch)
                if MOST in wrong:
                    wrong = subject.end()
                    if not wrong:
                        subject = Subject(name, scratch)
                        continue
                made += 1
                wrong = wrong or subject.trouble()
                if wrong:
                    return made, f"number {made}, {way}: {wrong}"
                if break_it:
                    os.kill(subject.process.pid, signal.SIGSEGV)
            return made, subject.end()
        finally:
            if subject.process.poll() is None:
                subject.process.kill()
                subject.process.communicate()


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_arguments(parser)
    parser.add_argument("--times", type=int, default=100, help="attaches to each program (default 100)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--selftest", action="store_true", help="break each program once: that has to be noticed")
    parser.add_argument("programs", nargs="*", choices=[[], "python", "node", "redis", "rust"], metavar="PROGRAM",
                        help="python, node, redis, rust (default: all)")
    return parser.parse_args(argv)


def main(argv=None):
    arguments = parse(argv)
    bench = measure.prepared("attach", arguments)
    if not bench:
        return 2
    # A shell has its background jobs ignore Ctrl-C, and so would the tool.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    failed = False
    for name in arguments.programs or ["python", "node", "redis", "rust"]:
        # A3: nothing is wrong with it if it is left alone.
        plain = tried(bench, name, 0, arguments.seed, False)[1]
        made, wrong = tried(bench, name, arguments.times, arguments.seed, arguments.selftest)
        wrong = f"even if it is left alone: {plain}" if plain else wrong
        failed |= bool(wrong)
        print(f"{'NOTICED' if wrong else 'held   '} {name}: {made} attaches{': ' + wrong if wrong else ', the same output, no crash'}")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
