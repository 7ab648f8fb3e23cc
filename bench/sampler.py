"""What a sampled profile costs that is always on: real programs and allocation-heavy patterns, with it and without.

    program ─┬─ callgrind ─► instructions, on ÷ off: the bar            skinflint   jemalloc prof:true   gperftools
             └─ in turns ──► CPU time, on ÷ off; peak RSS, on − off         └────── in the same run ──────┘
    held.c   ──────────────► resident memory, on − off: of few large blocks and of many small ones

C1  A program runs with the same command, input and environment in each form; an output that differs is a failure. With `off` the
    allocator is preloaded, too.
C2  Instructions are those of the program's process, all its threads. Time on a shared machine differs by far more than a
    hundredth, so it is printed and not judged: the median of the quotients of pairs, whose order turns.
C3  All sample one block in 512 KiB. Peers are Debian's: jemalloc built with profiling, and gperftools' full library.
C4  The peak of resident memory is the kernel's, of one process; the difference is the median of those of pairs.
C5  valgrind knows no thread but the C library's: under it the socket that the agent asks is shut (SKINFLINT_MEMORY=off). Between two
    questions its thread sleeps.
C6  Exit 0: the bars were held. 1: one was missed, or a program failed. 2: nothing could be measured.

Not here: what a sampled recording costs, of any allocator (instructions.py --sample).
"""
import argparse
import dataclasses
import glob
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import inputs
import instructions
import measure
import workloads

sys.path.insert(0, os.path.join(workloads.HERE, "alloc"))
import speed  # noqa: E402

RATE = 524_288
# Instructions with the profile, of those without: over all rows in geometric mean.
MEAN_BAR = 1.01
# Peak of resident memory that the profile may add.
RSS_BAR_BYTES = 2_000_000
# Bytes that it may add to a block: none. RSS is in pages, of which some come and go: half a megabyte of so many blocks.
BLOCK_BAR_BYTES = 0.07
# Blocks of so many bytes: the same amount, and so as many samples, of which the difference is free.
HELD = ((1_000_000, 256), (8_000_000, 32))


def write_templates(path):
    """C++ that needs no header: some hundred templates, each instantiated with types of its own."""
    with open(path, "w") as out:
        out.write("template<int N> struct Sum { static constexpr long value = N + Sum<N - 1>::value; };\n"
                  "template<> struct Sum<0> { static constexpr long value = 0; };\n")
        for n in range(50):
            out.write(f"template<class A, class B> struct Pair{n} {{ A a; B b; template<class C> Pair{n}<B, C> with(C c) const {{ return {{b, c}}; }} }};\n"
                      f"long unit{n}(int x) {{ Pair{n}<int, long> p{{x, {n}}}; auto q = p.with(1.5).with('c'); auto f = [&](auto y) "
                      f"{{ return y + q.a + p.b; }}; return (long)f(x) + (long)f(2.5) + Sum<{100 + n}>::value; }}\n")


inputs.MAKERS.update({"sampler.xml": lambda path: inputs.write_xml(path, 2_000),
                      "sampler.json": lambda path: inputs.write_json(path, 1_200),
                      "sampler.ii": write_templates,
                      "sampler.git": lambda path: inputs.write_history(path, 120, 60)})
# Those of instructions.py, made shorter: each runs six times under callgrind.
SHORTER = {"range(60000)": "range(16000)", "range(20000)": "range(6000)", "1..40000": "1..25000", "where i < 20000": "where i < 8000",
           "range(4000)": "range(1000)"}


def shorter(command):
    """The command with the loops of SHORTER."""
    for long, short in SHORTER.items():
        command = [word.replace(long, short) for word in command]
    return command


PROGRAMS = {
    **{name: shorter(command) for name, command in instructions.PROGRAMS.items()},
    "pyjson": ["/usr/bin/python3", "-c", "import json, sys\nx = json.load(open(sys.argv[1]))\n"
               "for n in range(2): x = json.loads(json.dumps(x))\nprint(len(x), sum(len(one['tags']) for one in x))", "{sampler.json}"],
    "ruby": ["/usr/bin/ruby", "--disable-gems", "-e", 'a = {}; 25000.times { |i| (a["k#{i % 997}"] ||= []) << "value #{i} of '
             'so many" * 3; a.delete("k#{i % 31}") if i % 5 == 0 }; puts a.values.sum(&:size)'],
    "gawk": ["/usr/bin/gawk", 'BEGIN { for (i = 0; i < 30000; i++) { a["k" i % 9973] = a["k" i % 9973] "v" i; if (i % 5 == 0) '
             'delete a["k" i % 31] } for (k in a) n += length(a[k]); print n }'],
    "lua": ["/usr/bin/lua5.4", "-e", "local t = {} for i = 1, 60000 do t[i % 9973] = { i, tostring(i), { i, i } } end "
            "local n = 0 for _, v in pairs(t) do n = n + #v[2] end print(n)"],
    "php": ["/usr/bin/php", "-n", "-r", '$a = []; for ($i = 0; $i < 50000; $i++) { $a["k" . ($i % 9973)][] = ["v$i", $i]; '
            'if ($i % 5 == 0) unset($a["k" . ($i % 31)]); } $n = 0; foreach ($a as $b) $n += count($b); echo $n, "\\n";'],
    "git": ["/usr/bin/git", "--no-pager", "-C", "{sampler.git}", "log", "--stat", "-n", "40"],
    "xmllint": ["/usr/bin/xmllint", "--xpath", "count(//item[price > 500]/note)", "{sampler.xml}"],
    "cc1plus": [workloads.compiler_proper(), "-quiet", "-fpreprocessed", "-std=c++17", "-O0", "{sampler.ii}", "-o", "-"],
}
PACKAGES = "apt-get install valgrind gcc g++ python3 perl sqlite3 jq ruby gawk lua5.4 php-cli git libxml2-utils"
# Patterns that do little but allocate, with scales that callgrind gets through.
PATTERNS = {"pair48": 200_000, "rand100k": 200_000, "fifo": 200_000, "sh1": 60, "glibc-simple": 600}


