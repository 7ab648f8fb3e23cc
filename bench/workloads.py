"""The ten real programs: what is run, on what, and what must come out.

    Workload ──► inputs (inputs.py) ──► command in an empty scratch folder ──► digest of stdout + files

W1  A command runs alone in a fresh scratch folder with ENVIRONMENT and nothing else of the caller's.
W2  The digest covers stdout and every file that the program writes; the exit status is compared beside it.
    stderr is not: a recorder may speak there.
W3  redis-server is driven from outside and its CPU is its own; what redis-benchmark sends is random,
    so the digest is of what must not depend on that: the length of the list and 2,000 probe keys.
"""
import dataclasses
import hashlib
import os
import socket
import subprocess
import sys
import time

import inputs

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "programs")
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "HOME": "/nonexistent",
    "PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
    "PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0",
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
}
REDIS_REQUESTS = 150_000


@dataclasses.dataclass
class Workload:
    """One program. `{name}` in the command stands for the input of that name, `{port}` for a free port."""
    name: str
    package: str
    command: list
    stdin: str = ""
    files: tuple = ()
    drive: object = None

    def arguments(self, folder, port):
        """The command line, its inputs made."""
        def fill(word):
            if word == "{port}":
                return str(port)
            return inputs.ensure(folder, word[1:-1]) if word.startswith("{") else word
        return [fill(word) for word in self.command]

    def stdin_path(self, folder):
        return inputs.ensure(folder, self.stdin) if self.stdin else os.devnull


def compiler_proper():
    """The compiler itself: the driver g++ allocates next to nothing."""
    try:
        found = subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        return "cc1plus"
    return found.stdout.strip()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def redis_cli(port, *words, stdin=None):
    done = subprocess.run(["redis-cli", "-h", "127.0.0.1", "-p", str(port), *words], input=stdin,
                          capture_output=True, timeout=60)
    return done.stdout


def wait_for_redis(port, alive, limit_s=30):
    """Until it answers: bounded, and at once over when the process is gone."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if not alive():
            raise RuntimeError("redis-server ended before it answered")
        if redis_cli(port, "PING").strip() == b"PONG":
            return
        time.sleep(0.02)
    raise RuntimeError(f"redis-server does not answer on port {port} after {limit_s} s")


def drive_redis(port, folder, alive):
    """Loads the server with redis-benchmark, then asks what must be the same in every run, then ends it."""
    wait_for_redis(port, alive)
    load = ["redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-q", "-c", "20", "-P", "16", "-r", "50000",
            "-d", "64", "-n", str(REDIS_REQUESTS), "-t", "set,hset,lpush,lpop,sadd,zadd"]
    subprocess.run(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300, check=True)
    with open(inputs.ensure(folder, "probe.txt"), "rb") as probe:
        stored = redis_cli(port, stdin=probe.read())
    asked = redis_cli(port, stdin="".join(f"GET probe:{n}\n" for n in range(2000)).encode())
    length = redis_cli(port, "LLEN", "mylist")
    redis_cli(port, "SHUTDOWN", "NOSAVE")
    return stored + asked + length


WORKLOADS = [
    Workload("python", "python3", ["/usr/bin/python3", os.path.join(PROGRAMS, "work.py")]),
    Workload("sqlite", "sqlite3", ["/usr/bin/sqlite3", "work.db"], stdin="work.sql", files=("work.db",)),
    Workload("cc1plus", "g++", [compiler_proper(), "-quiet", "-fpreprocessed", "-std=c++17", "-O2", "{work.ii}",
                                "-dumpbase", "work.cc", "-o", "work.s"], files=("work.s",)),
    Workload("redis", "redis-server", ["/usr/bin/redis-server", "--bind", "127.0.0.1", "--port", "{port}", "--save", "",
                                       "--appendonly", "no", "--daemonize", "no"], drive=drive_redis),
    Workload("perl", "perl", ["/usr/bin/perl", os.path.join(PROGRAMS, "work.pl")]),
    Workload("ruby", "ruby", ["/usr/bin/ruby", os.path.join(PROGRAMS, "work.rb")]),
    Workload("node", "nodejs", ["/usr/bin/node", os.path.join(PROGRAMS, "work.js")]),
    Workload("jq", "jq", ["/usr/bin/jq", "[.[] | select(.weight > 250) | {id, name, t: (.tags | join(\"-\"))}]"
                          " | group_by(.name) | map({n: .[0].name, c: length, ids: map(.id) | add})", "{work.json}"]),
    Workload("xmllint", "libxml2-utils", ["/usr/bin/xmllint", "--xpath", "count(//item[price > 500]/note)", "{work.xml}"]),
    Workload("git", "git", ["/usr/bin/git", "--no-pager", "-C", "{history.git}", "log", "--stat", "-n", "1500"]),
]


def chosen(names):
    """The workloads of these names, or all; exits with the list if one is unknown or not installed."""
    known = {workload.name: workload for workload in WORKLOADS}
    for name in names:
        if name not in known:
            sys.exit(f"no such program: {name} (there are: {', '.join(known)})")
    picked = [known[name] for name in names] if names else WORKLOADS
    missing = [w.package for w in picked if not os.access(w.command[0], os.X_OK)]
    if missing:
        sys.exit("not installed; run: apt-get install -y " + " ".join(missing))
    return picked


def digest(workload, stdout_path, driven, scratch):
    """What the run produced, as one hash (W2, W3)."""
    hashed = hashlib.sha256()
    if workload.drive:
        hashed.update(driven)
    else:
        with open(stdout_path, "rb") as stdout:
            hashed.update(stdout.read())
    for name in workload.files:
        path = os.path.join(scratch, name)
        with open(path, "rb") as written:
            hashed.update(name.encode() + b"\0" + written.read())
    return hashed.hexdigest()[:16]
