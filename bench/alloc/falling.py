"""How fast what is freed goes back: RSS of `trickle`, second by second, under each allocator as it comes and tuned.

    trickle: full ──► freed over 20 s by another thread, one block of 50 kept ──► rest
    RSS      ■■■■■■■■■■■■■■■■■■▆▆▅▅▄▄▃▃▂▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁ page floor

    python3 bench/alloc/falling.py                                    # 2,400 MiB over 20 s, 25 s of rest
    python3 bench/alloc/falling.py --mib 5000 --seconds 0 --allocators skinflint,jemalloc+

D1  RSS is Rss of /proc/PID/smaps_rollup, less the program's list of blocks (trickle.c, T2).
D2  Programs run one after the other. At the end each checks every byte that lives.
"""
import argparse
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import idle  # noqa: E402
import measure  # noqa: E402
import peers  # noqa: E402
import speed  # noqa: E402


def series(bench, allocator, mib, seconds, rest):
    """{second: RSS in KiB} from the first free on, floor, CPU of the process while it rested in ms, RSS when full."""
    binary = idle.compiled(bench, "trickle", "-pthread")
    program = idle.Program([binary, str(mib), str(seconds)], speed.environment(allocator, binary), silent=False)
    try:
        program.expect("full")
        pid, full = program.process.pid, idle.rss_kb(program.process.pid)
        program.process.stdin.write(b"go\n")
        program.process.stdin.flush()
        begin, found, cpu = time.monotonic(), {}, 0
        for second in range(1, seconds + rest + 1):
            time.sleep(max(0.0, begin + second - time.monotonic()))
            found[second] = idle.rss_kb(pid)
            if second == max(seconds, 1):
                cpu = idle.cpu_ns(pid)
        cpu = (idle.cpu_ns(pid) - cpu) / 1e6
        words = program.expect(None).split()
        if words[:1] != ["freed"]:
            raise measure.Failed(f"said {words} instead of freed")
        program.ask("end", "right")
    finally:
        program.end()
    floor, own = int(words[1]), int(words[2])
    # While it frees, the list is still whole; its untouched part is not resident.
    return {second: rss - own for second, rss in found.items()}, floor, cpu, full


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=2400, help="MiB of blocks (default: 2400)")
    parser.add_argument("--seconds", type=int, default=20, help="seconds over which they are freed; 0: at once (default: 20)")
    parser.add_argument("--rest", type=int, default=25, help="seconds of rest (default: 25)")
    parser.add_argument("--allocators", default=",".join([*peers.DEFAULT, *peers.TUNED]), metavar="A,B",
                        help=f"of {', '.join(peers.MAKERS)} (default: all but Debian's builds)")
    parser.add_argument("--work", default=os.path.join(peers.ROOT, "target", "bench"), metavar="DIR")
    options = parser.parse_args()
    bench = measure.Bench("", os.path.abspath(options.work))
    have, absent = peers.gather(options.allocators.split(","), os.path.join(bench.work, "alloc"))
    for name, why in absent.items():
        print(f"{name} ABSENT: {why}")
    shown = sorted({s for s in (1, 5, 10, 15, *range(options.seconds, options.seconds + 8),
                                *range(options.seconds + 10, options.seconds + options.rest + 1, 5)) if s > 0})
    print(f"RSS in MiB so many seconds after the first free; {options.mib} MiB, freed over {options.seconds} s; CPU: ms at rest")
    print(f"{'':14}{'full':>7}" + "".join(f"{s:>6}" for s in shown) + f"{'floor':>7}{'CPU':>7}", flush=True)
    for allocator in have:
        try:
            found, floor, cpu, full = series(bench, allocator, options.mib, options.seconds, options.rest)
        except (measure.Failed, OSError) as error:
            print(f"{allocator.name:14} FAILED: {error}", flush=True)
            continue
        cells = "".join(f"{found[s] / 1024:>6.0f}" if s in found else f"{'-':>6}" for s in shown)
        print(f"{allocator.name:14}{full / 1024:>7.0f}{cells}{floor / 1024:>7.0f}{cpu:>7.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