@dataclasses.dataclass(frozen=True)
class Allocator:
    """A library, and the variables with which it keeps a profile, and none."""
    name: str
    library: str
    off: tuple
    on: tuple


def allocators(skinflint):
    """Ours, and the peers that are installed."""
    own = os.path.join(os.path.dirname(skinflint), "libskinflint.so")
    found = [Allocator("skinflint", own, (), (("SKINFLINT_PROFILE", "on"), ("SKINFLINT_PROFILE_RATE", str(RATE))))]
    for name, file, off, on in [("jemalloc", "libjemalloc.so.2", (("MALLOC_CONF", "prof:false"),),
                                 (("MALLOC_CONF", "prof:true,lg_prof_sample:19"),)),
                                ("gperftools", "libtcmalloc.so.4", (), (("TCMALLOC_SAMPLE_PARAMETER", str(RATE)),))]:
        for library in glob.glob(f"/usr/lib/*/{file}")[:1]:
            found.append(Allocator(name, library, off, on))
    return found


def environment(allocator, on):
    """What a run is given; ours has no background thread, whose turns would be counted to one form or the other."""
    return {**workloads.ENVIRONMENT, "USE_ZEND_ALLOC": "0", "SKINFLINT_PURGE": "off", "LD_PRELOAD": allocator.library,
            **dict(allocator.on if on else allocator.off)}


def counted(command, allocator, on, folder):
    """(instructions, stdout) of a run under callgrind (C5)."""
    log = os.path.join(folder, "callgrind.log")
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={log}", "--trace-children=no"]
    done = subprocess.run(tool + command, env={**environment(allocator, on), "SKINFLINT_MEMORY": "off"}, capture_output=True, cwd=folder,
                          timeout=measure.LIMIT_S)
    with open(log) as text:
        found = instructions.REFS.search(text.read())
    if done.returncode != 0 or not found:
        raise measure.Failed(f"{allocator.name}: exit {done.returncode}: {done.stderr.decode(errors='replace')[-400:]}")
    return int(found.group(1).replace(",", "")), done.stdout


def timed(bench, command, allocator, on, folder):
    """(CPU seconds, peak of RSS in bytes) of a run."""
    out = os.path.join(folder, "rusage.json")
    own = [pair for pair in environment(allocator, on).items() if pair[0] not in workloads.ENVIRONMENT]
    words = [word for pair in own for word in ("-e", "=".join(pair))]
    done = subprocess.run([bench.tool("self_rusage"), out, *words, "--", *command], env=workloads.ENVIRONMENT, capture_output=True,
                          cwd=folder, timeout=measure.LIMIT_S)
    if done.returncode != 0:
        raise measure.Failed(f"{allocator.name}: exit {done.returncode}: {done.stderr.decode(errors='replace')[-400:]}")
    with open(out) as file:
        use = json.load(file)
    return (use["user_us"] + use["sys_us"]) / 1e6, use["max_rss_kb"] * 1024


def pairs(bench, command, allocator, rounds, folder):
    """(quotient of CPU time, difference of peaks) in the median of so many pairs (C2, C4)."""
    quotients, differences = [], []
    for number in range(rounds):
        forms = [False, True] if number % 2 == 0 else [True, False]
        found = {on: timed(bench, command, allocator, on, folder) for on in forms}
        quotients.append(found[True][0] / max(found[False][0], 1e-6))
        differences.append(found[True][1] - found[False][1])
    return statistics.median(quotients), statistics.median(differences)


