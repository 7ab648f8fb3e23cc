"""What the profile says that stacks keep resident beside their blocks, held against a recording of every event: six real interpreters.

    program ─► builds tables, drops most of them, waits for a line ─┬─ record, mark, report ───────► pinned bytes by stack: the truth
                                                                   └─ a profile, asked, several times ─► estimate ± half an interval

P1  A program does the same in each run, on libskinflint.so; it stands still while it is looked at. The truth is of a run without a
    profile, since samples lie in spans of their own: what sampling moves is a part of the error that is measured here.
P2  Stacks are told apart by their functions (by the symbols of their modules' files, without those of the C library, which may have
    other names in a debug file): what has the same is added up, on both sides.
P3  Of each program the ten stacks that pin most are judged, but for those that pin less than a hundredth of it all. A row whose interval is at most a tenth of the truth to either side has to be
    within a tenth of it, 93 of 100 times; the other rows cannot be, and are counted. Of all with ten samples the truth lies in the
    interval 93 of 100 times.
P4  Exit 0: the bars were held. 1: one was missed, or a program failed. 2: nothing could be measured.
"""
import argparse
import bisect
import collections
import contextlib
import dataclasses
import json
import math
import os
import socket
import subprocess
import sys
import tempfile

import measure
import workloads

RATE = 16 << 10
LARGEST = 10
SMALLEST = 0.01
WITHIN = 0.10
HELD_BAR = 0.93
FEWEST = 10

