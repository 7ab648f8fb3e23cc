"""`skinflint` as one static file of musl: it reads recordings on any Linux of x86-64, and records where glibc is.

    cargo build --release --target x86_64-unknown-linux-musl ─► one file, which names no loader and no library
    the build for glibc ─► recordings of predicted.c ─► both read them ─► the same bytes
    what it carries, built for glibc ─► it records, and puts the allocator under a program, as the other does
    a root folder with nothing but this file and a recording (chroot) ─► it reads there; what cannot be done it says in a line

        python3 tests/musl/run.py [--file PATH]

M1  Every check that is planned is made, or the run fails: nothing is left out.
M2  A refusal is one line on stderr that names the reason, and no line of a loader's; the program is not started.

Not here: libraries for programs of musl, which there are none of (docs/install.md has the reason).
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TARGET = "x86_64-unknown-linux-musl"
# Of a recording: both builds write the same.
READ = [
    ["report", "a.sft"],
    ["report", "--json", "a.sft"],
    ["report", "--full-stacks", "a.sft"],
    ["diff", "a.sft", "b.sft"],
    ["diff", "--json", "a.sft", "b.sft"],
    ["check", "--json", "--peak-live=1TiB", "a.sft"],
    ["check", "--peak-live=1KiB", "--allocations=1", "a.sft"],
    ["check", "--peak-live=+5%", "--baseline", "a.sft", "b.sft"],
    ["what-if", "a.sft"],
    ["export", "--format", "folded", "-o", "-", "a.sft"],
    ["export", "--format", "dhat", "-o", "-", "a.sft"],
    ["export", "--format", "heaptrack", "-o", "-", "a.sft"],
]


class Run:
    """What both programs said, and a line for each check."""

    def __init__(self, static, other, work):
        self.static, self.other, self.work, self.held = static, other, work, 0

    def said(self, program, *words, cwd=None, expected=(0,), **more):
        done = subprocess.run([program, *words], cwd=cwd or self.work, capture_output=True, text=True, errors="replace",
                              timeout=600, check=False, **more)
        assert done.returncode in expected, f"{' '.join([program, *words])}: status {done.returncode}\n{done.stderr}{done.stdout}"
        return done

    def holds(self, what):
        self.held += 1
        print(f"  {what}: held", flush=True)

    def one_file(self):
        head = subprocess.run(["readelf", "-lWd", self.static], capture_output=True, text=True, check=True).stdout
        assert "INTERP" not in head and "(NEEDED)" not in head, head
        self.holds(f"no loader and no library is named; {os.path.getsize(self.static):,} bytes")

    def reads_as_the_other(self):
        for words in READ:
            statuses = (0, 3) if words[0] == "check" else (0,)
            mine, theirs = (self.said(program, *words, expected=statuses) for program in (self.static, self.other))
            assert (mine.returncode, mine.stdout) == (theirs.returncode, theirs.stdout), f"{words}: {mine.stdout[:500]}"
            assert len(mine.stdout) > 100, words
        self.holds(f"{len(READ)} ways to read recordings, byte for byte as the build for glibc")
        pages = []
        for program in (self.static, self.other):
            self.said(program, "report", "a.sft", "--html", "page.html")
            with open(os.path.join(self.work, "page.html"), encoding="utf-8") as page:
                pages.append(page.read())
        assert pages[0] == pages[1] and len(pages[0]) > 100_000
        self.holds("the report as a page, too")

    def records(self):
        told = []
        for program in (self.static, self.other):
            self.said(program, "record", "-o", "c.sft", "--", "./predicted")
            told.append(json.loads(self.said(program, "check", "--json", "--peak-live=1TiB", "--allocations=1000000", "c.sft").stdout))
        first, second = ([(one["name"], one["figure"], one["verdict"]) for one in all_of["budgets"]] for all_of in told)
        assert first == second and len(first) == 2, (first, second)
        self.holds("it records a program of glibc: peak and allocations are those of the other")
        maps = self.said(self.static, "exec", "--", "grep", "-c", r"libskinflint\.so", "/proc/self/maps").stdout
        assert int(maps) > 0, maps
        self.holds("it puts a program of glibc on the allocator that it carries")
        mine, theirs = (self.said(program, "doctor", "--json", expected=(0, 1)).stdout for program in (self.static, self.other))
        mine, theirs = ([one for one in json.loads(text) if one["name"] != "libraries"] for text in (mine, theirs))
        assert mine == theirs, (mine, theirs)
        self.holds("doctor says of this machine what the other says")

    def shows_memory(self):
        with subprocess.Popen(["sleep", "600"]) as asleep:
            try:
                shown = self.said(self.static, "memory", str(asleep.pid)).stdout
            finally:
                asleep.kill()
        assert f"sleep (pid {asleep.pid})" in shown and "resident-by-kind" in shown, shown
        self.holds("memory of a running program")

    def refused(self, done, *words):
        assert all(word in done.stderr for word in words), done.stderr
        assert len(done.stderr.splitlines()) == 1 and not done.stdout, done.stderr + done.stdout

    def refuses_musl(self):
        for command in ("run", "record", "exec"):
            self.refused(self.said(self.static, command, "--", "./hello", expected=(1, 2)), "its C library is musl", "built for glibc")
        self.refused(self.said(self.static, "exec", "--", "./script", expected=(1, 2)), "its C library is musl")
        self.holds("programs of musl, and scripts for them, are refused before they are started")

    def alone(self):
        """A root with no library at all."""
        root = os.path.join(self.work, "root")
        for folder in ("proc", "tmp", "bin"):
            os.makedirs(os.path.join(root, folder), exist_ok=True)
        shutil.copy(self.static, os.path.join(root, "bin/skinflint"))
        for name in ("a.sft", "b.sft", "predicted", "hello"):
            shutil.copy(os.path.join(self.work, name), root)

        def inside(*words, expected=(0,)):
            script = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/skinflint "$@"'
            return self.said("unshare", "--mount", "--propagation", "private", "sh", "-c", script, root, *words, expected=expected)

        head = inside("report", "/a.sft").stdout.splitlines()
        assert head[:2] == self.said(self.other, "report", "a.sft").stdout.splitlines()[:2], head[:2]
        inside("diff", "/a.sft", "/b.sft")
        assert "BROKEN" in inside("check", "--peak-live=1KiB", "/a.sft", expected=(3,)).stdout
        own = inside("memory", str(os.getpid())).stdout
        assert f"(pid {os.getpid()})" in own, own
        self.holds("alone in a root: report, diff, check, memory")
        findings = {one["name"]: one for one in json.loads(inside("doctor", "--json", expected=(1,)).stdout)}
        assert findings["libc"]["allowed"] == "no" and "no glibc" in findings["libc"]["said"], findings["libc"]
        for command in ("run", "exec"):
            # Its loader is not there, so no shell could start it either.
            self.refused(inside(command, "--", "/predicted", expected=(127,)), "its loader", "is not there")
            self.refused(inside(command, "--", "/hello", expected=(1, 2)), "its C library is musl")
        # What plays recordings is a program of glibc, too.
        self.refused(inside("compare", "--runs", "1", "/a.sft", expected=(127,)), "skinflint-replay: its loader")
        self.holds("alone in a root: doctor, run, exec and compare say what is missing")


def programs(work):
    subprocess.run(["gcc", "-g", "-O1", "-fno-builtin", f"-I{ROOT}/include", "-o", "predicted",
                    os.path.join(ROOT, "tests/programs/predicted.c"), "-ldl"], cwd=work, check=True)
    with open(os.path.join(work, "hello.c"), "w", encoding="utf-8") as source:
        source.write('#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n')
    subprocess.run(["musl-gcc", "-o", "hello", "hello.c"], cwd=work, check=True)
    with open(os.path.join(work, "script"), "w", encoding="utf-8") as script:
        script.write(f"#!{work}/hello\n")
    os.chmod(os.path.join(work, "script"), 0o755)


def built():
    """The static file."""
    if TARGET not in subprocess.run(["rustup", "target", "list", "--installed"], capture_output=True, text=True, check=True).stdout:
        sys.exit(f"musl: no Rust for it: rustup target add {TARGET}")
    subprocess.run(["cargo", "build", "--release", "--locked", "--target", TARGET, "-p", "skinflint-cli", "--bin", "skinflint"],
                   cwd=ROOT, check=True)
    return os.path.join(ROOT, "target", TARGET, "release", "skinflint")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", help="a static file that is built already")
    arguments = parser.parse_args()
    for tool, package in (("musl-gcc", "musl-tools"), ("unshare", "util-linux"), ("readelf", "binutils")):
        if not shutil.which(tool):
            sys.exit(f"musl: {tool} is missing: apt-get install {package}")
    if os.geteuid():
        sys.exit("musl: a root folder of its own needs root")
    file = os.path.abspath(arguments.file) if arguments.file else built()
    with tempfile.TemporaryDirectory() as work:
        programs(work)
        # As it is handed out: nothing beside it.
        static = os.path.join(work, "skinflint")
        subprocess.run(["strip", "-o", static, file], check=True)
        run = Run(static, os.path.join(ROOT, "target/release/skinflint"), work)
        for trace in ("a.sft", "b.sft"):
            run.said(run.other, "record", "-o", trace, "--", "./predicted")
        for check in (run.one_file, run.reads_as_the_other, run.records, run.shows_memory, run.refuses_musl, run.alone):
            check()
    print(f"musl: {run.held} checks, everything held")


main()