def row(bench, name, command, allocator, rounds, is_pattern):
    """One program under one allocator: (instructions on ÷ off, CPU time on ÷ off, peak on − off, output)."""
    with tempfile.TemporaryDirectory(prefix="skinflint-sampler-") as folder:
        (off, first), (on, second) = [counted(command, allocator, form, folder) for form in (False, True)]
        # A pattern prints times of its own.
        if first != second and not is_pattern:
            raise measure.Failed(f"{name}: under {allocator.name} the output differs with the profile")
        cpu, peak = pairs(bench, command, allocator, rounds, folder)
    print(f"{name:14} {allocator.name:11} {off / 1e6:9.1f} M  {on / off:7.4f} instructions  {cpu:6.3f} CPU time  {peak / 1e3:+8.0f} kB",
          flush=True)
    return on / off, cpu, peak, b"" if is_pattern else first


def held(bench, allocator):
    """(bytes more resident with the profile, those of them that go by blocks, how far mean usable sizes differ) of held.c (HELD)."""
    def one(form, on):
        with tempfile.TemporaryDirectory(prefix="skinflint-sampler-") as folder:
            done = subprocess.run([bench.tool("held"), *map(str, form)], env=environment(allocator, on), capture_output=True, text=True,
                                  cwd=folder, timeout=measure.LIMIT_S, check=True)
        return json.loads(done.stdout)
    off, on = [[one(form, on) for form in HELD] for on in (False, True)]
    more = [after["rss"] - before["rss"] for before, after in zip(off, on)]
    usable = max(abs(after["usable"] - before["usable"]) for before, after in zip(off, on))
    return max(more), (more[1] - more[0]) / (HELD[1][0] - HELD[0][0]), usable


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def judge(rows, more, block, usable):
    """[(held, sentence)]: `rows` are ours, (instructions, CPU time, peak) of each program; the rest is what `held` said."""
    mean, cpu = geomean([one[0] for one in rows]), geomean([one[1] for one in rows])
    peak = max([one[2] for one in rows] + [more])
    return [
        (mean <= MEAN_BAR, f"{mean:.4f} of the instructions in geometric mean of {len(rows)} rows (bar {MEAN_BAR}), the most "
                           f"{max(one[0] for one in rows):.4f}; CPU time {cpu:.3f}, not judged"),
        (peak <= RSS_BAR_BYTES, f"{peak / 1e3:,.0f} kB more at the peak, at most (bar {RSS_BAR_BYTES / 1e3:,.0f})"),
        (max(abs(block), usable) <= BLOCK_BAR_BYTES, f"{block:+.3f} bytes a block by resident memory, {usable:.3f} by usable sizes (bar 0, "
                                                     f"told to {BLOCK_BAR_BYTES})"),
    ]


def chosen(parser, bench, names):
    """{name: (command, whether it is a pattern)}"""
    known = {**{name: (command, False) for name, command in PROGRAMS.items()},
             **{name: ([speed.pattern_binary(bench), name, str(scale)], True) for name, scale in PATTERNS.items()}}
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"no program {', '.join(unknown)}; there are {', '.join(known)}")
    filled = {}
    for name in names or known:
        command, is_pattern = known[name]
        words = [inputs.ensure(bench.inputs, word[1:-1]) if word.startswith("{sampler.") else word for word in command]
        filled[name] = (words, is_pattern)
    return filled


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=7, help="pairs of timed runs for each row (default: 7)")
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all programs and patterns")
    arguments = parser.parse_args()
    bench = measure.bench_of(arguments)
    have = allocators(bench.skinflint)[:1 if arguments.alone else None]
    picked = chosen(parser, bench, arguments.programs)
    missing = [tool for tool in ["valgrind", "gcc"] + [command[0] for command, _ in picked.values()] if not shutil.which(tool)]
    missing += [have[0].library] if not os.path.exists(have[0].library) else []
    if missing:
        print(f"not there: {', '.join(missing)} ({PACKAGES}; cargo build --release -p skinflint-malloc-so)", file=sys.stderr)
        return 2
    rows = {allocator.name: [] for allocator in have}
    try:
        for name, (command, is_pattern) in picked.items():
            found = [row(bench, name, command, allocator, arguments.rounds, is_pattern) for allocator in have]
            if len({one[3] for one in found}) > 1:
                raise measure.Failed(f"{name}: the output differs between allocators")
            for allocator, one in zip(have, found):
                rows[allocator.name].append(one[:3])
        holding = {allocator.name: held(bench, allocator) for allocator in have}
    except (measure.Failed, subprocess.SubprocessError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    for allocator in have[1:]:
        of, (more, block, _) = rows[allocator.name], holding[allocator.name]
        print(f"       {allocator.name}: {geomean([one[0] for one in of]):.4f} of the instructions in geometric mean, the most "
              f"{max(one[0] for one in of):.4f}; CPU time {geomean([one[1] for one in of]):.3f}; "
              f"{max([one[2] for one in of] + [more]) / 1e3:,.0f} kB more at the peak, at most; {block:+.3f} bytes a block")
    verdicts = judge(rows["skinflint"], *holding["skinflint"])
    for is_held, sentence in verdicts:
        print(f"{'held  ' if is_held else 'MISSED'} skinflint: {sentence}")
    return 0 if all(is_held for is_held, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