PROGRAMS = {
    "python": ["/usr/bin/python3", "-c", "import sys\n"
               "def rows(n): return [[i, float(i)] for i in range(n)]\n"
               "def names(n): return ['the name of %d' % i for i in range(n)]\n"
               "def maps(n): return [{i: i} for i in range(n)]\n"
               "def words(n): return [b'x' * (20 + i % 90) for i in range(n)]\n"
               "r, s, m, w = rows(350000), names(500000), maps(60000), words(500000)\n"
               "kept = [r[::3], s[::4], m[::2], w[::3], [one for i, one in enumerate(w) if i % 64 == 9]]\n"
               "del r, s, m, w\nprint('ready', flush=True)\nsys.stdin.readline()"],
    "perl": ["/usr/bin/perl", "-e", "$| = 1; for my $i (1 .. 260000) { $h{\"key $i\"} = [$i, \"value $i of so many\" x 2]; $s[$i] = { $i => 1 } if $i % 4 == 0 } "
             "for my $i (1 .. 260000) { delete $h{\"key $i\"} if $i % 3; $s[$i] = undef if $i % 12 } print \"ready\\n\"; <STDIN>;"],
    "ruby": ["/usr/bin/ruby", "--disable-gems", "-e", "$stdout.sync = true; a = Array.new(400000) { |i| \"value #{i} of so many of them all\" }; "
             "h = {}; 150000.times { |i| h[i] = [i, i, i, i, i, i] }; s = Array.new(200000) { |i| ('x' * (60 + i % 200)) }; "
             "a = a.each_slice(3).map(&:first); h.delete_if { |k, _| k % 3 > 0 }; s = s.each_slice(5).map(&:first); "
             "GC.start; puts 'ready'; $stdin.gets"],
    "lua": ["/usr/bin/lua5.4", "-e", "local t, s, u = {}, {}, {} for i = 1, 300000 do t[i] = { i, i + 0.5, i } end "
            "for i = 1, 300000 do s[i] = 'a string that is number ' .. i .. ' of many that are longer than forty' end for i = 1, 150000 do u[i] = { a = i, b = i } end "
            "for i = 1, 300000 do if i % 3 > 0 then t[i] = nil s[i] = nil end if i % 2 > 0 then u[i] = nil end end "
            "collectgarbage() io.write('ready\\n') io.flush() io.read()"],
    "php": ["/usr/bin/php", "-n", "-d", "memory_limit=-1", "-r", '$a = []; $b = []; for ($i = 0; $i < 300000; $i++) { $a[$i] = "value $i of so many"; '
            '$b[$i] = [$i, "x$i"]; } for ($i = 0; $i < 300000; $i++) { if ($i % 3) unset($a[$i]); if ($i % 4) unset($b[$i]); } '
            'echo "ready\\n"; fgets(STDIN);'],
    "gawk": ["/usr/bin/gawk", 'BEGIN { for (i = 0; i < 400000; i++) { a["k" i] = "value " i " of so many"; b[i] = "x" i "y" } for (i = 0; i < 400000; i++) '
             '{ if (i % 3) delete a["k" i]; if (i % 4) delete b[i] } print "ready"; fflush(); getline < "-" }'],
}
PACKAGES = "apt-get install python3 perl ruby lua5.4 php-cli gawk binutils"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What samples say of a stack: bytes, half its interval of 95 %, samples."""
    bytes: float
    half: float
    samples: int


class Names:
    """Functions of modules: (module, where the symbol begins), or the place itself where there is none (P2)."""

    def __init__(self):
        self.tables = {}

    def table(self, path):
        """(beginnings, [(beginning, end)], {name: beginning}, whether it lies at fixed addresses) of a file."""
        if not path:
            raise measure.Failed("a module of the report is no file of the program's")
        if path not in self.tables:
            spans, by_name = {}, {}
            for options in (["-D"], []):
                said = subprocess.run(["nm", *options, "--defined-only", "-S", path], capture_output=True, text=True, check=False).stdout
                for line in said.splitlines():
                    words = line.split()
                    if len(words) == 4 and words[2] in "tTwWiuV":
                        begin, size = int(words[0], 16), int(words[1], 16)
                        spans[begin] = max(spans.get(begin, 0), begin + size)
                        by_name[words[3].split("@")[0]] = begin
            with open(path, "rb") as file:
                is_fixed = file.read(18)[16] == 2
            begins = sorted(spans)
            self.tables[path] = (begins, spans, by_name, is_fixed)
        return self.tables[path]

    def of_place(self, path, offset):
        """The function around a place of a file."""
        begins, spans, _, _ = self.table(path)
        at = bisect.bisect_right(begins, offset) - 1
        if at >= 0 and offset < spans[begins[at]]:
            return os.path.basename(path), begins[at]
        return os.path.basename(path), offset

    def of_name(self, path, name):
        """The same function, by a name that a report gives it: `f`, or `module+0x12`."""
        _, plus, offset = name.rpartition("+0x")
        if plus:
            return self.of_place(path, int(offset, 16))
        return os.path.basename(path), self.table(path)[2].get(name, name)


def is_named(module):
    """Whether functions of a module count (P2)."""
    return module and not module.startswith(("libc.", "ld-"))


@contextlib.contextmanager
def standing(command, environment, folder, prefix=()):
    """Runs a program up to where it waits; yields its process, or that which started it."""
    process = subprocess.Popen([*prefix, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
                               env={**workloads.ENVIRONMENT, "USE_ZEND_ALLOC": "0", "SKINFLINT_PURGE": "off", **environment})
    try:
        if process.stdout.readline().strip() != b"ready":
            process.kill()
            raise measure.Failed(f"{command[0]}: {process.communicate()[1].decode(errors='replace')[-400:]}")
        yield process
        _, said = process.communicate(b"\n", timeout=measure.LIMIT_S)
        if process.returncode != 0:
            raise measure.Failed(f"{command[0]}: exit {process.returncode}: {said.decode(errors='replace')[-400:]}")
    finally:
        process.kill()
        process.wait()


def truth(bench, command, folder, names):
    """({stack: pinned bytes} of a full recording, pinned bytes of stacks beyond those that the report lists)."""
    library = os.path.join(os.path.dirname(bench.skinflint), "libskinflint.so")
    trace = os.path.join(folder, "x.sft")
    prefix = [bench.skinflint, "record", "--quiet", "--preload", library, "-o", trace, "--"]
    with standing(command, {}, folder, prefix) as process:
        subprocess.run([bench.skinflint, "ctl", str(process.pid), "mark", "here"], check=True, capture_output=True, timeout=measure.LIMIT_S)
        paths = modules(child_of(process.pid))
    said = subprocess.run([bench.skinflint, "report", "--json", "--frames", "native", "--at", "here", trace], capture_output=True, check=True, timeout=measure.LIMIT_S)
    return by_stack(json.loads(said.stdout), paths, names)


def child_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return int(file.read().split()[0])


def modules(pid):
    """{file name: path} of what a process has mapped."""
    with open(f"/proc/{pid}/maps") as file:
        paths = {line.split(maxsplit=5)[5].strip() for line in file if len(line.split(maxsplit=5)) == 6}
    return {os.path.basename(path): path for path in paths if path.startswith("/")}


def file_of(module, paths):
    """The file of a module, which a report calls by the name that it was opened by: libruby-3.1.so.3.1 is a link to …3.1.2."""
    return paths.get(module) or next((path for name, path in paths.items() if name.startswith(module + ".")), "")


def by_stack(report, paths, names):
    """See `truth`."""
    nodes, frames, found = report["nodes"], report["frames"], collections.Counter()
    instant = next(one for one in report["instants"] if one["label"].endswith("here"))
    for pin in instant["fragments"]["pins"]:
        stack, at = [], pin["node"]
        while at:
            frame = frames[nodes[at]["frame"]]
            if is_named(frame["module"]) and not frame["inlined"]:
                stack.append(names.of_name(file_of(frame["module"], paths), frame["function"]))
            at = nodes[at]["parent"]
        found[tuple(stack)] += pin["free_bytes"]
    return found, instant["fragments"]["others"]["free_bytes"]


def profile(bench, command, folder, names):
    """{stack: Estimate} of a run with a profile."""
    library = os.path.join(os.path.dirname(bench.skinflint), "libskinflint.so")
    kept = os.path.join(folder, "sockets")
    os.makedirs(kept, mode=0o700, exist_ok=True)
    environment = {"LD_PRELOAD": library, "SKINFLINT_PROFILE": "on", "SKINFLINT_PROFILE_RATE": str(RATE), "SKINFLINT_MEMORY": kept}
    with standing(command, environment, folder) as process:
        text = asked(os.path.join(kept, f"{process.pid}.heap"))
    return of_text(text, names)


def asked(path):
    """The profile that a process answers with."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(measure.LIMIT_S)
        stream.connect(path)
        stream.sendall(b"profile\n")
        pieces = []
        while piece := stream.recv(1 << 20):
            pieces.append(piece)
    return b"".join(pieces).decode()


