"""What stays below the page floor when the kernel merges pages: PSS of `scattered` with meshing, without, and without it but
with every page offered to the kernel.

    scattered: blocks of seeded contents, some stay ──► rest until PSS stands still ──► checked, read, written, checked
    plain      pages as they are                 offered    the same, but MERGEABLE: what is equal by chance
    meshed     free slots filled with partners' bytes

    sudo python3 bench/alloc/mesh.py                       # turns /sys/kernel/mm/ksm on, and back as it was
    sudo python3 bench/alloc/mesh.py --sizes 256 --kept 20 --mib 100

D1  PSS is Pss of /proc/PID/smaps_rollup, as it stands when it has not changed by a hundredth for five looks.
D2  The three ways run one after the other, so that none merges with another's pages. Contents come from the seed.
D3  `write` is what writing every block costs more than where nothing was merged, for each page that was merged.
"""
import argparse
import ctypes
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import idle  # noqa: E402
import measure  # noqa: E402
import peers  # noqa: E402
import speed  # noqa: E402

KSM = "/sys/kernel/mm/ksm"
SET_MEMORY_MERGE = 67
WAYS = {"plain": "off", "offered": "off", "meshed": "on"}
LONGEST_S = 90


def ksm(name, value=None):
    path = os.path.join(KSM, name)
    if value is not None:
        with open(path, "w", encoding="ascii") as file:
            file.write(str(value))
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def rollup(pid):
    """{name: KiB}"""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        lines = [line.split() for line in file if line.endswith("kB\n")]
    return {words[0].rstrip(":"): int(words[1]) for words in lines}


def merged_pages(pid):
    with open(f"/proc/{pid}/ksm_merging_pages", encoding="ascii") as file:
        return int(file.read())


def at_rest(pid):
    """PSS in KiB once it stands still, and the seconds until then."""
    begin, last, same = time.monotonic(), 0, 0
    while True:
        time.sleep(1)
        now = rollup(pid)["Pss"]
        waited = time.monotonic() - begin
        same = same + 1 if abs(now - last) * 100 <= now else 0
        last = now
        # The purger waits for some quiet ticks before it meshes.
        if same >= 5 and waited > 15:
            return now, waited
        if waited > LONGEST_S:
            raise measure.Failed(f"PSS did not stand still within {LONGEST_S} s")


def offer():
    """For the program about to be started: all of its memory is offered to the kernel."""
    if ctypes.CDLL(None).prctl(SET_MEMORY_MERGE, 1, 0, 0, 0) != 0:
        os._exit(125)


def run(binary, allocator, way, size, mib, kept, seed):
    environment = dict(speed.environment(allocator, binary), SKINFLINT_MESH=WAYS[way])
    command = [binary, str(size), str(mib), str(kept), str(seed)]
    if way == "offered":
        # A function before exec cannot be given to Program: a small interpreter makes the call and becomes the program.
        here = os.path.abspath(__file__)
        command = [sys.executable, here, "--become", *command]
    program = idle.Program(command, environment, silent=False)
    try:
        words = program.expect(None).split()
        if words[:1] != ["live"]:
            raise measure.Failed(f"said {words} instead of live")
        pid = program.process.pid
        pss, seconds = at_rest(pid)
        merged = merged_pages(pid)
        program.ask("c", "same")
        read = int(program.ask("r").split()[1])
        still = rollup(pid)["Pss"]
        written = int(program.ask("w").split()[1])
    finally:
        program.end()
    return {"live": int(words[1]) / 1024, "floor": int(words[3]) / 1024, "pss": pss, "seconds": seconds, "merged": merged,
            "read": read, "after": still, "written": written}


def row(binary, allocator, options, size, kept):
    found = {way: run(binary, allocator, way, size, options.mib, kept, options.seed) for way in WAYS}
    plain, meshed = found["plain"], found["meshed"]
    more = (meshed["written"] - plain["written"]) / max(meshed["merged"], 1) / 1000
    print(f"{size or 'mixed':>6}{kept:>5} %{plain['live'] / 1024:>8.1f}{plain['floor'] / 1024:>8.1f}"
          + "".join(f"{found[way]['pss'] / 1024:>9.1f}" for way in WAYS)
          + f"{meshed['pss'] / plain['pss']:>8.2f}{meshed['seconds']:>6.0f}"
          + f"{meshed['read'] / max(plain['read'], 1):>7.2f}{more:>8.1f}", flush=True)
    return meshed["pss"] / plain["pss"], found["offered"]["pss"] / plain["pss"]


def become(words):
    offer()
    os.execv(words[0], words)


def main():
    if sys.argv[1:2] == ["--become"]:
        become(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="64,256,1024,0", metavar="A,B", help="bytes of a block; 0: 16 to 1,024")
    parser.add_argument("--kept", default="10,20,40", metavar="A,B", help="per cent of the blocks that stay")
    parser.add_argument("--mib", type=int, default=100, help="MiB of blocks (default: 100)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", default=os.path.join(peers.ROOT, "target", "bench"), metavar="DIR")
    options = parser.parse_args()
    if not os.access(os.path.join(KSM, "run"), os.W_OK):
        print(f"{KSM}/run cannot be written: run as root, on a kernel with same-page merging", file=sys.stderr)
        return 2
    bench = measure.Bench("", os.path.abspath(options.work))
    have, absent = peers.gather(["skinflint"], os.path.join(bench.work, "alloc"))
    if absent:
        print(f"skinflint is absent: {absent}", file=sys.stderr)
        return 2
    binary = idle.compiled(bench, "scattered")
    before = {name: ksm(name) for name in ("pages_to_scan", "sleep_millisecs", "run")}
    ratios = []
    try:
        ksm("pages_to_scan", 2000)
        ksm("run", 1)
        print(f"Linux {os.uname().release}, pages_to_scan 2000, seed {options.seed}; MiB; write: microseconds more for a "
              "merged page")
        print(f"{'bytes':>6}{'kept':>7}{'live':>8}{'floor':>8}" + "".join(f"{way:>9}" for way in WAYS)
              + f"{'ratio':>8}{'s':>6}{'read':>7}{'write':>8}", flush=True)
        for size in (int(size) for size in options.sizes.split(",")):
            for kept in (int(kept) for kept in options.kept.split(",")):
                ratios.append(row(binary, have[0], options, size, kept))
    finally:
        for name, value in before.items():
            ksm(name, value)
    for at, what in ((0, "meshed"), (1, "offered")):
        product = 1.0
        for ratio in ratios:
            product *= ratio[at]
        print(f"{what}: {product ** (1 / len(ratios)):.2f} of plain in geometric mean")
    return 0


if __name__ == "__main__":
    sys.exit(main())