def of_text(text, names):
    """{stack: Estimate} of a profile's text."""
    body, maps = text.split("\nMAPPED_LIBRARIES:\n")
    code, biases = [], {}
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if len(words) < 6 or not words[5].startswith("/"):
            continue
        path, (start, end) = words[5].strip(), (int(word, 16) for word in words[0].split("-"))
        biases.setdefault(path, start - int(words[2], 16))
        if "x" in words[1]:
            code.append((start, end, path))
    found, said = {}, None
    for line in body.splitlines():
        if line.startswith("# ") and " samples, variance " in line:
            words = line.replace(",", " ").split()
            said = int(words[1]), int(words[words.index("pinned") + 1]), int(words[words.index("+-") + 1])
        elif "] @ 0x" in line:
            stack = []
            for word in line.split("] @ ")[1].split():
                place = int(word, 16) - 1
                path = next((path for start, end, path in code if start <= place < end), None)
                if path and is_named(os.path.basename(path)):
                    stack.append(names.of_place(path, place - (0 if names.table(path)[3] else biases[path])))
            before = found.get(tuple(stack), Estimate(0, 0, 0))
            samples, bytes_, half = said
            found[tuple(stack)] = Estimate(before.bytes + bytes_, math.hypot(before.half, half), before.samples + samples)
    return found


@dataclasses.dataclass(frozen=True)
class Row:
    """One of the largest stacks in one run: pinned bytes, and what the profile said."""
    true: int
    said: Estimate

    @property
    def allows(self):
        return self.said.samples >= FEWEST and self.said.half <= WITHIN * self.true

    @property
    def is_within(self):
        return abs(self.said.bytes - self.true) <= WITHIN * self.true

    @property
    def is_inside(self):
        return abs(self.said.bytes - self.true) <= self.said.half


def rows_of(true, said):
    """The largest stacks that are judged, in their order (P3)."""
    least = SMALLEST * sum(true.values())
    return [Row(bytes_, said.get(stack, Estimate(0, 0, 0))) for stack, bytes_ in true.most_common(LARGEST) if bytes_ >= least]


def judge(rows):
    """[(held, sentence)]"""
    allowed = [row for row in rows if row.allows]
    many = [row for row in rows if row.said.samples >= FEWEST]
    within = sum(row.is_within for row in allowed) / max(1, len(allowed))
    inside = sum(row.is_inside for row in many) / max(1, len(many))
    return [
        (bool(allowed) and within >= HELD_BAR, f"{within:.1%} of {len(allowed)} rows whose interval allows it are within {WITHIN:.0%} (bar "
                                               f"{HELD_BAR:.0%}); of {len(rows) - len(allowed)} others the interval does not"),
        (bool(many) and inside >= HELD_BAR, f"{inside:.1%} of {len(many)} rows of {FEWEST} samples or more have the truth in their interval (bar "
                                            f"{HELD_BAR:.0%})"),
    ]


def shown(name, true, runs):
    """Prints the largest stacks of a program."""
    for number, (stack, bytes_) in enumerate(true.most_common(LARGEST), 1):
        said = [run.get(stack, Estimate(0, 0, 0)) for run in runs]
        each = "  ".join(f"{one.bytes / 1e3:8,.0f} ± {one.half / 1e3:<6,.0f}" for one in said[:4])
        mean = sum(one.bytes for one in said) / len(said) / max(1, bytes_)
        print(f"{name:7} {number:2} {bytes_ / 1e3:8,.0f} kB pinned   said {each}  mean {mean:5.2f}  {said[0].samples} samples", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_arguments(parser)
    parser.add_argument("--runs", type=int, default=4, help="runs with a profile of each program (default: 4)")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all six")
    arguments = parser.parse_args()
    bench = measure.bench_of(arguments)
    programs = measure.picked(parser, arguments.programs, PROGRAMS)
    if not measure.is_installed(["nm", *(command[0] for command in programs.values())], PACKAGES):
        return 2
    rows, names = [], Names()
    try:
        bench.need_skinflint()
        for name, command in programs.items():
            with tempfile.TemporaryDirectory(prefix="skinflint-pinned-") as folder:
                true, beyond = truth(bench, command, folder, names)
                runs = [profile(bench, command, folder, names) for _ in range(arguments.runs)]
            shown(name, true, runs)
            print(f"{name:7} all {sum(true.values()) / 1e3:8,.0f} kB, {beyond / 1e3:,.0f} kB of further stacks; said "
                  f"{'  '.join(f'{sum(one.bytes for one in run.values()) / 1e3:,.0f}' for run in runs)}", flush=True)
            rows += [row for run in runs for row in rows_of(true, run)]
    except (measure.Failed, subprocess.SubprocessError, OSError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    verdicts = judge(rows)
    for held, sentence in verdicts:
        print(f"{'held  ' if held else 'MISSED'} {sentence}")
    return 0 if all(held for held, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
